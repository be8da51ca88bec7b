#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program on GPUs, which are fake: tests/gpu_model.sh BUILD
# BUILD/tests/fake/gpt2_cuda.so is both plugins over them, so that gpt2 --device cuda runs
# to its end: losses near the CPU's, the same digest at every stage, place and number of
# ranks, memory as planned; and what is said where plugin, driver or GPU are missing.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:?"give the build: tests/gpu_model.sh BUILD"}") || exit 1
. tests/support/verdicts.sh

fake=$build/tests/fake/gpt2_cuda.so
small="--layers 2 --channels 32 --heads 2 --seq 24 --batch 2 --steps 3 --lr 1e-2 --sample 20
    --eval-every 2 --data LICENSE --nvme-path $scratch"

run() { # name, ranks, options: the output is in out.NAME, the rows in csv.NAME
    local launch=() options name=$1 status
    [ "$2" = 1 ] || launch=("${launcher[@]}" -n "$2")
    read -rd '' -a options <<<"$small ${*:3}"
    ZERO_CUDA_PLUGIN=$fake GPT2_CUDA_PLUGIN=$fake timeout -k 5 100 "${launch[@]}" "$build/gpt2" \
        "${options[@]}" --log "$scratch/csv.$name" >"$scratch/out.$name" 2>"$scratch/err.$name"
    status=$?
    [ "$status" = 0 ] && ! grep -q 'fake CUDA' "$scratch/err.$name"
    verdict $? "$name ended with status $status: $(cat "$scratch/err.$name")"
}

digest() {
    tail -n 1 "$scratch/out.$1"
}

# The losses of two runs, held-out ones too, differ by at most so much.
near() { # name, name, difference
    paste -d, "$scratch/csv.$1" "$scratch/csv.$2" | awk -F, -v most="$3" '
        NR > 1 { rows++; if (($2 - $17) ^ 2 > most ^ 2 || ($7 - $22) ^ 2 > most ^ 2) far++ }
        END { exit !(rows == 3 && !far) }'
    verdict $? "losses of $1 and $2 are not within $3: $(cut -d, -f 2,7 "$scratch/csv.$1" |
        paste -sd' ') and $(cut -d, -f 2,7 "$scratch/csv.$2" | paste -sd' ')"
}

says() { # name, what its output has
    grep -qE -- "$2" "$scratch/out.$1"
    verdict $? "$1 does not print '$2': $(cat "$scratch/out.$1")"
}

same() { # name, name
    [[ "$(digest "$1")" = "$(digest "$2")" && "$(digest "$1")" == digest* ]]
    verdict $? "$1 and $2 come to $(digest "$1") and $(digest "$2")"
}

trains() {
    run cpu 1 --dtype fp32 --accumulate 2
    run gpu 1 --device cuda --dtype fp32 --accumulate 2
    near cpu gpu 1e-4
    says gpu '^rank 0 computes on GPU 0 of 1, fake GPU 0; products by cuBLASLt 13.0.0, TF32 off$'
    says gpu 'the program.s own memory on the device: activations, scratch and workspace [0-9]'
    says gpu 'compute: the GPU .* large products alone$'
    says gpu '^  \(48, 32\) x \(32, 96\), fp32 to fp32 with bias: [0-9]+ times by algorithm'
    says gpu '^sample of 20 bytes'
    run gpu-bf16 1 --device cuda --accumulate 2 --trace "$scratch/trace"
    near cpu gpu-bf16 2e-2
    run tf32 1 --device cuda --dtype fp32 --tf32 --accumulate 2
    near gpu tf32 2e-3
    [ "$(digest gpu)" != "$(digest tf32)" ]
    verdict $? "--tf32 changes nothing"
    run offload 1 --device cuda --dtype fp32 --accumulate 2 --stage 3 --offload nvme --recompute
    same gpu offload
    run alone 1 --device cuda --dtype fp32 --accumulate 2 --reduction nccl
    same gpu alone
    have_ranks 2 "gpt2 on two GPUs" || return 0
    run ranks 2 --device cuda --dtype fp32 --stage 3 --offload cpu
    same gpu ranks
    [ ! -s "$scratch/err.ranks" ]
    verdict $? "two ranks on one GPU are told: $(cat "$scratch/err.ranks")"
    may_read || return 0
    ZERO_FAKE_GPUS=2 run kinds 2 --device cuda --dtype fp32 --stage 3 --offload cpu
    same gpu kinds
    [ "$(grep -c '^rank 0: some ranks have another kind of GPU .*(GPU 0 of 2, fake GPU 0, cuBLAS' \
        "$scratch/err.kinds")" = 1 ]
    verdict $? "two kinds of GPUs are not told: $(cat "$scratch/err.kinds")"
}

