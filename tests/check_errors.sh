#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Holds the errors of the library to tests/errors.txt, which lists them all:
#     tests/check_errors.sh                       the list and the source agree
#     tests/check_errors.sh --write               adds new sentences to the list, drops old ones
#     tests/check_errors.sh --seen [MPI] [URING] [refused:URING]  suites have provoked each sentence
#     tests/check_errors.sh --self-test           it reports what it should, elsewhere
# --seen reads what the suites of one run of tests/run.sh have noted in the file
# $ZERO_ERRORS_SEEN, and is given what the build has. With ONLY= there is none.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
reader=$PWD/tests/check_errors.awk
. tests/support/verdicts.sh

# STATUS|SENTENCE|file:line of the library; macros of error.h are known to all.
source_rows() {
    local files
    mapfile -t files < <(find src offload kernels -name '*.c' | grep -v '^src/error\.c$' | sort)
    awk -f "$reader" src/error.h "${files[@]}"
}

list_rows() { # STATUS|MARKS|SENTENCE|CAUSE
    grep -v -e '^#' -e '^$' tests/errors.txt
}

# What is wrong with a sentence; nothing where all is well. A part stands within
# another sentence, so it has no form of its own.
form() { # marks, sentence
    [[ $2 == "(none: "* || " $1 " == *" part "* ]] && return
    [[ $2 == *. ]] || echo "ends without a full stop"
    [[ $2 =~ \.\ [A-Z%] ]] || echo "does not say what to do in a sentence of its own"
    [[ $2 =~ ^([A-Z%\'.]|zero_|params|config|io_uring) ]] || echo "does not begin as a sentence"
    [[ $2 != *\;* && $2 != *!* ]] || echo "has a mark that is not used"
}

check() {
    local rows row key status marks text cause wrong
    local -A known=() has=()
    mapfile -t rows < <(source_rows)
    for row in "${rows[@]}"; do
        key=${row%|*}
        has[$key]=1
    done
    while IFS='|' read -r status marks text cause; do
        key="$status|$text"
        checks=$((checks + 1))
        wrong=$(form "$marks" "$text")
        [ -z "${known[$key]-}" ] || wrong+="${wrong:+, }is in the list twice"
        known[$key]=1
        [ -n "$cause" ] || wrong+="${wrong:+, }has no cause in the list"
        [ -n "${has[$key]-}" ] || wrong+="${wrong:+, }is not in the source"
        [ -z "$wrong" ] && continue
        failures=$((failures + 1))
        echo "tests/errors.txt: ${wrong//$'\n'/, }: $key"
    done < <(list_rows)
    for row in "${rows[@]}"; do
        key=${row%|*}
        [ -z "${known[$key]-}" ] || continue
        known[$key]=1
        checks=$((checks + 1)) failures=$((failures + 1))
        echo "${row##*|}: tests/errors.txt lacks (add it with its cause, or by --write): $key"
    done
}

# The list anew, in the source's order; marks and causes stay.
write() {
    source_rows | awk -F'|' '
        FNR == 1 && NR != 1 { from_source = 1 }
        !from_source && head != "done" { print; if ($0 == "") head = "done"; next }
        !from_source { if (NF > 3) row[$1 FS $3] = $0; next }
        {
            key = $1 FS $2
            file = $3
            sub(/:.*/, "", file)
            if (key in had) next
            if (file != last) print "# " file
            had[key] = 1
            last = file
            print key in row ? row[key] : $1 FS FS $2 FS
        }' tests/errors.txt - >tests/errors.new
    mv tests/errors.new tests/errors.txt
}

# Whether a row's marks excuse that it was not seen.
excused() { # marks, what the build has
    local mark
    for mark in $1; do
        case $mark in
        root) [ "$(id -u)" = 0 ] || return 0 ;;
        no-*) [[ " $2 " == *" ${mark#no-} "* ]] && return 0 ;;
        part) ;;
        *) [[ " $2 " == *" $mark "* && " $2 " != *" refused:$mark "* ]] || return 0 ;;
        esac
    done
    return 1
}

seen() { # what the build has
    local status marks text cause key
    local -A noted=()
    if [ ! -f "${ZERO_ERRORS_SEEN-}" ]; then
        echo "skipped: errors that suites provoke: needs a run of all of them"
        checks=1
        return
    fi
    while read -r key; do
        noted[$key]=1
        noted["ANY|${key#*|}"]=1
    done < <(tail -c +9 "$ZERO_ERRORS_SEEN" | tr -d '\0' | awk -v seen=1 -f "$reader")
    while IFS='|' read -r status marks text cause; do
        [[ $text == "(none: "* ]] && continue
        checks=$((checks + 1))
        key="$status|$text"
        [ -z "${noted[$key]-}" ] || continue
        excused "$marks" "$1" && continue
        failures=$((failures + 1))
        echo "no test provokes: $status: $text ($cause)"
    done < <(list_rows)
}

