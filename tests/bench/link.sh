#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How much of a slow link's time hides behind compute: tests/bench/link.sh BUILD [GPT2 OPTIONS]
#
# Two ranks train at stage 3, in turn through memory and through the loopback of a network
# namespace of their own that passes RATE (10) Gbit/s, both directions together. A step that
# hides what it can takes as long as the longer of its bytes at that rate and a step through
# memory with the CPU seconds that TCP takes of a rank's core besides, which no order of work
# hides. Prints that (limit), what a step took over the link (ours), and the share; and what
# all would take one after the other. The digests of all runs must agree. As root, with
# iproute2 for tc. --batch and --seq choose how long compute takes; ROUNDS=3 may be set.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${1:?"give the build folder: tests/bench/link.sh BUILD [GPT2 OPTIONS]"}
shift
rate=${RATE:-10} rounds=${ROUNDS:-3}
options=(--stage 3 --model d12 --seq 64 --batch 1 --steps 8 --sample 0 "$@")
. tests/bench/rows.sh
if [ "$(id -u)" != 0 ] || ! command -v tc >/dev/null; then
    echo "A link of its own needs root and tc (apt-get install iproute2)." >&2
    exit 1
fi

limited() { # a command, in a namespace whose loopback is the link
    # shellcheck disable=SC2016
    unshare -n bash -c 'ip link set lo up && tc qdisc add dev lo root tbf rate "$0"gbit burst 1mb \
        latency 50ms && exec "$@"' "$rate" "$@"
}

run() { # name, then what runs gpt2: rows of its steps to NAME.csv, digest and bytes
    local name=$1 TIMEFORMAT='%U %S'
    shift
    { time "$@" -n 2 "$build/gpt2" "${options[@]}" --log "$scratch/log" >"$scratch/out" \
        2>"$scratch/err"; } 2>>"$scratch/$name.cpu" || { cat "$scratch/err" >&2 && exit 1; }
    tail -n 1 "$scratch/out" >>"$scratch/digests"
    keep_rows "$name"
}

for ((r = 0; r < rounds; r++)); do
    run memory timeout -k 5 600 "${launcher[@]}"
    run link limited timeout -k 5 600 "${launcher[@]}" --mca btl self,tcp \
        --mca btl_tcp_if_include lo
done
same_digests "$scratch/digests"

# "sent to other ranks  68.5 MiB", of all ranks and steps.
bytes=$(awk '/sent to other ranks/ {
    print $(NF - 1) * ($NF == "GiB" ? 1073741824 : 1048576)
}' "$scratch/out")
steps=$(tail -n +2 "$scratch/log" | wc -l)
compute=$(log_column step_ms "$scratch/memory.csv" | median)
cpu() { # name of the runs: CPU seconds of one
    awk '{ print $1 + $2 }' "$scratch/$1.cpu" | median
}
awk -v compute="$compute" -v bytes="$bytes" -v steps="$steps" -v rate="$rate" \
    -v memory="$(cpu memory)" -v link="$(cpu link)" -v notes="$scratch/notes" 'BEGIN {
    tcp = link > memory ? 1e3 * (link - memory) / steps / 2 : 0
    link = 1e3 * bytes / steps / (rate * 1e9 / 8)
    printf "# through memory %.0f ms; %.1f MB a step, %.0f ms on the link, for which each rank " \
        "computes %.0f ms; one after the other: %.4g s\n", compute, bytes / steps / 1e6, link, tcp,
        (compute + link + tcp) / 1e3 >notes
    print (compute + tcp > link ? compute + tcp : link) / 1e3
}' >"$scratch/limit"
cat "$scratch/notes"
seconds link "$(cat "$scratch/limit")" "$(log_column step_ms "$scratch/link.csv" | spread)"
