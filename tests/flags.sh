#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No flag of a user's changes bits: tests/flags.sh
# The arithmetic's objects are the same whatever CFLAGS says of reordering, of NaN and of FMA, and
# -Ofast is refused. Make it run by: make check ONLY=flags.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh

objects=(kernels/cpu/scalar kernels/cpu/avx2 kernels/cpu/avx512 kernels/cpu/neon src/norm
    examples/gpt2/rows_scalar)

build() { # folder, flags
    local file names=()
    for file in "${objects[@]}"; do
        case $file-$(uname -m) in
        */avx*-x86_64 | */neon-aarch64 | */scalar-* | src/* | examples/*)
            names+=("$scratch/$1/obj/$file.o")
            ;;
        esac
    done
    make --no-print-directory MPI=0 URING=0 XXHASH=0 CUDA=0 BUILD="$scratch/$1" CFLAGS="$2" \
        "${names[@]}" >"$scratch/out" 2>&1
}

build plain "-O3 -march=native"
verdict $? "CFLAGS=-O3: $(tail -n 3 "$scratch/out")"
build fast "-O3 -march=native -funsafe-math-optimizations -ffinite-math-only -ffp-contract=fast"
verdict $? "CFLAGS with flags that change results: $(tail -n 3 "$scratch/out")"
differ=$(diff -rq "$scratch/plain/obj" "$scratch/fast/obj" --exclude='*.d')
[ -z "$differ" ] && [ "$(find "$scratch/plain/obj" -name '*.o' | wc -l)" -ge 3 ]
verdict $? "flags change what is compiled: $differ"
! build refused -Ofast && grep -qx 'CFLAGS has -Ofast, which changes results. Leave it out.' \
    "$scratch/out"
verdict $? "CFLAGS=-Ofast is not refused: $(tail -n 3 "$scratch/out")"
closing
