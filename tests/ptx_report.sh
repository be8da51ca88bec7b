#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What nvcc makes of the kernels for GPUs:
#     tests/ptx_report.sh BUILD [FOLDER...] | --self-test BUILD
# Compiles the library's and the model's kernels, or those of folders, as BUILD's objects
# are compiled, and prints registers, static shared memory and spills of each on each
# architecture. A warning is an error here, a spill is (before CUDA 13: of more than three
# registers), and in the library so is arithmetic in the PTX that is not rounded to nearest
# operation by operation: contracted, or free to be, approximate, denormals flushed.
# --self-test plants each.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
mode=report
[ "${1-}" != --self-test ] || { mode=self_test && shift; }
stamp=${1:?a build folder}/stamp/NVCC_COMPILE
shift
folders=("$@")
[ $# -gt 0 ] || folders=(kernels/cuda examples/gpt2/cuda)
read -ra compile <"$stamp"
command -v "${compile[0]-}" >/dev/null || { echo "There is no nvcc: set NVCC=." >&2 && exit 1; }
spill_most=0 # bytes
! "${compile[0]}" --version | grep -q 'release 1[0-2]\.' || spill_most=32

# Leaves PTX and the assembler's words, of each architecture, in the scratch folder.
translate() { # file, options...
    rm -rf "$scratch/kept" && mkdir "$scratch/kept"
    "${compile[@]}" -Werror all-warnings -Xcompiler -Werror "${@:2}" -Xptxas -v --keep \
        --keep-dir "$scratch/kept" -c "$1" -o "$scratch/object" >"$scratch/log" 2>&1
}

# One line for each kernel: architecture, registers, shared memory, spilled bytes, name.
kernels() {
    awk 'function before(unit) { # the number that stands there
             return match($0, "[0-9]+ " unit) ? substr($0, RSTART) + 0 : 0
         }
         /Compiling entry function/ {
             match($0, /\x27[^\x27]*\x27/)
             name = substr($0, RSTART + 1, RLENGTH - 2)
             arch = $NF
             gsub(/\x27/, "", arch)
         }
         /spill stores/ { spilled = before("bytes spill stores") + before("bytes spill loads") }
         /Used [0-9]+ registers/ {
             print arch, before("registers"), before("bytes smem"), spilled, name
         }' "$scratch/log" |
        c++filt | sort |
        sed 's/unsigned short/u16/g; s/ void / /; s/([^()]*)$//; s/, /,/g; s/> >/>>/g'
}

# Lines of the PTX that do not round each operation to nearest.
inexact() {
    grep -HnE -e '\.(ftz|approx|full)\b' -e '\bfma\.' -e '\bmad\.[a-z.]*f(32|64)' \
        -e '\b(add|sub|mul|div|sqrt)\.(f32|f64)' -e '\.r[zmp]\.f(32|64)' "$scratch"/kept/*.ptx |
        sed 's|.*/kept/||'
}

report() {
    local file line spilled count
    printf '%-7s %9s %7s %8s  %s\n' arch registers shared spilled kernel
    for file in $(printf '%s/*.cu ' "${folders[@]}"); do
        translate "$file"
        verdict $? "$file does not compile: $(tail -n 3 "$scratch/log")"
        kernels >"$scratch/kernels"
        while read -r line; do
            # shellcheck disable=SC2086 # words
            printf '%-7s %9s %7s %8s  %s\n' $line
        done <"$scratch/kernels"
        count=$(wc -l <"$scratch/kernels")
        spilled=$(awk '{ sum += $4 } END { print sum + 0 }' "$scratch/kernels")
        [ "$count" -gt 0 ] && [ "$spilled" -le "$spill_most" ]
        verdict $? "$file has $count kernels, which spill $spilled bytes"
        [[ $file == kernels/* ]] || continue # losses and gradients are their kernels' own
        inexact >"$scratch/inexact"
        [ ! -s "$scratch/inexact" ]
        verdict $? "$file: not exact: $(head -n 3 "$scratch/inexact")"
    done
    closing
}

# defect | options | the line that has it
planted() {
    cat <<'LIST'
fma|-fmad=true|    a[0] = a[1] * a[2] + a[3];
approx||    a[0] = __fdividef(a[1], a[2]);
sin||    a[0] = __sinf(a[1]);
ftz|-ftz=true|    a[0] = __fmul_rn(a[1], a[2]);
zero||    a[0] = __fadd_rz(a[1], a[2]);
double|-fmad=true|    *(double *)a = *(double *)(a + 2) * a[4] + a[5];
none||    a[0] = __fadd_rn(__fmul_rn(a[1], a[2]), __fdiv_rn(a[3], __fsqrt_rn(a[4])));
spill|-maxrregcount=24|    float x[40]; EACH x[i] = a[i * n]; EACH a[i] = x[39 - i] - x[i];
LIST
}

self_test() {
    local defect options line found word once=()
    for word in "${compile[@]}"; do # one architecture is enough
        [[ $word == -gencode || $word == arch=* ]] || once+=("$word")
    done
    compile=("${once[@]}" -arch=sm_80)
    while IFS='|' read -r defect options line; do
        printf '#define EACH _Pragma("unroll") for (int i = 0; i < 40; i++)\n%s\n{\n%s\n}\n' \
            '__global__ void kernel(float *a, int n)' "$line" >"$scratch/planted.cu"
        # shellcheck disable=SC2086 # options
        translate "$scratch/planted.cu" $options
        verdict $? "$defect does not compile: $(tail -n 3 "$scratch/log")"
        found=$(inexact)$(kernels | awk '$4 { print "spill" }')
        [ -n "$found" ] || found=none
        { [ "$defect" = none ] && [ "$found" = none ]; } ||
            { [ "$defect" = spill ] && [[ $found == spill* ]]; } ||
            { [ "$defect" != none ] && [ "$defect" != spill ] && [[ $found == *.ptx:* ]]; }
        verdict $? "$defect: found $found"
    done < <(planted)
    closing
}

$mode
