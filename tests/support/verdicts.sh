# SPDX-License-Identifier: Apache-2.0
# What suites in shell share, who source it from the tree's root: a scratch
# folder that goes with them, the way to start ranks, verdicts, the closing line.
# It runs nothing.
# shellcheck shell=bash
checks=0 failures=0
scratch=$(mktemp -d -p "${TMPDIR:-/var/tmp}") || exit 1 # /tmp may be memory, of which gpt2 warns
trap 'rm -rf "$scratch"' EXIT

# Empty: there is no way to start ranks.
read -ra launcher <<<"${MPIRUN-mpirun}"
command -v "${launcher[0]-}" >/dev/null || launcher=()
. tests/support/open_mpi.sh
open_mpi_files "${OMPI_MCA_btl_vader_backing_directory:-$scratch}"

verdict() { # 0: passed, what is wrong otherwise
    checks=$((checks + 1))
    [ "$1" = 0 ] && return
    failures=$((failures + 1))
    echo "${0##*/}: $2"
}

log_column() { # name, file of --log: its values, one a line
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next }
        { print $c }' "$2"
}

skip() { # what, and why
    echo "skipped: $1"
}

# Whether one process may read another's memory, as ranks' fake GPUs do.
may_read() {
    [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" -lt 2 ] ||
        { skip "no process may read another's memory here (kernel.yama.ptrace_scope)" && false; }
}

have_ranks() { # ranks, what is skipped without them
    [ "$1" = 1 ] || [ "${#launcher[@]}" != 0 ] || { skip "$2: needs mpirun" && false; }
}

# Of two ranks each with options of its own: sh -c "$unlike" sh FIRST SECOND PROGRAM. As two
# programs of one job they would end mpirun 5.0 by a fault of its own, once one has failed.
# shellcheck disable=SC2016,SC2034 # for the ranks' shell; used by those who source this
unlike='own=$1; [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || own=$2; shift 2; exec "$@" $own'

# Whether mpirun may show nothing of what other ranks say once one has failed, as series 5 does.
drops_sentences() {
    mpirun_version=${mpirun_version-$("${launcher[@]}" --version 2>/dev/null)}
    ! grep -q '(Open MPI) [1-4]' <<<"$mpirun_version"
}

# Takes out what mpirun 5 says of a rank that fails even where it is to be quiet: between
# dashes, where some have no words for it but zeros, and by its server.
without_mpirun() { # file
    drops_sentences || return 0
    sed -i -e '/^-\{60,\}$/,/^-\{60,\}$/d' -e 's/\x0//g; /^$/d' \
        -e '/^\[[^]]*:[0-9]*\] PMIX ERROR: /d' "$1"
}

# What each run with files warns of where this system lets nobody use io_uring; else nothing. A
# suite whose runs are to say nothing else keeps it in "site".
site=''
uring_refused() { # build
    "$1/zero" info | grep -q '^ *io_uring  *refused' && echo "This system refuses io_uring"
}

without_site() { # file
    [ -z "$site" ] || sed -i "/^libzero: warning: \(rank [0-9]*: \)\?$site/d" "$1"
}

uring_here() { # what is skipped without it
    [ -z "$site" ] || { skip "$1: io_uring is refused here" && false; }
}

# The ids of processes whose command lines have a file's name in them.
naming() { # file
    # shellcheck disable=SC2062 # these are files
    grep -lsF --file=- /proc/[0-9]*/cmdline <<<"$1" | sed 's/[^0-9]//g'
}

# Of processes the one of a rank that runs a program: mpirun and timeout name its files, too.
rank_among() { # rank, or nothing where it is alone, program, processes
    local pid
    for pid in "${@:3}"; do
        [ "/proc/$pid/exe" -ef "$2" ] || continue
        [ -z "$1" ] ||
            grep -qszE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" "/proc/$pid/environ" || continue
        echo "$pid" && return
    done
}

# What was trained is told although one of the run's files is not whole: $scratch/out loses the
# digest, which no other failing run has.
told_to_its_end() { # name
    grep -q '^digest ' "$scratch/out"
    verdict $? "$1: no digest: $(tail -n 3 "$scratch/out")"
    sed -i '/^digest /d' "$scratch/out"
}

closing() {
    echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
    [ "$failures" = 0 ]
}
