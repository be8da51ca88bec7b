# SPDX-License-Identifier: Apache-2.0
# What suites in shell share, who source it from the tree's root: a scratch
# folder that goes with them, the way to start ranks, verdicts, the closing line.
# It runs nothing.
# shellcheck shell=bash
checks=0 failures=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# Empty: there is no way to start ranks. Open MPI's files go where ours go.
read -ra launcher <<<"${MPIRUN-mpirun}"
command -v "${launcher[0]-}" >/dev/null || launcher=()
: "${OMPI_MCA_btl_vader_backing_directory:=$scratch}"
export OMPI_MCA_btl_vader_backing_directory

verdict() { # 0: passed, what is wrong otherwise
    checks=$((checks + 1))
    [ "$1" = 0 ] && return
    failures=$((failures + 1))
    echo "${0##*/}: $2"
}

have_ranks() { # ranks, what is skipped without them
    [ "$1" = 1 ] || [ "${#launcher[@]}" != 0 ] || { echo "skipped: $2: needs mpirun" && false; }
}

# The ids of processes whose command lines have a file's name in them.
naming() { # file
    # shellcheck disable=SC2062 # these are files
    grep -lsF --file=- /proc/[0-9]*/cmdline <<<"$1" | sed 's/[^0-9]//g'
}

closing() {
    echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
    [ "$failures" = 0 ]
}
