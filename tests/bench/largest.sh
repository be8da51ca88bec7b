#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The largest model that trains a step here: tests/bench/largest.sh BUILD [LAYERS]
#
# Two ranks, stage 3, everything in files, split state, bf16 gradients at rest, recompute,
# blocks of 2048 channels: 50.4 million parameters a layer. LAYERS is by default what the free
# disk holds less 2 GB (12 bytes a parameter) and memory allows (2.7 bytes a parameter).
# Prints parameters, the seconds of the second step against those that its bytes take at the
# rate of reads and writes together (the mean of before and after) and its matrix products at
# their best rate, and the peak of all ranks' memory in bytes a parameter.
# It takes a quarter of an hour or more, and nearly all of the disk while it runs.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${1:?"give the build folder: tests/bench/largest.sh BUILD [LAYERS]"}
folder=${TMPDIR:-/var/tmp}
. tests/bench/rows.sh

disk=$(($(stat -f -c '%a * %S' "$folder")))
memory=$(awk '/^MemAvailable/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
layers=${2:-$(awk -v disk="$disk" -v memory="$memory" 'BEGIN {
    most = (disk - 2e9) / 12
    most = memory / 2.7 < most ? memory / 2.7 : most
    print int((most - 1e6) / 50.36e6)
}')}
options=(--layers "$layers" --channels 2048 --heads 32 --seq 256 --batch 1 --stage 3 --offload nvme
    --state split --grad-dtype bf16 --recompute --steps 2 --lr 1e-5 --sample 0
    --nvme-path "$folder")

echo "# $layers layers of 2048 channels; $((disk / 1000000000)) GB of disk, \
$((memory / 1000000000)) GB of memory"
before=$(disk_rate "$build" "$folder" 2G) # of files that no cache below holds
"${launcher[@]}" -n 2 "$build/gpt2" "${options[@]}" --log "$scratch/log" | tee "$scratch/out"
[ "${PIPESTATUS[0]}" = 0 ] || exit 1
after=$(disk_rate "$build" "$folder" 2G)
[ -n "$before" ] && [ -n "$after" ] || exit 1 # it has said why

awk '/^model .* parameters/ {
    for (i = 2; i <= NF; i++) if ($i ~ /^(million|billion)$/)
        params = $(i - 1) * ($i == "million" ? 1e6 : 1e9)
}
/memory \(VmHWM\)/ { peak += $(NF - 1) * ($NF == "GiB" ? 1073741824 : 1048576) }
END {
    printf "largest_params %.4g\nlargest_memory %.3g bytes/parameter\n", params, peak / params
}' "$scratch/out"
# Of the second step, which waits for the update of the first and is as all that would follow:
# what all ranks read and wrote, gathers included, and rank 0's products at the rate of its
# probe, one after the other.
{ log_column read_bytes "$scratch/log" && log_column written_bytes "$scratch/log"; } |
    awk -v before="$before" -v after="$after" -v out="$scratch/out" -v notes="$scratch/notes" '
    function gflops(x, unit) { return unit ~ /^T/ ? 1e3 * x : x }
    NR % 2 == 0 { bytes += $1 }
    END {
        rate = (before + after) / 2
        while ((getline line <out) > 0) {
            split(line, f)
            if (line ~ /compute: matrix products/)
                products = gflops(f[4], f[5]) * f[10] / gflops(f[6], f[7])
        }
        printf "# %.0f GB at %.3g GB/s: %.0f s; products at the rate of the probe: %.0f s\n",
            bytes / 1e9, rate / 1e9, bytes / rate, products >notes
        print bytes / rate + products
    }' >"$scratch/limit"
cat "$scratch/notes"
seconds largest "$(cat "$scratch/limit")" "$(log_column step_ms "$scratch/log" | tail -1)e-3" 0.833
