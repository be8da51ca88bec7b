#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs test suites, JOBS at a time (1), and adds up what Check reports:
#     tests/run.sh SUITE... [--then SUITE...] | --self-test
# A suite is a command, in one argument, that prints Check's closing line;
# NAME=value before it is its environment, then 4@ runs it on 4 MPI ranks. It fails when
# one of its checks does, when it exits with anything but 0, runs longer than
# TIMEOUT seconds, or ran no check.
# What stands behind --then begins when all before it has ended.
# ONLY='NAME...' picks suites by the name of their file.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then # wait -n -p
    echo "The tests need bash 5.1 as /bin/bash, and this is $BASH_VERSION. Use a newer system." >&2
    exit 2
fi
export LC_ALL=C # a decimal point
set -um # -m: what runs in the background can be interrupted, as in a terminal
limit=${TIMEOUT:-900}
umask 022 # some tests become another user
only=${ONLY:-}
jobs=${JOBS:-1}
if [[ ! $jobs =~ ^[1-9][0-9]?$ ]]; then
    echo "JOBS=$jobs: that many suites cannot run at a time. Use 1 to 99." >&2
    exit 2
fi

# Tests are stopped for hanging, not for being slow.
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-60}
# shellcheck source=tests/support/sanitizers.sh
. "${0%/*}/support/sanitizers.sh"
# shellcheck source=tests/support/open_mpi.sh
. "${0%/*}/support/open_mpi.sh"

scratch=$(mktemp -d /dev/shm/zero-tests.XXXXXX 2>/dev/null || mktemp -d) || exit 1
notes=$(mktemp) || exit 1
trap 'rm -rf "$scratch" "$notes"' EXIT
open_mpi_files "$scratch"
# What tests/check_errors.sh looks at when all suites have run.
export ZERO_ERRORS_SEEN=${only:+/dev/null}
: "${ZERO_ERRORS_SEEN:=$notes}"

checks=0 failures=0 errors=0
bad=() skips=()

# Sums Check's closing lines in a log: "checks failures errors".
closing() { # file
    awk '/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ {
             gsub(",", ""); checks += $3; failures += $5; errors += $7
         }
         END { print checks + 0, failures + 0, errors + 0 }' "$1"
}

# Why a suite without failed checks has failed all the same; empty: it has not.
reason() { # exit status, checks
    case $1 in
    0) [ "$2" -gt 0 ] || echo "ran no check" ;;
    124 | 137) echo "killed, or stopped after $limit s" ;;
    *) echo "exit status $1" ;;
    esac
}

# Suites under way, by the process that runs each, and when they began.
declare -A under_way=() begun=()

# Its output is in $scratch/PROCESS.
start_suite() { # suite
    local variables=() command=() launcher=()
    read -ra command <<<"$1"
    while [[ ${command[0]} == [A-Z]*=* ]]; do
        variables+=("${command[0]}")
        command=("${command[@]:1}")
    done
    case ${command[0]} in
    [0-9]@*)
        read -ra launcher <<<"${MPIRUN:-mpirun}"
        command=("${launcher[@]}" -n "${command[0]%%@*}" "${command[0]#*@}" "${command[@]:1}")
        ;;
    esac
    if [[ -n ${SAN-} || $1 =~ -(address|thread)([^a-z]|$) ]]; then
        command=("${laid_out[@]}" "${command[@]}")
    fi
    timeout -k 5 "$limit" env "${variables[@]}" "${command[@]}" \
        >"$scratch/$BASHPID" 2>&1 </dev/null &
    under_way[$!]=$1 begun[$!]=$EPOCHREALTIME
}

