#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Updates of large models in files, and what whole runs tell: tests/bench/runs.sh BUILD
# [update|overlap|stages|link|paths]... Run by make bench-full. Each line is said before it
# is run; what this machine cannot do is left out, with the reason. Where PARAMS (512M 2048M)
# do not fit, the tool says so, and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?the build folder}
shift
[ $# -gt 0 ] || set -- update overlap stages link paths
. tests/support/verdicts.sh
. tests/bench/aims.sh
status=0

lacking() { # ranks, root, link or throttle: the reason why it is not there, or nothing
    case $1 in
    ranks) [ "${#launcher[@]}" != 0 ] || echo "there is no mpirun, or no MPI in this build" ;;
    root) [ "$(id -u)" = 0 ] || echo "it needs root" ;;
    link) command -v tc >/dev/null || echo "it needs tc (apt-get install iproute2)" ;;
    throttle) [ -e /sys/fs/cgroup/blkio/cgroup.procs ] || echo "it needs cgroup v1's blkio" ;;
    esac
}

run() { # "what it needs", a command
    local what reason needs=$1
    shift
    for what in $needs; do
        reason=$(lacking "$what")
        [ -z "$reason" ] || { echo "## $* is left out: $reason" && return; }
    done
    echo "## $*"
    "$@" || status=1
}

read -ra sizes <<<"${PARAMS:-512M 2048M}"
measure() { # what...
    local what
    for what in "$@"; do
        measure_one "$what"
    done
    return $status
}

measure_one() { # what
    case $1 in
    update)
        for size in "${sizes[@]}"; do
            run "" "$build/zero" bench step --params "$size"
            run ranks "${launcher[@]}" -n 2 "$build/zero" bench step --params "$size"
        done
        run "" "$build/zero" bench step --state split
        run "" "$build/zero" bench step --host-share 30
        ;;
    overlap)
        run ranks tests/bench/overlap.sh "$build"
        run "ranks root throttle" env THROTTLE=auto tests/bench/overlap.sh "$build"
        ;;
    stages) run ranks tests/bench/stages.sh "$build" ;;
    link) run "ranks root link" tests/bench/link.sh "$build" ;;
    paths) run "ranks root throttle" tests/bench/paths.sh "$build" ;;
    *) echo "There is no run '$1'. Give update, overlap, stages, link or paths." >&2 && exit 2 ;;
    esac
}

with_aims measure "$@"
