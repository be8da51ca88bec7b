#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The header's example, and the header:
#     tests/quickstart.sh BUILD
# runs examples/quickstart at each stage, alone and on MPI ranks where there is
# MPI, and demands one digest and a falling loss; the header is C11 and C++17.
set -u
build=$(realpath "${1:?the build folder}") || exit 1
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh

same_digest() { # command...
    timeout 60 "$@" >"$scratch/out" 2>&1
    verdict $? "$* failed: $(tail -n 1 "$scratch/out")"
    grep '^digest ' "$scratch/out" >"$scratch/digest"
    [ -s "$scratch/first" ] || cp "$scratch/digest" "$scratch/first"
    [ -s "$scratch/digest" ] && cmp -s "$scratch/digest" "$scratch/first"
    verdict $? "$*: $(cat "$scratch/digest"), expected $(cat "$scratch/first")"
}

for stage in 0 1 2 3; do
    same_digest "$build/quickstart" $stage
done
if [ ${#launcher[@]} != 0 ] && nm -D "$build/quickstart" | grep -q MPI_Init_thread; then
    same_digest "${launcher[@]}" -n 2 "$build/quickstart" 3
    same_digest "${launcher[@]}" -n 4 "$build/quickstart" 1
else
    echo "skipped: MPI ranks, for want of MPI"
fi
for stage in abc 3x "1 2" 7; do
    timeout 60 "$build/quickstart" "$stage" >"$scratch/none" 2>"$scratch/err"
    [ $? -gt 0 ] && [ ! -s "$scratch/none" ] && [ "$(wc -l <"$scratch/err")" = 1 ]
    verdict $? "quickstart '$stage': $(cat "$scratch/none" "$scratch/err")"
done
timeout 60 "$build/quickstart" >/dev/full 2>"$scratch/err"
[ $? = 1 ] && grep -qx 'Standard output could not be written\.' "$scratch/err"
verdict $? "quickstart >/dev/full: $(cat "$scratch/err")"
awk '/^step/ { last = $NF; if (!first) first = last }
     END { exit !(first > 0.2 && last < 0.7 * first) }' "$scratch/out"
verdict $? "the loss does not fall: $(grep ^step "$scratch/out" | tr '\n' ';')"

echo '#include "include/zero.h"' >"$scratch/header.c"
strict=(-Wall -Wextra -Wpedantic -Werror -I. -o "$scratch/header.o" -c)
${CC:-cc} -std=c11 "${strict[@]}" "$scratch/header.c"
verdict $? "zero.h is not clean C11"
if command -v c++ >/dev/null; then
    cp "$scratch/header.c" "$scratch/header.cpp"
    c++ -std=c++17 "${strict[@]}" "$scratch/header.cpp"
    verdict $? "zero.h is not clean C++17"
else
    echo "skipped: C++17, for want of a compiler"
fi

closing