# Prints what a suite printed that has ended, and adds to the sums.
add_suite() { # process, status
    local suite=${under_way[$1]} log=$scratch/$1 n f e why seconds line
    seconds=$(awk -v a="${begun[$1]}" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    unset "under_way[$1]"
    cat "$log"
    read -r n f e <<<"$(closing "$log")"
    why=$(reason "$2" "$n")
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
    rm "$log"
}

# Until fewer than so many are under way.
wait_below() { # count
    local process
    while [ ${#under_way[@]} -ge "$1" ]; do
        wait -n -p process "${!under_way[@]}"
        add_suite "$process" $?
    done
}

declare -A picks=() # names of ONLY that stand for a suite
picked() {
    local word name
    [ -n "$only" ] || return 0
    for word in $1; do
        for name in $only; do
            [ "${word##*/}" = "$name" ] && picks[$name]=1 && return 0
        done
    done
    return 1
}

# Suites that fail in every way there is, run by this script itself.
self_test() {
    local checks=0 failures=0 script text expected output
    while IFS='|' read -r text script expected; do
        printf '#!/bin/sh\necho "%s"\n%s\n' "$text" "$script" >"$scratch/suite"
        output=$(ONLY='' TIMEOUT=4 "$0" "sh $scratch/suite" 2>/dev/null && echo 0 || echo 1)
        checks=$((checks + 1))
        [ "$(tail -n 2 <<<"$output")" = "${expected#* }"$'\n'"${expected%% *}" ] && continue
        failures=$((failures + 1))
        printf '%s\nwas the answer to: %s; %s\n' "$output" "$text" "$script"
    done <<'LIST'
100%: Checks: 3, Failures: 0, Errors: 0||0 100%: Checks: 3, Failures: 0, Errors: 0
100%: Checks: 3, Failures: 0, Errors: 0|exit 3|1 75%: Checks: 4, Failures: 0, Errors: 1
100%: Checks: 3, Failures: 0, Errors: 0|kill -SEGV $$|1 75%: Checks: 4, Failures: 0, Errors: 1
100%: Checks: 3, Failures: 0, Errors: 0|exec sleep 60|1 75%: Checks: 4, Failures: 0, Errors: 1
50%: Checks: 4, Failures: 1, Errors: 1||1 50%: Checks: 4, Failures: 1, Errors: 1
100%: Checks: 0, Failures: 0, Errors: 0||1 0%: Checks: 1, Failures: 0, Errors: 1
nothing||1 0%: Checks: 1, Failures: 0, Errors: 1
LIST
    # The first ends when the second has begun, and the third begins when both have ended.
    cat >"$scratch/suite" <<'SUITE'
#!/bin/sh
case $1 in
first) until [ -e "$0.second" ]; do sleep .1; done; sleep .5; touch "$0.first" ;;
second) touch "$0.second" ;;
third) [ -e "$0.first" ] || exit 1 ;;
esac
echo "100%: Checks: 1, Failures: 0, Errors: 0"
SUITE
    checks=$((checks + 1))
    output=$(ONLY='' TIMEOUT=5 JOBS=2 "$0" "sh $scratch/suite first" "sh $scratch/suite second" \
        --then "sh $scratch/suite third") || failures=$((failures + 1))
    checks=$((checks + 1)) # and ranks by a launcher of several words
    echo 'shift 3; exec "$@"' >"$scratch/launcher"
    ONLY='' MPIRUN="sh $scratch/launcher --more" "$0" "2@sh $scratch/suite second" >/dev/null ||
        failures=$((failures + 1))
    checks=$((checks + 1)) # and a name that is none
    ! ONLY='suite siute' "$0" "sh $scratch/suite second" >/dev/null || failures=$((failures + 1))
    echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
    [ "$failures" = 0 ]
}

if [ "${1-}" = --self-test ]; then
    self_test
    exit
fi
trap 'kill "${!under_way[@]}" 2>/dev/null; exit 1' INT TERM
for suite in "$@"; do
    if [ "$suite" = --then ]; then
        wait_below 1
    elif picked "$suite"; then
        wait_below "$jobs"
        start_suite "$suite"
    fi
done
wait_below 1
for name in $only; do
    [ -z "${picks[$name]-}" ] || continue
    checks=$((checks + 1)) errors=$((errors + 1))
    bad+=("$name: there is no such suite here")
done

[ ${#skips[@]} = 0 ] || printf '%s\n' "${skips[@]}"
[ ${#bad[@]} = 0 ] || printf 'failed: %s\n' "${bad[@]}"
echo "All suites, in $SECONDS s:"
if [ "$checks" = 0 ]; then
    echo "No check ran: no suite was given."
    exit 1
fi
good=$((checks - failures - errors))
echo "$((good * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: $errors"
[ "$good" = "$checks" ]
