#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs test suites one after the other and adds up what Check reports:
#     tests/run.sh SUITE... | --self-test
# A suite is a command, in one argument, that prints Check's closing line;
# NAME=value before it is its environment, then 4@ runs it on 4 MPI ranks. It fails when
# one of its checks does, when it exits with anything but 0, runs longer than
# TIMEOUT seconds, or ran no check.
# ONLY='NAME...' picks suites by the name of their file.
set -u
limit=${TIMEOUT:-300}
only=${ONLY:-}

# Tests are stopped for hanging, not for being slow.
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-60}
# shellcheck source=tests/support/sanitizers.sh
. "${0%/*}/support/sanitizers.sh"

scratch=$(mktemp -d /dev/shm/zero-tests.XXXXXX 2>/dev/null || mktemp -d) || exit 1
notes=$(mktemp) || exit 1
trap 'rm -rf "$scratch" "$notes"' EXIT
# A job that is killed leaves its shared memory behind: then it is ours to remove.
export OMPI_MCA_btl_vader_backing_directory=$scratch
log=$scratch/log
# What tests/check_errors.sh looks at when all suites have run.
export ZERO_ERRORS_SEEN=${only:+/dev/null}
: "${ZERO_ERRORS_SEEN:=$notes}"

checks=0 failures=0 errors=0
bad=() skips=()

# Sums Check's closing lines in the log: "checks failures errors".
closing() {
    awk '/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ {
             gsub(",", ""); checks += $3; failures += $5; errors += $7
         }
         END { print checks + 0, failures + 0, errors + 0 }' "$log"
}

# Why a suite without failed checks has failed all the same; empty: it has not.
reason() { # exit status, checks
    case $1 in
    0) [ "$2" -gt 0 ] || echo "ran no check" ;;
    124 | 137) echo "killed, or stopped after $limit s" ;;
    *) echo "exit status $1" ;;
    esac
}

# Runs one suite, prints what it printed, and adds to the sums.
run_suite() {
    local suite=$1 variables=() command=() status n f e why start seconds
    read -ra command <<<"$suite"
    while [[ ${command[0]} == [A-Z]*=* ]]; do
        variables+=("${command[0]}")
        command=("${command[@]:1}")
    done
    case ${command[0]} in
    [0-9]@*)
        n=${command[0]%%@*}
        command=("${MPIRUN:-mpirun}" -q -n "$n" "${command[0]#*@}" "${command[@]:1}")
        ;;
    esac
    start=$EPOCHREALTIME
    timeout -k 5 "$limit" env "${variables[@]}" "${command[@]}" >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    cat "$log"
    read -r n f e <<<"$(closing)"
    why=$(reason "$status" "$n")
    if [ $((f + e)) = 0 ] && [ -n "$why" ]; then
        n=$((n + 1)) e=1
        echo "$suite: $why"
    fi
    checks=$((checks + n)) failures=$((failures + f)) errors=$((errors + e))
    [ $((f + e)) = 0 ] || bad+=("$suite: ${why:-$f failures, $e errors}")
    while read -r line; do
        skips+=("$suite: $line")
    done < <(grep -i '^ *skip' "$log")
    printf -- '-- %s: %d checks, %s s\n\n' "$suite" "$n" "$seconds"
}

picked() {
    local word name
    [ -n "$only" ] || return 0
    for word in $1; do
        for name in $only; do
            [ "${word##*/}" = "$name" ] && return 0
        done
    done
    return 1
}

# Suites that fail in every way there is, run by this script itself.
self_test() {
    local checks=0 failures=0 script text expected output
    while IFS='|' read -r text script expected; do
        printf '#!/bin/sh\necho "%s"\n%s\n' "$text" "$script" >"$scratch/suite"
        chmod +x "$scratch/suite"
        output=$(ONLY='' TIMEOUT=1 "$0" "$scratch/suite" 2>/dev/null && echo 0 || echo 1)
        checks=$((checks + 1))
        [ "$(tail -n 2 <<<"$output")" = "${expected#* }"$'\n'"${expected%% *}" ] && continue
        failures=$((failures + 1))
        printf '%s\nwas the answer to: %s; %s\n' "$output" "$text" "$script"
    done <<'LIST'
100%: Checks: 3, Failures: 0, Errors: 0||0 100%: Checks: 3, Failures: 0, Errors: 0
100%: Checks: 3, Failures: 0, Errors: 0|exit 3|1 75%: Checks: 4, Failures: 0, Errors: 1
100%: Checks: 3, Failures: 0, Errors: 0|kill -SEGV $$|1 75%: Checks: 4, Failures: 0, Errors: 1
100%: Checks: 3, Failures: 0, Errors: 0|exec sleep 9|1 75%: Checks: 4, Failures: 0, Errors: 1
50%: Checks: 4, Failures: 1, Errors: 1||1 50%: Checks: 4, Failures: 1, Errors: 1
100%: Checks: 0, Failures: 0, Errors: 0||1 0%: Checks: 1, Failures: 0, Errors: 1
nothing||1 0%: Checks: 1, Failures: 0, Errors: 1
LIST
    echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
    [ "$failures" = 0 ]
}

if [ "${1-}" = --self-test ]; then
    self_test
    exit
fi
for suite in "$@"; do
    picked "$suite" && run_suite "$suite"
done

[ ${#skips[@]} = 0 ] || printf '%s\n' "${skips[@]}"
[ ${#bad[@]} = 0 ] || printf 'failed: %s\n' "${bad[@]}"
echo "All suites, in $SECONDS s:"
if [ "$checks" = 0 ]; then
    echo "No check ran: no such suite."
    exit 1
fi
good=$((checks - failures - errors))
echo "$((good * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: $errors"
[ "$good" = "$checks" ]
