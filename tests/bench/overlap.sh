#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How much of the files' time hides behind compute: tests/bench/overlap.sh BUILD [GPT2 OPTIONS]
#
# Two ranks train a model small enough to rest in memory, in turn there and with all of it in
# files. The runs in memory tell what forward and backward take alone, `zero bench step` what
# the disk moves in a second, reads and writes together. A step that hides what can be hidden
# takes
#
#   max(backward + max(forward, I/O (1 - s)), I/O)
#
# since what lies in slots (s: its part of the state) is read during backward and written when
# nobody waits for it, and the rest of the update runs behind the next forward. Prints that
# (limit), what a step took (ours) and the share; as "overlap_read" the same with I/O (1 - s / 2)
# in place of I/O (1 - s), which hides the reading of s alone, and of which 1 / 1.1 is the aim;
# how busy each lane of the engine was, and CPU seconds. The digests of all runs must agree.
# THROTTLE=300 lets the drive read and write so many MB/s each (as root, with cgroup v1's blkio),
# THROTTLE=auto so many that I/O takes as long as compute. SLOTS=64 and ROUNDS=3 may be set;
# TRACE=FILE keeps the last run's trace, of which tests/bench/picture.py makes a picture.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${1:?"give the build folder: tests/bench/overlap.sh BUILD [GPT2 OPTIONS]"}
shift
slots=${SLOTS:-64} rounds=${ROUNDS:-3} folder=${TMPDIR:-/var/tmp}
options=(--stage 3 --model d12 --seq 256 --batch 1 --steps 8 --sample 0 --slots "$slots" "$@")
. tests/bench/rows.sh

run() { # name, further options: rows of its steps to NAME.csv, digest to digests
    local name=$1
    shift
    timeout -k 5 600 "${launcher[@]}" -n 2 "$build/gpt2" "${options[@]}" "$@" \
        --log "$scratch/log" >"$scratch/out.$name" || exit 1
    tail -n 1 "$scratch/out.$name" >>"$scratch/digests"
    keep_rows "$name"
}

value() { # name of the runs, column: its median
    log_column "$2" "$scratch/$1.csv" | median
}

# MB/s at which what a step reads takes as long as forward and backward.
equal_rate() {
    run memory --offload none
    run files --offload nvme --nvme-path "$folder"
    awk -v forward="$(value memory forward_ms)" -v backward="$(value memory backward_ms)" \
        -v bytes="$(value files read_bytes)" \
        'BEGIN { printf "%.0f", bytes / 1e3 / (forward + backward) }'
    rm "$scratch"/{memory,files}.csv
}

if [ -n "${THROTTLE-}" ]; then
    trap 'throttle_end; rm -rf "$scratch"' EXIT
    throttle_possible || exit 1
    [ "$THROTTLE" != auto ] || THROTTLE=$(equal_rate) || exit 1
    echo "# the drive reads and writes $THROTTLE MB/s each"
    throttle "$(lsblk -nro MAJ:MIN "$(findmnt -nvo SOURCE -T "$folder")")" "$THROTTLE" || exit 1
fi
rate=$(disk_rate "$build" "$folder")
[ -n "$rate" ] || exit 1 # it has said why
for ((r = 0; r < rounds; r++)); do
    run memory --offload none
    run files --offload nvme --nvme-path "$folder" ${TRACE:+--trace "$TRACE"}
done
same_digests "$scratch/digests"

# The part of the state that lies in slots.
part=$("${launcher[@]}" -n 2 "$build/gpt2" "${options[@]}" --offload nvme --plan |
    awk -v slots="$slots" '/chunks? of state/ {
        for (i = 2; i <= NF; i++) if ($i ~ /^chunks?$/) chunks = $(i - 1)
        print (slots < chunks ? slots / chunks : 1)
    }')
[ -n "$part" ] || exit 1
read -r limit read_alone < <(awk -v forward="$(value memory forward_ms)" \
    -v backward="$(value memory backward_ms)" \
    -v rate="$rate" -v bytes="$(value files read_bytes)" -v written="$(value files written_bytes)" \
    -v waited="$(value files wait_ms)" -v part="$part" -v notes="$scratch/notes" '
function larger(a, b) { return a > b ? a : b }
function step(rest) { return larger(backward + larger(forward, io * rest), io) }
BEGIN {
    io = 1e3 * (bytes + written) / rate
    printf "# forward %.0f, backward %.0f ms; in files %.2f GB a step, %.0f ms at %.3f GB/s; " \
        "%.2f of the state in slots; waited %.0f ms; one after the other: %.4g s\n", forward,
        backward, (bytes + written) / 1e9, io, rate / 1e9, part, waited,
        (forward + backward + io) / 1e3 >notes
    print step(1 - part) / 1e3, step(1 - part / 2) / 1e3
}')
cat "$scratch/notes"
# Rank 0's engine in the last run in files, and whether its threads took compute's CPUs.
sed -n '/^engine lanes/,/^CPU time/s/^/# /p' "$scratch/out.files"
ours=$(log_column step_ms "$scratch/files.csv" | spread)
seconds overlap "$limit" "$ours"
seconds overlap_read "$read_alone" "$ours" 0.909
