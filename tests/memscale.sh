#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The memory-scaling test: tests/memscale.sh BUILD
# Every configuration has its row; what is measured is what was planned, by zero plan
# as well; what does not fit or fails is said, and the test goes on; the largest model is one
# that fits, and the next one does not; wrong options get one sentence. Make it run
# by: make check ONLY=memscale.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=${1:?"give the build folder: tests/memscale.sh BUILD"}
. tests/support/verdicts.sh
unset ZERO_DEVICE_MEMORY ZERO_PROBE SLURM_TMPDIR
mkdir "$scratch/files"
rows=$scratch/rows.csv plot=$scratch/plot.svg site=$(uring_refused "$build")
through=() # a command that runs memscale

run() { # ranks, options
    local launch=() status
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    rm -f "$rows" "$plot"
    timeout -k 5 120 "${launch[@]}" "${through[@]}" "$build/memscale" --steps 1 \
        --nvme-path "$scratch/files" "${@:2}" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
    without_mpirun "$scratch/err"
    without_site "$scratch/err"
    return $status
}

field() { # "stage,offload,model", name of a column
    awk -F, -v row="$1" -v name="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
        $1 "," $2 "," $3 == row { print $at }' "$rows"
}

# Rows that are not one for each stage, place and model, or whose figures differ: a page
# of 2 MiB in memory, on the host the engine's tables and threads, a block in files.
rows_wrong() { # ranks, models
    awk -F, -v ranks="$1" -v models="$2" '
        function differ(place, planned, measured, over) {
            if (measured < planned || measured > planned + over)
                print $1 "," $2 "," $3 ": " place " has " measured ", planned " planned
        }
        NR == 1 { next }
        { seen[$1 "," $2 "," $3]++ }
        $7 != ranks { print $7 " ranks" }
        $15 != 1 { print $1 "," $2 "," $3 " does not fit: " $17; next }
        $8 <= 0 || $14 <= 0 { print $1 "," $2 "," $3 ": no device, or no time" }
        ($10 > 0) != ($2 != "none") { print $1 "," $2 "," $3 ": host memory is planned " $10 }
        ($12 > 0) != ($2 == "nvme") { print $1 "," $2 "," $3 ": files are planned " $12 }
        {
            differ("device", $8, $9, 2097152)
            differ("host", $10, $11, 2097152 + 3145728)
            differ("nvme", $12, $13, 65536)
        }
        END {
            n = split(models, model, " ")
            for (stage = 0; stage < 4; stage++)
                for (i = split("none cpu nvme", place, " "); i > 0; i--)
                    for (k = 1; k <= n; k++)
                        if (seen[stage "," place[i] "," model[k]] != 1)
                            print "no row, or several: " stage "," place[i] "," model[k]
            if (NR != 1 + 12 * n) print NR - 1 " rows"
        }' "$rows"
}

# The plan of the program that computes it from the same shape.
plans_differ() { # ranks, model, options
    "$build/zero" plan --model "$2" --ranks "$1" --csv "${@:3}" >"$scratch/plan.csv" ||
        echo "zero plan ended with $?"
    awk -F, -v model="$2" '
        FNR == 1 { next }
        FNR == NR { planned[$1 "," $2] = $3 "," $4 "," $5; next }
        $3 == model && planned[$1 "," $2] != $8 "," $10 "," $12 {
            print $1 "," $2 ": " $8 "," $10 "," $12 ", zero plan: " planned[$1 "," $2]
        }' "$scratch/plan.csv" "$rows"
}

well_formed() { # what, marks and crosses that it has at least
    local marks
    if command -v xmllint >/dev/null; then
        xmllint --noout "$plot" 2>"$scratch/err"
        verdict $? "$1: the plot is not XML: $(head -n 2 "$scratch/err")"
    fi
    marks=$(grep -c 'class="mark"\|m-3.5 -3.5l7 7m0 -7l-7 7' "$plot")
    [ "$marks" -ge "$2" ] && ! grep -qiE '[" ,](-?nan|-?inf)' "$plot"
    verdict $? "$1: the plot has $marks marks, or one without a place"
}

