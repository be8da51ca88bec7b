#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Holds the tree to its style: tests/check_style.sh [--self-test]
# Counts what can be counted, prints each violation as file:line and the lengths
# of functions and files per folder. What a compiler or a reader judges better is
# not its business. --self-test plants one violation of each rule elsewhere.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
rules=$PWD/tests/check_style.awk

# Whatever people write, except prose and data.
sources() {
    find Makefile .ci src include offload kernels examples tests jobs -type f 2>/dev/null |
        grep -E '\.(c|h|cu|cuh|cpp|sh|awk|mk|py|sbatch|env)$|^Makefile$|^\.ci/run$' | sort
}

check() {
    local files
    mapfile -t files < <(sources)
    awk -f "$rules" "${files[@]}"
}

# file | the lines planted behind the SPDX line (printf's escapes) | the report
planted() {
    cat <<'LIST'
src/columns.c|// %0100d\n|src/columns.c:2: a line of 103 columns
src/trailing.c|int a; \n|src/trailing.c:2: blanks
src/marker.c|// T%.0sODO: more\n|src/marker.c:2: a marker
src/hack.h|// H%.0sACK\n|src/hack.h:2: a marker
src/interim.c|// good for%.0s now\n|src/interim.c:2: words
src/tab.c|\tint a;\n|src/tab.c:2: a tab
src/typedef.c|typedef struct a b;\n|src/typedef.c:2: a typedef
src/brace.c|int f(void) {\n    return 1;\n}\n|src/brace.c:2: a body
src/function.c|int g;\n\nint f(int a,\n      int b)\n{\n@67 return;\n}\n|src/function.c:4: a func
src/file.c|@800 int a;\n|src/file.c:800: a file of 801
LIST
}

# Prints an SPDX line and a planted text: "@N line" stands for N times that line.
plant() {
    local text
    echo "// SPDX-License-Identifier: Apache-2.0"
    # shellcheck disable=SC2059 # the text is a format
    text=$(printf "$1" 0)
    awk '/^@/ { n = substr($1, 2); sub(/^@[0-9]+ /, ""); while (n-- > 0) print; next } 1' <<<"$text"
}

self_test() {
    local file text expected output checks=0 failures=0
    cd "$scratch" && mkdir -p src kernels/cpu kernels/cuda || exit 1
    while IFS='|' read -r file text expected; do
        plant "$text" >"$file"
    done < <(planted)
    echo "int a;" >src/spdx.c
    # Not violations: a long kernel; a long table; wide characters; mkstemp's XXXXXX; a vendor's
    # names.
    plant 'int f(void)\n{\n@80 return;\n}\n' >kernels/cpu/good.c
    plant 'static const int t[] = {\n@90 1,\n};\n\nchar n[] = "/tmp/a-XXXXXX";\n' >src/good.c
    printf '// %s\n' "$(printf 'é%.0s' {1..90})" >>src/good.c
    plant 'typedef enum a b;\n' >kernels/cuda/runtime.h

    output=$(check)
    while read -r expected; do
        checks=$((checks + 1))
        grep -qF "$expected" <<<"$output" && continue
        failures=$((failures + 1))
        echo "not reported: $expected"
    done < <(planted | cut -d'|' -f3 && echo "src/spdx.c:1: no SPDX line" && echo "Failures: 10")
    checks=$((checks + 1))
    if grep -e 'good\.c' -e runtime <<<"$output"; then
        failures=$((failures + 1))
    fi
    closing
}

if [ "${1-}" = --self-test ]; then
    self_test
else
    check
fi
