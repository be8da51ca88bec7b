#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One process for each GPU and no MPI: tests/processes.sh BUILD
# Ranks that have torchrun's variables reach each other by TCP, and units go by NCCL, on GPUs and
# an NCCL that are fake. gpt2: the digest of one process at every stage and place; a rank that dies,
# one whose NCCL fails and one with other options end all ranks with a sentence each. memscale:
# its rows.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:?"give the build: tests/processes.sh BUILD"}") || exit 1
. tests/support/verdicts.sh

fake=$build/tests/fake/gpt2_cuda.so
port=$((20000 + $$ % 12000))
mkdir "$scratch/files"
export ZERO_CUDA_PLUGIN=$fake GPT2_CUDA_PLUGIN=$fake ZERO_FAKE_GPU_ALIKE=1
read -rd '' -a small <<<"--layers 2 --channels 32 --heads 2 --seq 24 --batch 1 --lr 1e-2 --sample 0
    --dtype fp32 --device cuda --data LICENSE --nvme-path $scratch/files"
program=("$build/gpt2" "${small[@]}")
pids=()

one() { # rank, ranks, options: becomes that rank
    RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=localhost \
        MASTER_PORT=$port ZERO_FAKE_GPUS=$2 \
        exec timeout -k 5 100 "${program[@]}" "${@:3}" \
        >"$scratch/out.$1" 2>"$scratch/err.$1" </dev/null
}

# All ranks begin; what rank 1 alone is given stands in own.
own=()
begin() { # ranks, options
    local rank options
    port=$((port + 20))
    pids=()
    for rank in $(seq 0 $(($1 - 1))); do
        options=("${@:2}")
        [ "$rank" != 1 ] || options+=("${own[@]}")
        rm -f "$scratch/out.$rank" # of another run, whose steps these are not
        one "$rank" "$1" "${options[@]}" &
        pids+=($!)
    done
}

# The ranks' exit statuses are in "statuses".
ended() {
    local pid
    statuses=
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null
        statuses+="$? "
    done
}

said() { # ranks
    local rank
    for rank in $(seq 0 $(($1 - 1))); do
        sed "s/^/$rank| /" "$scratch/err.$rank"
    done
}

alone() {
    ZERO_FAKE_GPUS=1 "$build/gpt2" "${small[@]}" --steps 3 --accumulate 4 --quiet \
        >"$scratch/alone" 2>&1
    [[ $(cat "$scratch/alone") == digest* ]]
    verdict $? "one process: $(cat "$scratch/alone")"
}

equal() { # ranks
    local name stage place digest rank
    for stage in 0 1 2 3; do
        for place in none cpu nvme; do
            name="$1 processes, stage $stage, $place"
            begin "$1" --steps 3 --accumulate $((4 / $1)) --stage $stage --offload $place
            ended
            [[ $statuses =~ ^(0 )+$ ]] && ! said "$1" | grep -q 'fake\|host memory'
            verdict $? "$name ended with $statuses: $(said "$1")"
            digest=$(tail -n 1 "$scratch/out.0")
            [ "$digest" = "$(cat "$scratch/alone")" ]
            verdict $? "$name came to $digest, one process to $(cat "$scratch/alone")"
        done
    done
    for rank in $(seq 0 $(($1 - 1))); do
        cat "$scratch/out.$rank"
    done | grep -q "^rank 0 computes on GPU 0 of $1, "
    verdict $? "rank 0 does not tell its GPU: $(cat "$scratch/out.0")"
}

# Ranks but the one that was hit end by themselves, with one sentence each, and leave nothing.
all_end() { # name, ranks, rank that says nothing or -1, pattern
    local rank wrong="0|124"
    ended
    [ "$3" != -1 ] || wrong+="|137"
    ! [[ " $statuses" =~ \ ($wrong)\  ]]
    verdict $? "$1: ended with $statuses"
    for rank in $(seq 0 $(($2 - 1))); do
        [ "$rank" != "$3" ] || continue
        [ "$(grep -c "^rank $rank: " "$scratch/err.$rank")" = 1 ] &&
            grep -qE "^rank $rank: $4" "$scratch/err.$rank"
        verdict $? "$1: rank $rank says: $(cat "$scratch/err.$rank")"
    done
    [ -z "$(ls -A "$scratch/files")" ]
    verdict $? "$1: it left $(ls -A "$scratch/files")"
}

killed() { # ranks, rank
    begin "$1" --steps 1000000 --stage 3 --offload nvme --deadline 20
    for _ in $(seq 300); do
        grep -qs '^step [0-9]' "$scratch/out.0" && break
        sleep 0.1
    done
    # What timeout has started.
    kill -KILL "$(grep -lsx "PPid:[[:space:]]*${pids[$2]}" /proc/[0-9]*/status | tr -dc 0-9)"
    # By the channel beside NCCL, by NCCL, or from one who has heard of it.
    all_end "rank $2 of $1 is killed" "$1" "$2" \
        "(.*[Rr]ank $2 |.*Look for (its|another rank.s) own error)"
}

fails() {
    local nth
    for nth in 1 3 8 40; do
        begin_failing "$nth"
        all_end "NCCL's call $nth fails on rank 1" 2 -1 ".*"
        grep -q '^rank 1: .*NCCL failed to ' "$scratch/err.1"
        verdict $? "NCCL's call $nth: rank 1 says $(cat "$scratch/err.1")"
    done
}

begin_failing() { # call
    port=$((port + 20))
    one 0 2 --steps 20 --stage 3 --deadline 20 &
    pids=($!)
    ZERO_FAKE_NCCL_FAILS=$1 one 1 2 --steps 20 --stage 3 --deadline 20 &
    pids+=($!)
}

differ() {
    own=(--stage 2)
    begin 2 --steps 3 --stage 3 --deadline 20
    all_end "ranks of other stages" 2 -1 "Ranks differ in \.stage: "
    own=()
}

# Between its engines, too, ranks meet without MPI; each sees its own fake alone.
scaling() { # ranks
    local name="memscale, $1 processes" rows=$scratch/rows.csv wrong
    program=("$build/memscale" --device cuda --model d4 --steps 1 --nvme-path "$scratch/files")
    ZERO_CUDA_PLUGIN=$build/tests/fake/libzero_cuda.so
    begin "$1" --csv "$rows"
    ended
    [[ $statuses =~ ^(0 )+$ ]]
    verdict $? "$name ended with $statuses: $(said "$1")"
    wrong=$(awk -F, -v ranks="$1" 'NR > 1 && ($15 != 1 || $7 != ranks || $9 < $8) {
        print $1 "," $2 ": " $7 " ranks, " $9 " measured, " $8 " planned, " $17 }' "$rows")
    [ -z "$wrong" ] && [ "$(wc -l <"$rows")" = 13 ]
    verdict $? "$name: $wrong"
    own=(--stage 2)
    begin "$1" --stage 3 --deadline 20
    all_end "memscale: other options" "$1" -1 "The ranks were not given the same options"
    own=()
}

alone
if may_read; then
    equal 2
    equal 4
    killed 2 1
    killed 2 0
    killed 4 2
    fails
    differ
    scaling 2
fi
closing