sweep() { # ranks
    local name="$1 ranks, all stages and places" wrong
    have_ranks "$1" "$name" || return
    run "$1" --model d4 d6 --csv "$rows" --svg "$plot"
    verdict $? "$name failed: $(cat "$scratch/err")"
    wrong=$(rows_wrong "$1" "d4 d6")
    [ -z "$wrong" ]
    verdict $? "$name: $wrong"
    wrong=$(plans_differ "$1" d6)
    [ -z "$wrong" ]
    verdict $? "$name: $wrong"
    [ "$(grep -cE '^ +[0-3] (none|cpu|nvme) +d[46] ' "$scratch/out")" = 24 ]
    verdict $? "$name: the table has other rows: $(cat "$scratch/out")"
    [ -z "$(ls -A "$scratch/files")" ]
    verdict $? "$name: it left $(ls -A "$scratch/files")"
    # 24 on the device, 16 on the host, 8 in files; and four of the legend.
    well_formed "$name" 52
    other_formats "$1" --state split --grad-dtype bf16 --slots 3
}

other_formats() { # ranks, options
    local wrong
    run "$1" --model d4 --stage 3 --threads 1 --csv "$rows" "${@:2}"
    verdict $? "$*: failed: $(cat "$scratch/err")"
    wrong=$(plans_differ "$1" d4 "${@:2}")
    [ -z "$wrong" ] && [ "$(wc -l <"$rows")" = 4 ]
    verdict $? "$*: $wrong, or not three rows: $(cat "$rows")"
    [[ $(plans_differ "$1" d4) = *", zero plan: "* ]]
    verdict $? "$*: the plan is as without these"
}

# By NCCL units take more of the GPU and none of the host's memory: limits count that.
between_gpus() {
    local name="the largest between GPUs" all=(--find-largest --device cuda --device-memory 20M
        --host-memory 1M --stage 3 --offload none --channels 128 --chunk 64K)
    ZERO_FAKE_GPUS=2 run 2 "${all[@]}" --csv "$rows"
    verdict $? "$name failed: $(cat "$scratch/err")"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { bytes = $at["device_planned"]; fits = $at["fits"] }
        END { exit !(NR == 2 && fits == 1 && bytes > 19e6 && bytes <= 20971520) }' "$rows"
    verdict $? "$name: $(cat "$rows")"
}

# The table's columns stand below each other, however small or large the model.
aligned() {
    run 1 --layers 1 --channels 1 --stage 0 3
    verdict $? "a model of one channel failed: $(cat "$scratch/err")"
    [ "$(awk '/^stage|^ +[03] [cn]/ { print length }' "$scratch/out" | uniq | wc -l)" = 1 ] &&
        grep -q '^    0 none    1x1            0\.5K ' "$scratch/out"
    verdict $? "a model of one channel: $(cat "$scratch/out")"
    run 1 --layers 10000 --channels 1 --stage 0 --offload none
    verdict $? "a list of 120002 tensors is taken for what an engine leaves: $(cat "$scratch/err")"
    run 1 --layers 10000 --channels 65536 --stage 0 --offload none --svg "$plot"
    grep -q '^    0 none    10000x65536 515\.40T  does not fit: ' "$scratch/out" &&
        grep -q '>500T</text>' "$plot" && grep -q '>1000T</text>' "$plot"
    verdict $? "a model of 10000 layers: $(cat "$scratch/out" && grep 'T</text>' "$plot")"
}

# A device that holds d6 at some stages and places only, given in both ways.
too_small() { # ranks
    local name="$1 ranks, a device of 100 MiB" fits
    have_ranks "$1" "$name" || return
    run "$1" --model d6 --stage 0 3 --offload none cpu --device-memory 100M --csv "$rows" \
        --svg "$plot"
    verdict $? "$name failed: $(cat "$scratch/err")"
    fits=$(field 0,none,d6 fits)$(field 0,cpu,d6 fits)$(field 3,none,d6 fits)$(field 3,cpu,d6 fits)
    [ "$fits" = 0101 ]
    verdict $? "$name: at stages 0 and 3, places none and cpu, it fits $fits"
    grep -qE '^ +0 none +d6 .* does not fit: device needs 19[0-9]\.[0-9] MiB of 100\.0 MiB$' \
        "$scratch/out"
    verdict $? "$name: it is not said what is needed: $(cat "$scratch/out")"
    [ "$(field 0,none,d6 reason)" = "\"$(sed -nE '/ 0 none .*fit: /s/.*fit: //p' \
        "$scratch/out")\"" ] && [ -z "$(field 0,none,d6 device_measured)" ]
    verdict $? "$name: the row is another: $(grep ^0,none "$rows")"
    well_formed "$name" 11
    cut -d, -f 1-6,15 "$rows" >"$scratch/by-option"
    ZERO_DEVICE_MEMORY=100m run "$1" --model d6 --stage 0 3 --offload none cpu --csv "$rows"
    cut -d, -f 1-6,15 "$rows" | cmp -s - "$scratch/by-option"
    verdict $? "$name: by the variable: $(cat "$rows" "$scratch/err")"
}