# ------------------------------------------------------------------ self-test

plant() {
    mkdir -p src offload kernels tests
    cat >src/error.h <<'C'
#define ADVICE " Free some."
C
    cat >src/a.c <<'C'
    return error_set(&e, ZERO_ERR_IO, "It is %" PRId64 " or \"%s\", " /* comment */
                     "not %zu. Use (%d).", f(a, ","), b);
    error_comm(comm, ZERO_ERR_COMM, "Rank %d is gone. Look for it.", 1);
    error_set(e, ZERO_ERR_MEMORY, "No memory." ADVICE);
    error_set(e, other.status, "%s", other.text);
    error_set(e, other.status, "%s %lld: %s", other.text);
    return ZERO_ERR_STATE;
C
    cat >tests/errors.txt <<'C'
# A head.

IO||It is %d or "%s", not %u. Use (%d).|a cause
COMM|MPI|Rank %d is gone. Look for it.|a cause
MEMORY||No memory. Free some.|a cause
ANY|part|%s %d: %s|a cause
STATE||(none: src/a.c)|a cause
C
    printf '12345678%s\n%s\n%s\n' 'ZERO_ERR_IO|It is %ld or "%s", not %zu. Use (%d).' \
        'ZERO_ERR_MEMORY|No memory. Free some.' 'ZERO_ERR_IO|%s %lld: %s' >noted
}

# sed on a file | the report
broken() {
    cat <<'LIST'
tests/errors.txt|/^IO/d|src/a.c:1: tests/errors.txt lacks
tests/errors.txt|/^STATE/d|src/a.c:7: tests/errors.txt lacks
tests/errors.txt|s/^IO/COMM/|is not in the source: COMM|It is
src/a.c|s/No memory/Not enough/|is not in the source: MEMORY|No memory
src/a.c|s/PRId64/PRIx64/|lacks (add it with its cause, or by --write): IO|It is %x
src/error.h|s/ some\././|lacks (add it with its cause, or by --write): MEMORY|No memory. Free.
tests/errors.txt|s/part//|ends without a full stop
tests/errors.txt|s/a cause$//|has no cause
tests/errors.txt|$p|is in the list twice: STATE
src/a.c tests/errors.txt|s/Rank %d is/it is/|does not begin as a sentence
src/a.c tests/errors.txt|s/ Look for it\.//|does not say what to do
LIST
}

unseen() {
    cat <<'LIST'
noted|s/ZERO_ERR_IO/ZERO_ERR_COMM/|no test provokes: IO: It is
noted|/MEMORY/d|no test provokes: MEMORY: No memory
noted|/lld/d|no test provokes: ANY: %s %d: %s
noted|s/MEMORY/&/|no test provokes: COMM: Rank %d
LIST
}

try() { # what to run, its argument, file, sed, report
    local output file
    plant
    for file in $3; do
        sed -i "$4" "$file"
    done
    output=$(checks=0 failures=0 && "$1" "$2" && closing)
    tested=$((tested + 1))
    if [ -z "$5" ]; then
        grep -q '^100%' <<<"$output" && return
    else
        grep -qF -e "$5" <<<"$output" && ! grep -q '^100%' <<<"$output" && return
    fi
    missed=$((missed + 1))
    printf 'after %s on %s, without "%s":\n%s\n' "$4" "$3" "$5" "$output"
}

self_test() {
    local file script report tested=0 missed=0
    export ZERO_ERRORS_SEEN=$scratch/noted
    cd "$scratch" || exit 1
    try check "" src/a.c "" ""
    try seen "" noted "" ""
    try seen "MPI refused:MPI" noted "" ""
    while IFS='|' read -r file script report; do
        try check "" "$file" "$script" "$report"
    done < <(broken)
    while IFS='|' read -r file script report; do
        try seen MPI "$file" "$script" "$report"
    done < <(unseen)
    plant
    sed -i '/^IO/d; s/gone/lost/' tests/errors.txt
    write
    sed -i 's/|$/|new/' tests/errors.txt
    tested=$((tested + 1))
    checks=0 failures=0
    check && [ "$failures" = 0 ] || missed=$((missed + 1))
    checks=$tested failures=$missed
}

case ${1-} in
--self-test) self_test ;;
--seen) seen "${*:2}" ;;
--write) write && exit ;;
*) check ;;
esac
closing
