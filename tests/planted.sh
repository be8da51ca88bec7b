#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whether a tool reports what is ours and nothing else:
#     tests/planted.sh address|thread|valgrind BUILD [PLAIN]
#     tests/planted.sh cuda BUILD
# Programs of BUILD, which was built for that tool, run on two MPI ranks, or one
# without mpirun: tests/planted with each defect the tool is for, which it must
# name, and without one; with PLAIN also gpt2 with its state in files, which must
# come to the digest that PLAIN/gpt2 comes to. cuda is the tool for order on a GPU,
# TSan with the CUDA runtime for tests: BUILD is built for threads, and the program is
# tests/planted_cuda, alone.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
. tests/support/sanitizers.sh
tool=${1:?address, thread, valgrind or cuda}
build=${2:?a build folder}
plain=${3-}
program=planted
ranks=2
if [ "$tool" = cuda ]; then
    program=planted_cuda
    ranks=1
else
    have_ranks $ranks "$tool on several ranks" || ranks=1
fi
prefix=()
[ "$tool" != valgrind ] || prefix=(tests/valgrind.sh)

# tool | defect | its report | the function that it must name
planted() {
    cat <<'LIST'
address|leak|LeakSanitizer: detected memory leaks|lose
address|overflow|AddressSanitizer: heap-buffer-overflow|write_beyond
address|sum|runtime error: signed integer overflow|planted.c
thread|race|ThreadSanitizer: data race|count
valgrind|leak|definitely lost|lose
valgrind|overflow|Invalid write of size 4|write_beyond
valgrind|unset|Conditional jump or move depends on uninitialised value|look_at_nothing
cuda|wait|ThreadSanitizer: data race|forget_the_wait
cuda|synchronise|ThreadSanitizer: data race|read_too_early
cuda|source|ThreadSanitizer: data race|reuse_the_source
cuda|event|ThreadSanitizer: data race|record_too_early
cuda|free|ThreadSanitizer: data race|free_too_early
cuda|pageable|ThreadSanitizer: data race|trust_pageable
cuda|nccl|ThreadSanitizer: data race|gather_too_early
cuda|wait late|ThreadSanitizer: data race|forget_the_wait
cuda|synchronise late|ThreadSanitizer: data race|read_too_early
cuda|source late|ThreadSanitizer: data race|reuse_the_source
cuda|event late|ThreadSanitizer: data race|record_too_early
cuda|free late|ThreadSanitizer: data race|free_too_early
cuda|pageable late|ThreadSanitizer: data race|trust_pageable
cuda|nccl late|ThreadSanitizer: data race|gather_too_early
cuda|wait early|ThreadSanitizer: data race|forget_the_wait
cuda|synchronise early|ThreadSanitizer: data race|read_too_early
cuda|source early|ThreadSanitizer: data race|reuse_the_source
cuda|event early|ThreadSanitizer: data race|record_too_early
cuda|free early|ThreadSanitizer: data race|free_too_early
cuda|pageable early|ThreadSanitizer: data race|trust_pageable
cuda|nccl early|ThreadSanitizer: data race|gather_too_early
LIST
}

run() { # program, arguments...
    if [ $ranks = 1 ]; then
        timeout -k 5 240 "${prefix[@]}" "$@" >"$scratch/log" 2>&1 </dev/null
    else
        timeout -k 5 240 "${launcher[@]}" -n $ranks "${prefix[@]}" "$@" >"$scratch/log" 2>&1 \
            </dev/null
    fi
}

# Ends with 0 when the last run failed with a report of that kind.
reported() { # status, report, function
    [ "$1" != 0 ] && grep -q -- "$2" "$scratch/log" && grep -q -- "$3" "$scratch/log"
}

while IFS='|' read -r whose defect report function; do
    [ "$whose" = "$tool" ] || continue
    # shellcheck disable=SC2086 # one word or two
    run "$build/tests/$program" $defect
    reported $? "$report" "$function"
    verdict $? "a planted defect, $defect, is not reported as '$report' in $function"
done < <(planted)
[ $checks != 0 ]
verdict $? "for a tool of the name $tool nothing is planted"

run "$build/tests/$program" none
status=$?
verdict $status "a run without a defect is reported"
[ $status = 0 ] || tail -n 60 "$scratch/log"

[ -n "$plain" ] || { closing && exit; exit 1; }
job=(--stage 3 --offload nvme --layers 2 --channels 64 --heads 2 --seq 32 --batch 2 --steps 4
    --eval-every 2 --sample 8 --chunk 4096 --data README.md)
run "$build/gpt2" "${job[@]}"
status=$?
verdict $status "gpt2 fails, or is reported"
[ $status = 0 ] || tail -n 60 "$scratch/log"
digest=$(grep '^digest ' "$scratch/log")
prefix=()
run "$plain/gpt2" "${job[@]}"
[ -n "$digest" ] && [ "$digest" = "$(grep '^digest ' "$scratch/log")" ]
verdict $? "gpt2 comes to '$digest', and elsewhere to '$(grep '^digest ' "$scratch/log")'"
closing
