#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Holds includes to tests/layers.txt: tests/check_layers.sh [--self-test]
# It looks at what a file includes itself, not at what that brings along.
# --self-test plants includes that the table refuses in a tree elsewhere.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
rules=$PWD/tests/check_layers.awk
table=$PWD/tests/layers.txt

check() {
    local files
    mapfile -t files < <(find include src offload kernels examples tests -type f 2>/dev/null |
        grep -E '\.(c|h|cu|cuh|cpp)$' | sort)
    awk -f "$rules" "$table" "${files[@]}"
}

# file | what it includes; the first are refused, the last are not
refused() {
    cat <<'LIST'
include/zero.h|"src/error.h"
kernels/a.c|"src/layout.h"
kernels/cpu/a.c|"offload/arena.h"
kernels/cuda/a.cu|<cuda_runtime_api.h>
offload/a.c|"src/comm/comm.h"
offload/b.c|"src/device/device.h"
offload/c.c|<liburing.h>
offload/d.c|"ring.h"
src/plan.c|"src/engine.h"
src/device/a.c|"src/comm/comm.h"
src/comm/a.c|<mpi.h>
src/a.c|"offload/ring_core.h"
src/b.c|"tests/support/deny.h"
src/c.c|"kernels/cpu/cpu.h"
src/d.c|<check.h>
src/e.c|<cblas.h>
examples/common/a.c|"examples/gpt2/model.h"
examples/gpt2/a.c|"src/engine.h"
LIST
}
granted() {
    cat <<'LIST'
include/zero_mpi.h|<mpi.h>
kernels/cuda/runtime.h|<cuda_runtime_api.h>
offload/uring.c|<liburing.h>
src/f.c|"src/f.h"
src/g.c|<sys/mman.h> // maps
tests/a_test.c|"src/engine.h"
LIST
}

self_test() {
    local file header output checks=2 failures=0
    cd "$scratch" || exit 1
    while IFS='|' read -r file header; do
        mkdir -p "${file%/*}"
        echo "#include $header" >>"$file"
    done < <(refused && granted)
    mkdir -p examples/new && echo >examples/new/a.c

    output=$(check)
    while IFS='|' read -r file header; do
        checks=$((checks + 1))
        grep -qF "$file:1: ${header//\"/} is not for" <<<"$output" && continue
        failures=$((failures + 1))
        echo "not reported: $file $header"
    done < <(refused)
    while IFS='|' read -r file header; do
        checks=$((checks + 1))
        grep -F "$file:" <<<"$output" || continue
        failures=$((failures + 1))
    done < <(granted)
    grep -q '^examples/new/a.c:1: no line' <<<"$output" || failures=$((failures + 1))
    grep -q 'no file fits examples/quickstart.c' <<<"$output" || failures=$((failures + 1))
    closing
}

if [ "${1-}" = --self-test ]; then
    self_test
else
    check
fi
