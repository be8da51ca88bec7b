#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What half an hour with a GPU is for: tests/gpu/half_hour.sh bits|speed|rest|files
# Commands of nine minutes at most, in the order of their worth: the kernels' bits and rates;
# gpt2's; ranks, devices and compute-sanitizer; gpt2 with its state in files. Each begins with the
# build, two minutes where nothing of it was kept, and leaves what it finds in RESULTS
# (build/gpu), also where it is cut off; given again it goes on. It takes build-bundle where that
# is, and cuBLAS and NCCL from PyTorch's packages where the toolkit lacks them.
# FAKE_GPU=1 QUICK=1: that it runs.
set -u -o pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
case ${1-} in
bits | speed | rest | files) ;;
*) sed -n '3,9s/^# //p' tests/gpu/half_hour.sh && exit 2 ;;
esac
RESULTS=$(realpath -m "${RESULTS:-build/gpu}")
export RESULTS
mkdir -p "$RESULTS" || exit 1
if [ -z "${UNDER_WAY-}" ]; then
    export UNDER_WAY=1
    timeout -k 10 "${MOST:-540}" tests/gpu/half_hour.sh "$1" 2>&1 | tee -a "$RESULTS/$1.log"
    exit
fi

options=()
[ ! -d build-bundle ] || PATH=$PWD/build-bundle/bin:$PATH options+=(BUNDLE=build-bundle)
headers="-isystem ${CUDA_HOME:-/usr/local/cuda}/include"

# A library that the build does not find, from Python's packages.
wheel() { # its name in make's report, variable, header, library
    local from header library
    [[ $report == *"✗ $1"* ]] || return
    from=$(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null) || return
    # shellcheck disable=SC2086 # folders
    header=$(find $from -name "$3" | head -n 1) library=$(find $from -name "$4" | head -n 1)
    [ -n "$header" ] && [ -n "$library" ] || return
    headers+=" -isystem ${header%/*}"
    options+=("$2=-L${library%/*} -Wl,-rpath,${library%/*} -l:${library##*/}")
}

m() { make "${options[@]}" "$@"; }
status=0
part() { m "$@" || status=$?; } # the others are run all the same

# Where the attention kernels' time goes, two layers of gpt2-xl's; the clocks are left alone.
profile() {
    local ncu b=$PWD/${BUILD:-build}
    ncu=$(command -v ncu || ls /usr/local/cuda/bin/ncu 2>/dev/null) || return
    export ZERO_CUDA_PLUGIN=$b/libzero_cuda.so GPT2_CUDA_PLUGIN=$b/gpt2_cuda.so
    timeout --foreground 120 "$ncu" --clock-control none -k regex:attention -c 8 \
        --section SpeedOfLight --section Occupancy --section WarpStateStats \
        --section MemoryWorkloadAnalysis \
        "$b/gpt2" --device cuda --data LICENSE --sample 0 --layers 2 --channels 1600 --heads 25 \
        --seq 1024 --batch 8 --steps 1 >"$RESULTS/ncu" 2>&1
    echo "ncu: status $?, $(grep -c 'Duration' "$RESULTS/ncu") kernels in $RESULTS/ncu"
}

nvidia-smi
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
[ -z "$arch" ] || options+=(CUDA_ARCH="${arch/./}")
report=$(m report)
wheel cuBLAS CUBLAS_LIBS cublasLt.h 'libcublasLt.so.*'
wheel NCCL NCCL_LIBS nccl.h 'libnccl.so.*'
[[ "${options[*]-}" != *_LIBS=* ]] || options+=(CUDA_CFLAGS="$headers")
m report
m -j"$(nproc)" gpu-programs || exit
echo "built: $SECONDS s"
case $1 in
bits)
    part check-gpu LIMIT=240 ONLY='cuda_kernels gpt2_kernels gpu_model gpu_faults'
    part bench-gpu ONLY='kernels copies units'
    ;;
speed)
    part bench-gpu ONLY=gpt2 ROWS=1,8
    profile
    part bench-gpu ONLY=gpt2 ROWS=9,18
    part bench-gpu ONLY='memory timeline peer'
    ;;
rest)
    suites="cuda gpu_ranks_2 gpu_ranks_3 memscale"
    if command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer; then
        for name in cuda_kernels gpt2_kernels; do suites+=" memcheck_$name racecheck_$name"; done
    fi >/dev/null 2>&1
    ZERO_TEST_SHORT=1 part check-gpu LIMIT=330 ONLY="$suites"
    ;;
files) part bench-gpu ONLY=gpt2 ROWS=19,26 ;;
esac
exit $status