# The most layers fit, one more does not: as another run of those sizes finds.
largest() { # ranks, stage, place, what is said of too much, limits
    local name="$1 ranks, the largest at stage $2, $3, ${5%% *}" layers limits
    local missing="($4 needs [0-9.]+ .*of [0-9.]+ |$4 of [0-9]+ are free|$4\$)"
    have_ranks "$1" "$name" || return
    read -ra limits <<<"$5 --stage $2 --offload $3 --channels 128 --chunk 64K"
    run "$1" --find-largest "${limits[@]}" --csv "$rows" --svg "$plot"
    verdict $? "$name failed: $(cat "$scratch/err")"
    layers=$(awk -F, 'NR == 2 && $15 == 1 && $16 == 1 { print $4 }' "$rows")
    grep -qE "one layer more: $missing" "$scratch/out"
    verdict $? "$name: it is not said what is missing: $(cat "$scratch/out")"
    well_formed "$name" 5
    run "$1" --layers "${layers:-1}" "${limits[@]}" --csv "$rows"
    [ "$(field "$2,$3,${layers}x128" fits)" = 1 ] && [ "${layers:-0}" -gt 1 ]
    verdict $? "$name: $layers layers do not fit: $(cat "$rows")"
    run "$1" --layers $((${layers:-1} + 1)) "${limits[@]}" --csv "$rows"
    [ "$(field "$2,$3,$((${layers:-1} + 1))x128" fits)" = 0 ]
    verdict $? "$name: $layers layers, and one more, fit: $(cat "$rows")"
}

# A folder without files, or a device without memory, is some configurations' affair: these have
# their rows, and the others go on.
fails_alone() { # ranks
    local name="$1 ranks, a folder that is not there"
    have_ranks "$1" "$name" || return
    run "$1" --nvme-path "$scratch/no" --model d4 --stage 0 3 --csv "$rows" --svg "$plot"
    [ $? = 1 ]
    verdict $? "$name: status 0, or another"
    grep -qE "^rank 0: stage 3, nvme, d4: .*Cannot create a file in $scratch/no: No such" \
        "$scratch/err" && [ "$(grep -c '^rank [01]: ' "$scratch/err")" = $((2 * $1)) ] &&
        ! grep -qv '^rank [01]: stage [03], nvme, d4: ' "$scratch/err"
    verdict $? "$name: it is not said once for each: $(cat "$scratch/err")"
    [ "$(grep -cE "^ +[03] nvme +d4 .* failed: .*Cannot create a file in" "$scratch/out")" = 2 ] &&
        [ "$(awk -F, '{ printf "%s ", $15 }' "$rows")" = "fits 1 1  1 1  " ]
    verdict $? "$name: the rows are others: $(cat "$scratch/out" "$rows")"
    # Four on the device, two on the host; and four of the legend, with its cross.
    well_formed "$name" 11
    [ "$(grep -c 'm-3.5 -3.5l7 7m0 -7l-7 7' "$plot")" = 1 ]
    verdict $? "$name: what failed stands in the plot as what does not fit"
    run "$1" --nvme-path "$scratch/no. No" --model d4 --stage 0 --offload nvme --csv "$rows"
    grep -q "failed: Cannot create a file in $scratch/no\. No: No such file or directory$" \
        "$scratch/out"
    verdict $? "$name, with a stop in its name: $(cat "$scratch/out")"
    run "$1" --nvme-path "$scratch/no" --find-largest --device-memory 30M --stage 3 --chunk 64K \
        --channels 128 --offload nvme none --csv "$rows"
    [ $? = 1 ] && [ "$(awk -F, '{ printf "%s,%s ", $15, $16 }' "$rows")" = "fits,largest ,0 1,1 " ]
    verdict $? "$name: the largest is not found without it: $(cat "$scratch/out" "$rows")"
    run "$1" --device-memory 4096 --model d4 --stage 3 --offload none nvme --csv "$rows" \
        --svg "$plot"
    verdict $? "$1 ranks, a device of 4 KiB failed: $(cat "$scratch/err")"
    [ "$(awk -F, '{ printf "%s ", $15 }' "$rows")" = "fits 0 0 " ] &&
        grep -qE '^ +3 nvme .* does not fit: device needs .* of 4\.0 KiB$' "$scratch/out"
    verdict $? "$1 ranks, a device of 4 KiB: $(cat "$scratch/out" "$rows")"
}

