#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training step of build/gpt2 beside DDP, FSDP2 and DeepSpeed, two ranks with a
# thread each, in turn: tests/bench/train.sh BUILD PYTHON [MODEL... (d6)]
# ROUNDS=3 STEPS=7 of each round and side, MODES='ddp zero3': some peers, DTYPE=bf16 or fp32,
# OURS=--bf16x3: more options of ours, LIMIT=600: seconds that a round of a side may take.
# zero3nvme and zero3pipe have everything in files in TMPDIR, as --offload nvme beside them; of
# those the update alone is compared with `zero bench step` of as many parameters too, in turn. Of
# zero3update and zero3updatepipe (pipelined), whose parameters are in memory, it is all that is
# compared: also of models that are named LAYERSxCHANNELS. PyTorch runs as written, not compiled,
# with its memory in huge pages. Prints
# NAME_peer, NAME_ours (medians of the rounds' medians, seconds, with the range, and the most
# memory of a rank), NAME_ratio = peer / ours, and NAME_memory = ours / peer of that memory.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?the build folder} python=${2:?a Python with torch and deepspeed}
shift 2
[ $# -gt 0 ] || set -- d6
rounds=${ROUNDS:-3} steps=${STEPS:-7} limit=${LIMIT:-600} warm=2
. tests/bench/rows.sh
export DTYPE=${DTYPE:-bf16} TMPDIR=${TMPDIR:-/var/tmp}
export OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu DS_SKIP_CUDA_CHECK=1 MASTER_ADDR=127.0.0.1
export GLOO_SOCKET_IFNAME=lo PATH=${python%/*}:$PATH
export THP_MEM_ALLOC_ENABLE=1 # as ours has

# Which of ours stands beside a peer: what is sharded is the same. DDP's gradients are bf16 where
# its parameters are, and it has no fp32 masters; so ours are bf16, and masters split, there.
ours_of() {
    case $1 in
    ddp) [ "$DTYPE" = bf16 ] && echo narrow || echo 0 ;;
    zero0) echo 0 ;;
    zero1) echo 1 ;;
    zero2) echo 2 ;;
    zero3nvme | zero3pipe) echo files ;;
    *) echo 3 ;;
    esac
}

# Both append to a file: seconds, MiB.
run_peer() { # mode, layers, channels, file
    local line
    line=$(timeout "$limit" "$python" -m torch.distributed.run --nproc-per-node 2 \
        --log-dir "$scratch/torch" --master-port $((20000 + RANDOM % 9000)) \
        tests/bench/train.py "$1" "$2" "$3" "$steps" \
        2>"$scratch/err" | grep "^$1 ")
    rm -rf "$TMPDIR"/zero-peer.*
    [ -n "$line" ] || {
        echo "$1 failed, or took longer than $limit s: $(tail -n 3 "$scratch/err")" >&2
        return 1
    }
    # What it trains must learn: the last loss is below the first.
    [[ $1 == zero3update* ]] || awk '{ exit !($7 < $6) }' <<<"$line" ||
        echo "# $1 does not learn: $line"
    awk '{ print $2, $5, $8, $9 }' <<<"$line" >>"$4"
}

run_ours() { # stage, narrow or files, model, file
    local memory way=(--stage "$1")
    [ "$1" != narrow ] || way=(--stage 0 --state split --grad-dtype bf16)
    [ "$1" != files ] || way=(--stage 3 --offload nvme --nvme-path "$TMPDIR")
    # shellcheck disable=SC2206 # words
    way+=(${OURS-})
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$build/gpt2" --model "$2" --seq 256 --batch 8 \
        --threads 1 --dtype "$DTYPE" "${way[@]}" --steps $((warm + steps)) --sample 0 \
        --log "$scratch/log.csv" >"$scratch/out" 2>"$scratch/err" || {
        echo "gpt2 ${way[*]} failed: $(tail -n 3 "$scratch/err")" >&2
        return 1
    }
    memory=$(awk '/memory \(VmHWM\)/ { m = $(NF - 1); if ($NF == "GiB") m *= 1024
        if (m > most) most = m } END { print most }' "$scratch/out")
    echo "$(log_column step_ms "$scratch/log.csv" | tail -n +$((1 + warm)) | median)e-3 $memory" \
        >>"$3"
}

# "median least most MiB" of a file.
summary() {
    sort -n "$1" | awk '{ t[NR] = $1; if ($2 > m) m = $2 }
        END { if (NR) print t[int((NR + 1) / 2)], t[1], t[NR], m; else exit 1 }'
}

compare() { # mode, model
    local stage name="train_$2_${DTYPE}_$1" peer ours
    stage=$(ours_of "$1")
    peer=$(summary "$scratch/$2.$1") && ours=$(summary "$scratch/$2.stage$stage") || return
    awk -v name="$name" -v stage="$stage" -v peer="$peer" -v ours="$ours" 'BEGIN {
        split(peer, p); split(ours, o)
        printf "%s_peer %.4g s (%.3g-%.3g), %d MiB\n", name, p[1], p[2], p[3], p[4]
        printf "%s_ours %.4g s (%.3g-%.3g), %d MiB, %s\n", name, o[1], o[2], o[3], o[4],
            stage ~ /^[0-9]/ ? "stage " stage : stage }'
    ratio "$name" "${peer%% *}" "${ours%% *}" "$(aim_of "$@")"
    awk -v name="$name" -v peer="${peer##* }" -v ours="${ours##* }" \
        'BEGIN { printf "%s_memory %.3f (aim 1 at most)\n", name, ours / peer }'
}

aim_of() { # mode, model
    [ "$2 $DTYPE" = "d12 bf16" ] && [[ $1 != zero3[np]* ]] && echo 1.15 && return
    echo 1.3
}

has_update() { [[ $1 == zero3[a-z]* ]]; } # mode: in files at least what an update changes

# Our update of as many parameters as the peer's, two ranks: with fp32 masters, with split ones,
# and with 30 % of those in memory. Appends seconds to a file each.
updates=("" "--alone --state split" "--alone --state split --host-share 30")
update_aims() { # parameters: the aims of these three
    [ "$1" -ge 1000000000 ] && echo 1.6 1.9 2.7 || echo 1.8 2.2 3
}
run_updates() { # mode, model
    local count i
    [ -s "$scratch/$2.$1" ] || return
    count=$(awk 'END { print $3 }' "$scratch/$2.$1")
    for i in "${!updates[@]}"; do
        # shellcheck disable=SC2086 # words
        timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$build/zero" bench step --nvme-path "$TMPDIR" \
            --params "$count" ${updates[i]} >"$scratch/step" || return
        # step_24M_whole, step_split_24M_whole and step_split_host30_24M_whole: also what ours
        # reads ahead, as all that the peer reads is in its time.
        awk '/_whole / { ours = $2 } END { print ours }' "$scratch/step" >>"$scratch/$2.$1.$i"
    done
}

# DeepSpeed's update alone beside ours, which were measured in turn.
compare_update() { # mode, model
    local i peer ours aims name names=("" _split _split_host30)
    [ -s "$scratch/$2.$1" ] || return
    peer=$(awk '{ print $4 }' "$scratch/$2.$1" | median)
    read -ra aims <<<"$(update_aims "$(awk 'END { print $3 }' "$scratch/$2.$1")")"
    for i in "${!updates[@]}"; do
        [ -s "$scratch/$2.$1.$i" ] || return
        name=update_$2_$1${names[i]} ours=$(median <"$scratch/$2.$1.$i")
        printf '%s_peer %s s\n%s_ours %s s\n' "$name" "$peer" "$name" "$ours"
        ratio "$name" "$peer" "$ours" "${aims[i]}"
    done
}

read -ra modes <<<"${MODES:-ddp fsdp2 zero0 zero1 zero2 zero3 zero3nvme zero3pipe}"
status=0
# Ours that stand beside those that are compared by more than their update.
mapfile -t stages < <(for mode in "${modes[@]}"; do
    [[ $mode == zero3update* ]] || ours_of "$mode"
done | sort -u)
for model in "$@"; do
    case $model in
    d4) shape="4 256" ;;
    d6) shape="6 384" ;;
    d12) shape="12 768" ;;
    [1-9]*x[1-9]*) shape=${model/x/ } ;;
    *)
        echo "The shape of model $model is not known here. Give d4, d6, d12 or, for" \
            "MODES=zero3update, LAYERSxCHANNELS." >&2
        exit 2
        ;;
    esac
    read -r layers channels <<<"$shape"
    for ((round = 0; round < rounds; round++)); do
        for stage in "${stages[@]}"; do
            run_ours "$stage" "$model" "$scratch/$model.stage$stage" || status=1
        done
        for mode in "${modes[@]}"; do
            run_peer "$mode" "$layers" "$channels" "$scratch/$model.$mode" || status=1
            ! has_update "$mode" || run_updates "$mode" "$model" || status=1
        done
    done
    for mode in "${modes[@]}"; do
        [[ $mode == zero3update* ]] || compare "$mode" "$model" || status=1
        ! has_update "$mode" || compare_update "$mode" "$model" || status=1
    done
done
exit $status
