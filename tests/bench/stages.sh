#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What sharding costs where nothing needs it: tests/bench/stages.sh BUILD [GPT2 OPTIONS]
#
# Two ranks train d6 on 8192 tokens a rank and step, in turn at stage 0 and at stage 3, in
# bf16 and in fp32. Prints the medians of a step at stage 0 (limit) and 3 (ours), and the
# share; 1 / 1.05 is the aim. The digests of a dtype's runs must agree.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${1:?"give the build folder: tests/bench/stages.sh BUILD [GPT2 OPTIONS]"}
shift
options=(--model d6 --seq 256 --batch 32 --steps 3 --sample 0 "$@")
rounds=${ROUNDS:-3}
. tests/bench/rows.sh

run() { # dtype, stage: milliseconds of its steps but the first, digest to digests
    timeout -k 5 900 "${launcher[@]}" -n 2 "$build/gpt2" "${options[@]}" --dtype "$1" --stage "$2" \
        --quiet --log "$scratch/log" >>"$scratch/digests" || exit 1
    log_column step_ms "$scratch/log" | tail -n +2 >>"$scratch/stage$2"
}

for dtype in bf16 fp32; do
    rm -f "$scratch"/{digests,stage0,stage3}
    for ((r = 0; r < rounds; r++)); do
        run $dtype 0
        run $dtype 3
    done
    same_digests "$scratch/digests"
    seconds "stages_$dtype" "$(spread <"$scratch/stage0")" "$(spread <"$scratch/stage3")" 0.952
done
