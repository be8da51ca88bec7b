#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Holds what is written for a shell, jobs included, to shellcheck's rules:
#     tests/check_shell.sh [--self-test]
# --self-test plants a defect that must be reported.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
log=$scratch/log

scripts() {
    find .ci src tests jobs -type f 2>/dev/null | grep -E '\.(sh|sbatch|env)$|^\.ci/run$' | sort
}

# Every script is a check.
check() {
    local files
    mapfile -t files < <(scripts)
    checks=${#files[@]}
    shellcheck -x -S info -f gcc "${files[@]}" >"$log"
    [ $? -le 1 ] || echo "shellcheck itself failed" >>"$log"
    failures=$(cut -d: -f1 "$log" | sort -u | wc -l)
    cat "$log"
}

if ! command -v shellcheck >/dev/null; then
    echo "skipped: scripts: shellcheck is not installed"
    checks=1
elif [ "${1-}" = --self-test ]; then
    mkdir "$scratch/jobs" && cd "$scratch" || exit 1
    # shellcheck disable=SC2016 # the planted script's words
    printf '#!/bin/bash\n%s "$1"\n' echo >jobs/good.sbatch
    # shellcheck disable=SC2016
    printf '#!/bin/bash\n%s $1\n' rm >jobs/bad.sbatch
    output=$(check && echo "$checks $failures")
    checks=1 failures=0
    [[ $output == jobs/bad.sbatch:2:*SC2086*$'\n2 1' ]] || failures=1
else
    check
fi
closing
