#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which sanitizers programs can be built with and run under here: sanitized.sh FOLDER CC NAME...
# prints those of the NAMEs address and thread, and on standard error why others are left out: a
# distribution may have their libraries in packages of their own, and a kernel lay memory out as
# TSan cannot use it. FOLDER takes a program for a moment.
set -u
# shellcheck source=tests/support/sanitizers.sh
. "${0%/*}/sanitizers.sh"
at=$(mktemp -d -p "$1") || exit 1
trap 'rm -rf "$at"' EXIT
read -ra cc <<<"$2"
echo 'int main(void) { return 0; }' >"$at/none.c"

# Where memory lies is drawn with each start.
runs() {
    local i
    for ((i = 0; i < 20; i++)); do
        "${laid_out[@]}" "$at/none" || return
    done
}

for name in "${@:3}"; do
    flags=$name
    [ "$name" != address ] || flags+=,undefined
    { "${cc[@]}" "-fsanitize=$flags" -o "$at/none" "$at/none.c" && runs; } 2>"$at/why" &&
        echo "$name" && continue
    echo "skipped: suites under the $name sanitizer: $(tail -n 1 "$at/why")" >&2
done