# GPUs that are fakes, for which each rank has a GPU, or two share one: a fake counts for
# its own process alone, so that of two on it half is seen.
on_gpus() { # ranks, GPUs, ranks on each
    local name="$1 ranks on $2 fake GPUs" wrong
    have_ranks "$1" "$name" || return
    ZERO_FAKE_GPUS=$2 run "$1" --device cuda --model d4 --csv "$rows" --svg "$plot"
    verdict $? "$name failed: $(cat "$scratch/err")"
    wrong=$(awk -F, -v shared="$3" 'NR > 1 && ($15 != 1 || $9 != int($8 / shared)) {
        print $1 "," $2 ": " $9 " measured, " $8 " planned, " $17 }' "$rows")
    [ -z "$wrong" ] && [ "$(wc -l <"$rows")" = 13 ]
    verdict $? "$name: $wrong"
    grep -qx "device: fake GPU 0, .* of 1.0 GiB free, $3 ranks\? on it" "$scratch/out" &&
        grep -q '^Measured on the device: ' "$scratch/out" &&
        ! grep -qv '^libzero: warning: Units go .* through host memory: .* NCCL' "$scratch/err"
    verdict $? "$name: it does not tell of the GPU: $(cat "$scratch/out" "$scratch/err")"
}

gpus() {
    local nccl
    if ! "$build/memscale" --help | grep -q '^ *--device '; then
        ! "$build/memscale" --help | grep -q cuda
        verdict $? "--help speaks of cuda, which this build has not"
        echo "skipped: memscale on GPUs: this build has no CUDA toolkit"
        return
    fi
    export ZERO_CUDA_PLUGIN=$build/tests/fake/libzero_cuda.so
    on_gpus 1 1 1
    on_gpus 2 2 1
    on_gpus 2 1 2
    export ZERO_FAKE_GPU_BYTES=31457280
    largest 1 0 none "[0-9]+ bytes of GPU memory are needed, [0-9]+" "--device cuda"
    largest 1 0 none device "--device cuda --device-memory 20M"
    run 1 --device cuda --device-memory 20M --stage 0 --offload none --channels 128 --layers 6 \
        --chunk 64K --csv "$rows" && [ "$(field 0,none,6x128 fits)" = 0 ]
    verdict $? "the limit of a GPU's memory is not kept: $(cat "$rows")"
    largest 2 3 none "[0-9]+ bytes of GPU memory are needed, [0-9]+" "--device cuda"
    # shellcheck disable=SC2016
    through=(sh -c 'bytes=30000000; [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || bytes=32000000
        ZERO_FAKE_GPU_BYTES=$bytes exec "$@"' sh)
    largest 2 3 none "[0-9]+ bytes of GPU memory are needed, [0-9]+" "--device cuda"
    through=()
    nccl="(NCCL failed to .*, whose memory does not suffice: '.*'|it does not fit on another rank)"
    may_read &&
        ZERO_FAKE_GPUS=2 ZERO_FAKE_NCCL_BYTES=4000000 largest 2 3 none "$nccl" "--device cuda"
    unset ZERO_FAKE_GPU_BYTES
    may_read && between_gpus
    ZERO_FAKE_GPUS=0 refused 1 1 "No GPU can be used: .* \(cudaErrorInsufficientDriver, 35\)\." \
        --device cuda
    unset ZERO_CUDA_PLUGIN
}

refused() { # status, ranks, pattern, options
    local status name="memscale ${*:4}"
    have_ranks "$2" "$name" || return
    run "$2" "${@:4}"
    status=$?
    [ "$status" = "$1" ] && [ "$(cut -d: -f1 "$scratch/err" | sort | uniq -d)" = "" ] &&
        grep -qE "^rank [0-9]: .*$3" "$scratch/err" && ! grep -qv '^rank [0-9]: ' "$scratch/err"
    verdict $? "$name: status $status, expected $1 and '$3': $(cat "$scratch/err")"
}

wrong_use() {
    local tries
    refused 2 2 "There is no option --models\. Did you mean --model\?" --models d4
    refused 2 1 "--stage cannot be '4'\. Give some of 0, 1, 2, 3\." --stage 0 4
    refused 2 1 "--offload cannot be 'disk'\. Give some of none, cpu, nvme\." --offload disk
    refused 2 1 "--model cannot be 'd5'\. Give some of d4, d6," --model d4 d5
    refused 2 1 "--model and --layers contradict each other\." --model d4 --layers 3
    refused 2 1 "--model and --channels contradict each other\." --model d4 --channels 64
    refused 2 1 "--layers and --find-largest contradict" --layers 3 --find-largest
    refused 2 1 "--chunk 100 is not a multiple of 64\. Give 64\." --chunk 100
    refused 2 1 "--csv and --svg are both x\." --csv x --svg x
    refused 2 1 "--device-memory cannot be '0'" --device-memory 0
    refused 1 2 "'$scratch/no/rows' cannot be written: No such file" --csv "$scratch/no/rows"
    refused 1 1 "'/dev/full' could not be written to its end\." --model d4 --stage 0 --svg /dev/full
    refused 1 1 "'/dev/full' could not be written to its end\." --model d4 --stage 0 --csv /dev/full
    refused 1 1 "'$scratch/./x' is the file of --csv, '$scratch/x', too\." --csv "$scratch/x" \
        --svg "$scratch/./x"
    refused 1 1 "'/dev/stderr' cannot be written: this run.s own output is" --csv /dev/stderr
    echo old >"$scratch/old"
    refused 1 2 "'$scratch/no/plot' cannot be written" --csv "$scratch/old" --svg "$scratch/no/plot"
    [ "$(cat "$scratch/old")" = old ]
    verdict $? "a file of an older run, where a command line was refused"
    printf '%99999s\n' behind | tee "$scratch/longer.csv" >"$scratch/longer.svg"
    run 1 --model d4 --stage 0 --offload none --csv "$scratch/longer.csv" \
        --svg "$scratch/longer.svg"
    verdict $? "memscale onto longer files: $(cat "$scratch/err")"
    [ -s "$scratch/longer.svg" ] && ! grep -q behind "$scratch"/longer.*
    verdict $? "what longer files of an older run had is behind the new ones"
    rm -f "$rows" "$plot"
    "$build/memscale" --model d4 gpt2 --stage 0 --offload nvme --csv "$rows" --svg "$plot" \
        --nvme-path "$scratch/files" >"$scratch/out" 2>"$scratch/err" &
    for ((tries = 0; tries < 600; tries++)); do
        [ "$(tail -n 1 "$plot" 2>/dev/null)" = "</svg>" ] && break
        sleep 0.05
    done
    kill -KILL $! && wait $! 2>/dev/null
    [ "$(wc -l <"$rows")" -ge 2 ] && grep -q d4 "$plot" && [ "$(tail -n 1 "$plot")" = "</svg>" ]
    verdict $? "the plot of a test that was killed behind its first row: $(tail -n 1 "$plot")"
    timeout 60 "$build/memscale" --help >/dev/full 2>"$scratch/err"
    [ $? = 1 ] && grep -qx 'rank 0: Standard output could not be written\.' "$scratch/err"
    verdict $? "memscale --help >/dev/full: $(cat "$scratch/err")"
    have_ranks 2 "ranks with other options" || return
    timeout -k 5 60 "${launcher[@]}" -n 2 sh -c "$unlike" sh "--model d4" "--model d6" \
        "$build/memscale" --offload none >"$scratch/out" 2>"$scratch/err" </dev/null
    [ $? = 1 ] &&
        [ "$(grep -cE "^rank [01]: The ranks were not given the same options or [A-Z_]+; this one \
has '--offload none --model d[46]'\." "$scratch/err")" = 2 ]
    verdict $? "ranks with other options: $(cat "$scratch/err")"
}

# A person sees which configuration is under way; what is left is the table.
live() {
    if ! command -v script >/dev/null; then
        echo "skipped: the line on a terminal, for want of script"
        return
    fi
    timeout 60 script -qec "$build/memscale --model d4 --stage 1 --offload none" /dev/null \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    verdict $? "on a terminal it failed: $(cat "$scratch/out")"
    grep -q $'\r\033\\[K1 of 1: stage 1, none, d4 \\.\\.\\.\r\033\\[K    1 none ' "$scratch/out"
    verdict $? "on a terminal: $(cat -v "$scratch/out")"
    timeout 60 script -qec "stty cols 20; $build/memscale --model d4 --stage 1 --offload none" \
        /dev/null >"$scratch/out" 2>"$scratch/err" </dev/null
    grep -q $'\r\033\\[K1 of 1: stage 1, no\r\033\\[K' "$scratch/out"
    verdict $? "on a narrow terminal: $(cat -v "$scratch/out")"
}

command -v xmllint >/dev/null || echo "skipped: whether plots are XML, for want of xmllint"
sweep 1
sweep 2
aligned
too_small 1
too_small 2
largest 1 0 none device "--device-memory 30M"
largest 2 3 none device "--device-memory 30M"
largest 2 1 cpu "host memory" "--device-memory 64M --host-memory 40M"
largest 2 3 nvme nvme "--nvme-space 20M"
largest 1 3 cpu "host memory" "--host-memory 20M"
fails_alone 1
fails_alone 2
gpus
wrong_use
live
closing
