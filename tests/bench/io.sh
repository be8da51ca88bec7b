#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fio beside the rings of `zero bench io`, in turn on the same disk:
#     tests/bench/io.sh BUILD [FOLDER]
# ROUNDS=3. fio's buffers lie in huge pages where root can set some aside. Prints
# NAME_peer (the best of io_uring and libaio), NAME_ours and NAME_ratio = ours / peer.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?the build folder} folder=${2:-${TMPDIR:-/var/tmp}}
rounds=${ROUNDS:-3} size=1g
if ! command -v fio >/dev/null; then
    echo "There is no fio. Install it (apt-get install fio)." >&2
    exit 1
fi
scratch=$(mktemp -d "$folder/zero-fio.XXXXXX") || exit 1
pages=$(cat /proc/sys/vm/nr_hugepages)
clean() {
    rm -rf "$scratch"
    [ "$memory" = mmap ] || echo "$pages" >/proc/sys/vm/nr_hugepages
}
memory=mmap
trap clean EXIT
if [ -w /proc/sys/vm/nr_hugepages ] && echo $((pages + 128)) >/proc/sys/vm/nr_hugepages; then
    memory=shmhuge
fi
echo "# fio's memory: $memory; folder $folder"

# GB/s of one way of fio, over 2 s: read, write, or both on two halves.
fio_rate() { # engine, kind
    local job=(--ioengine="$1" --direct=1 --bs=4m --iodepth=8 --mem="$memory" --runtime=2
        --time_based --filename="$scratch/file" --output-format=json)
    if [ "$2" = mixed ]; then
        job+=(--name=r --rw=read --size=512m --name=w --rw=write --offset=512m --size=512m)
    else
        job+=(--name=x --rw="$2" --size="$size")
    fi
    fio "${job[@]}" 2>>"$scratch/err" | awk '
        /"bw_bytes"/ { gsub(/[^0-9]/, "", $3); sum += $3 } END { printf "%.4f\n", sum / 1e9 }'
}

# A file that was never written reads far too fast.
fio --name=fill --filename="$scratch/file" --size=$size --rw=write --bs=4m --direct=1 \
    --refill_buffers --end_fsync=1 --output=/dev/null || exit 1
for ((round = 0; round < rounds; round++)); do
    for engine in io_uring libaio; do
        for kind in read write mixed; do
            fio_rate "$engine" "$kind" >>"$scratch/$kind.$engine"
        done
    done
    "$build/zero" bench io --nvme-path "$folder" >"$scratch/out" || exit 1
    for kind in read write mixed; do
        awk -v name="io_${kind}_" '
            index($1, name) == 1 && /_ours / && $2 > best { best = $2 } END { print best }' \
            "$scratch/out" >>"$scratch/$kind.ours"
    done
done
median() {
    sort -n "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)], x[1], x[NR] }'
}
for kind in read write mixed; do
    for engine in io_uring libaio; do echo "$(median "$scratch/$kind.$engine") $engine"; done |
        sort -rn | head -n 1 >"$scratch/peer"
    awk -v name="io_$kind" -v ours="$(median "$scratch/$kind.ours")" '{
        split(ours, o)
        printf "%s_peer %s GB/s (%s-%s), %s\n%s_ours %s GB/s (%s-%s)\n%s_ratio %.3f\n",
            name, $1, $2, $3, $4, name, o[1], o[2], o[3], name, o[1] / $1 }' "$scratch/peer"
done