plans() { # what --plan says where there is neither GPU nor plugin is what a run does
    local options
    read -rd '' -a options <<<"$small"
    GPT2_CUDA_PLUGIN=/nowhere "$build/gpt2" "${options[@]}" --device cuda --dtype fp32 \
        --accumulate 2 --plan >"$scratch/plan" 2>&1
    verdict $? "--plan failed: $(cat "$scratch/plan")"
    sed -n '/^plan of rank 0/,/^  each step/p' "$scratch/out.gpu" >"$scratch/run"
    [ -s "$scratch/run" ] && sed -n '/^plan of rank 0/,/^  each step/p' "$scratch/plan" |
        diff - "$scratch/run" >"$scratch/diff"
    verdict $? "--plan and the run differ: $(cat "$scratch/diff")"
    grep -q "^  an update's seconds are not predicted: the state is in the GPU's" "$scratch/plan"
    verdict $? "--plan of state on a GPU: $(tail -n 1 "$scratch/plan")"
    options+=(--device cuda --offload cpu --plan)
    GPT2_CUDA_PLUGIN=/nowhere "$build/gpt2" "${options[@]}" 2>&1 |
        grep -q '^  an update by itself: .* s (memory'
    verdict $? "--plan of state in host memory predicts nothing"
}

refuses() { # ranks, status, sentence, options; the environment is the caller's
    local launch=() options status
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    read -rd '' -a options <<<"$small ${*:4}"
    timeout -k 5 60 "${launch[@]}" "$build/gpt2" "${options[@]}" >"$scratch/out" 2>"$scratch/err"
    status=$?
    [ "$status" = "$2" ] && [ "$(grep -cF -- "$3" "$scratch/err")" = "$1" ]
    verdict $? "not on all of $1 ranks '$3', but, with status $status: $(cat "$scratch/err")"
}

explains() {
    local ranks=1 other=$build/tests/other/gpt2_cuda.so
    have_ranks 2 "what two ranks say without a plugin" && ranks=2
    GPT2_CUDA_PLUGIN=/nowhere/x.so refuses $ranks 1 \
        "The plugin for --device cuda cannot be opened: /nowhere/x.so: " --device cuda
    GPT2_CUDA_PLUGIN=libm.so.6 refuses 1 1 "libm.so.6 is no plugin of gpt2. Name gpt2_cuda.so" \
        --device cuda
    GPT2_CUDA_PLUGIN=$other refuses 1 1 ", built from other sources than this program, " \
        --device cuda
    ZERO_CUDA_PLUGIN=/nowhere GPT2_CUDA_PLUGIN=$fake refuses 1 1 \
        "The CUDA plugin that ZERO_CUDA_PLUGIN names cannot be opened" --device cuda
    refuses 1 2 "--tf32 is for products of fp32 on a GPU, but --device is cuda and --dtype bf16." \
        --device cuda --tf32
    refuses 1 2 "--reduction nccl is for gradients on GPUs, but --device is cpu." --reduction nccl
    [ $ranks = 1 ] || ZERO_CUDA_PLUGIN=$fake GPT2_CUDA_PLUGIN=$fake refuses 2 1 \
        "NCCL cannot add gradients up: ranks 0 and 1 share a GPU. Give each rank a GPU" \
        --device cuda --reduction nccl
    refuses 1 2 "--heads 1 have 300 channels each, but on a GPU at most 256 are possible." \
        --device cuda --heads 1 --channels 300
    if [ ! -f "$build/gpt2_cuda.so" ]; then
        echo "skipped: the real plugin: needs the CUDA toolkit, and no sanitizer"
    elif [ ! -e /dev/nvidiactl ]; then
        refuses 1 1 "No GPU can be used: " --device cuda
    fi
}

if "$build/gpt2" --help | grep -q '^  --device '; then
    trains
    plans
    explains
else
    echo "skipped: gpt2 on GPUs: this build has no cuBLAS"
    refuses 1 1 "The plugin for --device cuda cannot be opened: " --device cuda
fi
closing
