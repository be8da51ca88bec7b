#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests of a machine with a GPU: tests/gpu/check.sh [--fakes] BUILD
# Kernels, devices, stages and places on the real runtime, ranks that share a GPU, faults,
# compute-sanitizer where it is installed, memscale, and every program that BUILD/tests has as
# NAME_on_gpu. A suite that has passed is remembered in RESULTS (BUILD/gpu) until its program
# changes, none begins after LIMIT seconds, and one that began late and was stopped a sixth of that
# later is left, so that what is cut off goes on where it was. ONLY='NAME...' takes some.
# --fakes: the same programs over the runtime for tests, where there is no GPU.
# Status: 0 all have passed, 1 one failed, 75 some are left (run it again), 77 there is no GPU.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
what=gpu mode=
case ${1-} in
--fakes) what=fakes && shift ;;
--suite) mode=$2 what=$3 && shift 3 ;;
esac
build=$(realpath "${1:?"give the build folder: tests/gpu/check.sh BUILD"}") || exit 1
limit=${LIMIT:-360} only=${ONLY-}
late=$((limit / 20 + 2)) # seconds after which a suite has less time than one that comes first
export ZERO_CUDA_PLUGIN=$build/libzero_cuda.so GPT2_CUDA_PLUGIN=$build/gpt2_cuda.so
if [ "$what" = fakes ]; then # one file is both, since both must see the same GPUs
    ZERO_CUDA_PLUGIN=$build/tests/fake/gpt2_cuda.so GPT2_CUDA_PLUGIN=$ZERO_CUDA_PLUGIN
fi

. tests/gpu/common.sh
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')

# ------------------------------------------------- suites that are not one program
# Planned and measured memory of a GPU: they differ by what CUDA rounds to, and where ranks have
# GPUs of their own by NCCL's buffers, which no plan counts. Fakes are each process's own, so that
# of two ranks on one half is seen.
scale() {
    local rows=$scratch/rows.csv wrong ranks sizes="d4 d6" seen=1 least=25 more
    [ "$what" = gpu ] || sizes=d4 least=13
    for ranks in 1 2; do
        have_ranks $ranks "memscale on $ranks ranks" || continue
        local launch=()
        [ "$ranks" = 1 ] || launch=("${launcher[@]}" -n "$ranks")
        # shellcheck disable=SC2086 # words
        within 120 "${launch[@]}" "$build/memscale" --device cuda --model $sizes \
            --steps 2 --nvme-path "$scratch" --csv "$rows" >"$scratch/out" 2>&1
        verdict $? "memscale on $ranks ranks failed: $(cat "$scratch/out")"
        cat "$scratch/out"
        [ "$what" = gpu ] || seen=$ranks
        more=$((8 << 20))
        [ "$what$ranks" != gpu2 ] || [ "$gpus" -lt 2 ] || more=$((1 << 30))
        wrong=$(awk -F, -v seen=$seen -v least=$least -v more=$more '
            NR > 1 && ($15 != 1 || seen * $9 > $8 + more || seen * $9 + 65536 < $8) {
                print $1 "," $2 "," $3 ": " $9 " measured of " $8 " " $17 }
            END { if (NR < least) print NR - 1 " rows" }' "$rows")
        [ -z "$wrong" ]
        verdict $? "memscale on $ranks ranks: $wrong"
    done
}

# The trainer, where it computes on GPUs: one digest, wherever what rests.
trainer() {
    local options=(--device cuda --steps 4 --batch 2 --sample 0 --data LICENSE --quiet
        --nvme-path "$scratch") one row ranks stage place
    [ "$what" = gpu ] || options+=(--layers 2 --channels 64 --seq 32)
    one=$("$build/gpt2" "${options[@]}" --accumulate 2 2>"$scratch/err")
    [[ $one == digest* ]]
    verdict $? "gpt2 --device cuda: $one $(cat "$scratch/err")"
    for row in "1 0 cpu" "1 3 none" "1 3 cpu" "1 3 nvme" "2 0 none" "2 1 cpu" "2 3 nvme"; do
        read -r ranks stage place <<<"$row"
        have_ranks "$ranks" "gpt2 on $ranks ranks" || continue
        local launch=() digest
        [ "$ranks" = 1 ] || launch=("${launcher[@]}" -n "$ranks")
        digest=$("${launch[@]}" "$build/gpt2" "${options[@]}" --accumulate $((2 / ranks)) \
            --stage "$stage" --offload "$place" 2>"$scratch/err")
        [ "$digest" = "$one" ]
        verdict $? "gpt2, $row: $digest, not $one $(cat "$scratch/err")"
    done
}

# Every result is checked before it is timed; here nothing but that counts.
benched() {
    "$build/tests/gpu_bench_on_$what" --quick >"$scratch/out" 2>&1
    verdict $? "the bench: $(tail -n 2 "$scratch/out")"
    [ "$(grep -c '_share [0-9.]*$' "$scratch/out")" = 15 ] &&
        [ "$(grep -c '^fixed_.* us$' "$scratch/out")" = 8 ]
    verdict $? "the bench has other lines: $(cat "$scratch/out")"
}

if [ -n "$mode" ]; then
    . tests/support/verdicts.sh
    $mode
    closing
    exit
fi

# ------------------------------------------------------------------- all of them
# NAME|command of tests/run.sh|files it depends on; in the order of their worth.
# Calls that fail are the suites' own to judge: a query that finds a stream busy is one, too.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
counts="--report-api-errors no --error-exitcode 9"
# Ranks that take turns on one GPU: some of the places.
sample="ZERO_TEST_SHORT=1 "
[ "$gpus" -lt 2 ] || sample=
suites() {
    local program name n tool kernels=
    for program in "$build"/tests/cuda_kernels_on_"$what" "$build"/tests/*_on_"$what"; do
        [ -x "$program" ] || continue
        name=${program##*/} && name=${name%_on_*}
        case $name in
        gpu_bench) ;;
        *ranks)
            for n in 2 3; do echo "${name}_$n|$sample$n@$program|$program"; done
            ;;
        cuda_kernels)
            [ -n "$kernels" ] || echo "$name|$program|$program"
            kernels=named
            ;;
        *) echo "$name|$program|$program" ;;
        esac
    done
    echo "plugin|$build/tests/plugin_test|$build/tests/plugin_test $ZERO_CUDA_PLUGIN"
    echo "bench|tests/gpu/check.sh --suite benched $what $build|$build/tests/gpu_bench_on_$what"
    echo "memscale|tests/gpu/check.sh --suite scale $what $build|$build/memscale $ZERO_CUDA_PLUGIN"
    if "$build/gpt2" --help | grep -q '^ *--device .*cuda'; then
        echo "gpt2|tests/gpu/check.sh --suite trainer $what $build|$build/gpt2 \
$ZERO_CUDA_PLUGIN $GPT2_CUDA_PLUGIN"
    fi
    [ "$what" = gpu ] && [ -n "$sanitizer" ] || return 0
    for tool in memcheck racecheck synccheck; do
        for name in cuda_kernels gpt2_kernels; do
            program=$build/tests/${name}_on_gpu
            [ -x "$program" ] || continue
            echo "${tool}_$name|CK_FORK=no CK_DEFAULT_TIMEOUT=0 $sanitizer --tool $tool \
$counts $program|$program"
        done
    done
    program=$build/tests/cuda_on_gpu
    echo "memcheck_cuda|CK_FORK=no ZERO_TEST_SHORT=1 CK_RUN_CASE=law $sanitizer --tool memcheck \
$counts $program|$program"
}

