#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fio beside the rings of `zero bench io`, in turn on the same disk:
#     tests/bench/io.sh BUILD [FOLDER]
# ROUNDS=3. fio's buffers lie in huge pages where root can set some aside, and it takes the
# fastest of its ways: io_uring or libaio, blocks of 1 to 4 MiB, 4 to 32 of them at once. Prints
# NAME_peer, NAME_ours, NAME_ratio = ours / peer, and NAME_cpu_ratio, of CPU seconds a GB.
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

# One way of fio, for so many seconds: "GB/s, CPU seconds a GB"; both is two jobs on two halves.
fio_pass() { # engine, kind, block, depth, seconds
    local job=(--ioengine="$1" --direct=1 --bs="$3" --iodepth="$4" --mem="$memory" --runtime="$5"
        --time_based --filename="$scratch/file" --output-format=json)
    if [ "$2" = mixed ]; then
        job+=(--name=r --rw=read --size=512m --name=w --rw=write --offset=512m --size=512m)
    else
        job+=(--name=x --rw="$2" --size="$size")
    fi
    fio "${job[@]}" 2>>"$scratch/err" | awk '
        /"bw_bytes"/ { gsub(/[^0-9]/, "", $3); rate += $3 / 1e9 }
        /"usr_cpu"|"sys_cpu"/ { gsub(/[^0-9.]/, "", $3); cpu += $3 / 100 }
        END { printf "%.4f %.5f\n", rate, rate ? cpu / rate : 0 }'
}

# The fastest way of a kind: "engine block depth".
fio_best() { # kind
    local engine block depth
    for engine in io_uring libaio; do
        for block in 1m 2m 4m; do
            for depth in 4 8 16 32; do
                echo "$(fio_pass "$engine" "$1" "$block" "$depth" 1) $engine $block $depth"
            done
        done
    done | sort -g | awk 'END { print $3, $4, $5 }'
}

# A file that was never written reads far too fast.
fio --name=fill --filename="$scratch/file" --size=$size --rw=write --bs=4m --direct=1 \
    --refill_buffers --end_fsync=1 --output=/dev/null || exit 1
for kind in read write mixed; do
    fio_best "$kind" >"$scratch/$kind.best"
done
for ((round = 0; round < rounds; round++)); do
    for kind in read write mixed; do
        read -r engine block depth <"$scratch/$kind.best"
        fio_pass "$engine" "$kind" "$block" "$depth" 2 >>"$scratch/$kind.peer"
    done
    "$build/zero" bench io --nvme-path "$folder" >"$scratch/out" || exit 1
    for kind in read write mixed; do
        for ring in uring posix; do
            awk -v name="io_${kind}_$ring" '
                $1 == name "_ours" { rate = $2 } $1 == name "_cpu" { cpu = $2 }
                END { if (rate) print rate, cpu }' "$scratch/out" >>"$scratch/$kind.$ring"
        done
    done
done

median() { # file, column: "median least most"
    sort -gk "$2" "$1" | awk -v c="$2" '{ x[NR] = $c }
        END { print x[int((NR + 1) / 2)], x[1], x[NR] }'
}
for kind in read write mixed; do
    for ring in uring posix; do
        [ -s "$scratch/$kind.$ring" ] || continue
        awk -v name="io_${kind}_$ring" -v way="$(cat "$scratch/$kind.best")" \
            -v peer="$(median "$scratch/$kind.peer" 1) $(median "$scratch/$kind.peer" 2)" \
            -v ours="$(median "$scratch/$kind.$ring" 1) $(median "$scratch/$kind.$ring" 2)" 'BEGIN {
            split(peer, p)
            split(ours, o)
            printf "%s_peer %s GB/s (%s-%s), %s s/GB, %s\n", name, p[1], p[2], p[3], p[4], way
            printf "%s_ours %s GB/s (%s-%s), %s s/GB\n", name, o[1], o[2], o[3], o[4]
            printf "%s_ratio %.3f\n%s_cpu_ratio %.3f\n", name, o[1] / p[1], name, o[4] / p[4] }'
    done
done
