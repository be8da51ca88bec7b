#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Updates of large models in files, and what whole runs tell: tests/bench/runs.sh BUILD
# [update|overlap|stages|link|paths]... Run by make bench-full. Each line is said before it
# is run; what needs root and is not is left out. Where PARAMS (512M 2048M) do not fit, the
# tool says so, and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?the build folder}
shift
[ $# -gt 0 ] || set -- update overlap stages link paths
. tests/bench/rows.sh
status=0

said() { # a command
    echo "## $*"
    "$@" || status=1
}

as_root() { # a command
    if [ "$(id -u)" = 0 ]; then
        said "$@"
    else
        echo "## $* is left out: it needs root"
    fi
}

read -ra sizes <<<"${PARAMS:-512M 2048M}"
for what in "$@"; do
    case $what in
    update)
        for size in "${sizes[@]}"; do
            said "$build/zero" bench step --params "$size"
            said "${launcher[@]}" -n 2 "$build/zero" bench step --params "$size"
        done
        said "$build/zero" bench step --state split
        said "$build/zero" bench step --host-share 30
        ;;
    overlap)
        said tests/bench/overlap.sh "$build"
        as_root env THROTTLE=auto tests/bench/overlap.sh "$build"
        ;;
    stages) said tests/bench/stages.sh "$build" ;;
    link | paths) as_root "tests/bench/$what.sh" "$build" ;;
    *) echo "There is no run '$what'. Give update, overlap, stages, link or paths." >&2 && exit 2 ;;
    esac
done
exit $status