if [ "$what" = gpu ]; then
    hold_gpus
    find_gpu "No test was run"
    echo "GPU ${found#*|}"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
fi

passed=() failed=() left=() names=" " began=$SECONDS
memory=${RESULTS:-$build/gpu}/passed_on_$what
mkdir -p "${memory%/*}" || exit 1
while IFS='|' read -r name suite depends; do
    names+="$name "
    [ -z "$only" ] || [[ " $only " == *" $name "* ]] || continue
    # shellcheck disable=SC2086 # several
    mark="$(cat $depends | cksum)${ZERO_TEST_SHORT:+ short}"
    begins=$((SECONDS - began)) && room=$((limit + limit / 6 - begins))
    if grep -qsxF "$name $mark" "$memory"; then
        passed+=("$name (earlier)")
    elif [ $begins -ge "$limit" ]; then
        left+=("$name")
    elif ONLY='' TIMEOUT=$room tests/run.sh "$suite"; then
        echo "$name $mark" >>"$memory"
        passed+=("$name")
    elif [ $begins -ge "$late" ] && [ $((SECONDS - began - begins)) -ge "$room" ]; then
        left+=("$name (stopped after $room s)")
    else
        failed+=("$name")
    fi
done < <(suites)
for name in $only; do
    [[ $names == *" $name "* ]] || failed+=("$name: there is no such suite here")
done

on="on the GPU"
[ "$what" = gpu ] || on="on fakes, which tells nothing of GPUs"
printf 'passed %s: %d\n' "$on" ${#passed[@]}
[ ${#passed[@]} = 0 ] || printf '  %s\n' "${passed[@]}"
[ ${#failed[@]} = 0 ] || printf 'FAILED: %s\n' "${failed[@]}"
[ ${#left[@]} = 0 ] || printf 'left, run it again: %s\n' "${left[@]}"
[ -n "$sanitizer" ] || [ "$what" = fakes ] || echo "skipped: compute-sanitizer is not installed"
[[ -n $only || $names == *" gpu_ranks_2 "* ]] ||
    echo "skipped: ranks that share a GPU, which a build without MPI cannot start"
[[ -n $only || $names == *" gpt2 "* ]] ||
    echo "skipped: gpt2 on GPUs, which a build without cuBLAS lacks"
[ ${#failed[@]} = 0 ] || exit 1
[ ${#left[@]} = 0 ] || exit 75
