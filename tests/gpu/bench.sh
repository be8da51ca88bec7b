#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what the library does on this machine's GPU: tests/gpu/bench.sh [--fakes] BUILD
# [--quick]. Prints markdown to append to tests/gpu/RESULTS.md, and adds it to results.md in
# RESULTS (BUILD/gpu), part by part: what is cut off has left what it measured. Our kernels
# beside copies within the GPU's memory, the engine's copies beside the driver's own memory, what
# a step costs beside arithmetic, planned and measured memory, whole runs of gpt2 where it
# computes on GPUs, whose words go to gpt2.log, what hid behind what, and PyTorch's runs of the
# same shapes where it is installed. Each part checks its results before it measures, and takes
# minutes at most; ONLY='kernels copies units memory largest gpt2 timeline peer' takes some,
# ROWS=5,9 of gpt2's the fifth to the ninth.
# --fakes, --quick: that it runs; the numbers mean nothing. Status 77: there is no GPU.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
what=gpu
[ "${1-}" != --fakes ] || { what=fakes && shift; }
build=$(realpath "${1:?"give the build folder: tests/gpu/bench.sh BUILD"}") || exit 1
quick=(${2:+--quick})
export ZERO_CUDA_PLUGIN=$build/libzero_cuda.so GPT2_CUDA_PLUGIN=$build/gpt2_cuda.so
if [ "$what" = fakes ]; then # one file is both, since both must see the same GPUs
    ZERO_CUDA_PLUGIN=$build/tests/fake/gpt2_cuda.so GPT2_CUDA_PLUGIN=$ZERO_CUDA_PLUGIN
fi
bench=$build/tests/gpu_bench_on_$what
results=${RESULTS:-$build/gpu}
only=${ONLY:-kernels copies units memory largest gpt2 timeline peer}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
status=0

for name in $only; do
    case $name in
    kernels | copies | units | memory | largest | gpt2 | timeline | peer) ;;
    *)
        echo "ONLY names '$name'. Use kernels, copies, units, memory, largest, gpt2, timeline or" \
            "peer." >&2
        exit 2
        ;;
    esac
done
mkdir -p "$results" || exit 1
. tests/gpu/common.sh

wants() { [[ " $only " == *" $1 "* ]]; }

broken() { # what has failed, its words
    status=1
    printf '\n%s failed:\n\n' "$1"
    tail -n 3 "$2" | sed 's/^/    /'
}

# Rows of NAME_limit, NAME_ours and NAME_share.
shares() { # title, part of the bench
    local log=$scratch/$2
    wants "$2" || return
    within 240 "$bench" "${quick[@]}" "$2" >"$log" 2>&1 || { broken "$1" "$log" && return; }
    printf '\n%s:\n\n| | limit | ours | share |\n|---|---|---|---|\n' "$1"
    awk '/_limit / { limit = $2 " " $3 } /_ours / { ours = $2 " " $3 }
         /_share / { name = $1; sub(/_share$/, "", name); gsub(/_/, " ", name)
                     printf "| %s | %s | %s | %.0f %% |\n", name, limit, ours, 100 * $2 }' "$log"
}

units() {
    local log=$scratch/units
    wants units || return
    within 240 "$bench" "${quick[@]}" units >"$log" 2>&1 ||
        { broken "Steps of tiny units" "$log" && return; }
    printf '\nWhat a step costs beside arithmetic and bytes, on one rank:\n\n'
    printf '| | a step | and each unit |\n|---|---|---|\n'
    awk '/^fixed_.*_step / { step = $2 " " $3 }
         /^fixed_.*_unit / { name = $1; gsub(/^fixed_|_unit$/, "", name); gsub(/_/, ", ", name)
                             printf "| %s | %s | %s %s |\n", name, step, $2, $3 }' "$log"
}

# memscale's rows: the device's columns, and the seconds of a step.
memory() { # part, title, options of memscale
    local rows=$scratch/$1.csv log=$scratch/$1
    wants "$1" || return
    within 500 "$build/memscale" --device cuda --csv "$rows" --steps 3 "${@:3}" >"$log" 2>&1 ||
        { broken "$2" "$log" && return; }
    printf '\n%s:\n\n' "$2"
    printf '| stage | offload | model | parameters | planned | measured | a step | |\n'
    printf '|---|---|---|---|---|---|---|---|\n'
    awk -F, 'NR > 1 { why = $0; sub(/^([^,]*,){16}/, "", why); gsub(/"/, "", why)
             printf "| %s | %s | %s | %.1f M | %.1f MiB | %s | %s | %s |\n", $1, $2, $3, $6 / 1e6,
                 $8 / 1048576, $15 ? sprintf("%.1f MiB", $9 / 1048576) : "",
                 $15 ? sprintf("%.3g s", $14) : "",
                 $15 ? ($16 ? "the largest: one layer more, " why : "") : why }' "$rows"
}

# Tokens a second, of the median step after the first; arithmetic, 6 operations a parameter and
# token, and its share of the rate of large products that gpt2 has measured on this GPU; and what
# share the kernels reach alone. What takes too long is stopped, and says what it has measured.
train() { # parameters in millions, variables and options
    local log=$scratch/train steps=$scratch/steps millions=$1 row=${*:2}
    local variables=() why="" status=0
    shift
    while [[ $1 == [A-Z]*=* ]]; do
        variables+=("$1") && shift
    done
    rm -f "$steps"
    within -k 60 "${ROW_SECONDS:-150}" env "${variables[@]}" "$build/gpt2" --device cuda \
        --data LICENSE --sample 0 --log "$steps" "$@" >"$log" 2>&1 3<&- || status=$?
    { echo "== $row" && cat "$log"; } >>"$results/gpt2.log"
    cut -d, -f8 "$steps" 2>/dev/null | sed -n '2,$p' | sed '1{$!d;}' | sort -g >"$scratch/rates"
    case $status in
    0) ;;
    124 | 137) why="stopped after ${ROW_SECONDS:-150} s" ;;
    *) why=$(tail -n 1 "$log" | cut -c 1-120) ;;
    esac
    awk -v row="$row" -v millions="$millions" -v why="$why" '
        function tera(rate, unit) { return unit == "Gflop/s" ? rate / 1000 : rate }
        FILENAME ~ /rates$/ { rates[++n] = $1 }
        /^  compute: the GPU / && $7 ~ /flop/ { limit = tera($6, $7); layers = $8 " %" }
        END { rate = rates[int((n + 1) / 2)]; flops = 6e6 * millions * rate / 1e12
              if (n) printf "| %s | %.4g ktok/s | %.1f Tflop/s%s | %s | %s |\n", row, rate / 1e3,
                  flops, limit ? sprintf(", %.0f %% of %.4g", 100 * flops / limit, limit) : "",
                  layers, why
              else printf "| %s | | | | %s |\n", row, why }
    ' "$scratch/rates" "$log"
    [ $status = 0 ] || { [ $status = 124 ] && [ -s "$scratch/rates" ]; }
}

# Millions of parameters, and what gpt2 is given. What matters most comes first: state on the
# device with all activations kept; then host memory; files come last, for they take longest, and
# first among them those behind so many tokens that they can hide.
table() {
    local stage place xl="1558 --model gpt2-xl --batch" gpt2="124 --model gpt2 --batch 16 --steps"
    local none="--offload none" cpu="--offload cpu" nvme="--offload nvme"
    local fewer="--state split --grad-dtype bf16"
    for place in none cpu nvme; do
        for stage in 0 3; do
            [ -z "${quick[*]}" ] ||
                echo "3 --model d4 --batch 1 --steps 3 --stage $stage --offload $place"
        done
    done
    [ -n "${quick[*]}" ] || cat <<ROWS
$xl 8 --steps 20 --stage 0 $none
$xl 8 --steps 20 --stage 3 $none
$gpt2 40 --stage 0 $none
$gpt2 40 --stage 3 $none
$xl 8 --steps 20 --stage 0 $none $fewer
$gpt2 40 --stage 0 $none $fewer
$xl 8 --steps 20 --stage 1 $none
$xl 8 --steps 20 --stage 2 $none
$gpt2 40 --stage 1 $none
$gpt2 40 --stage 2 $none
$xl 8 --steps 6 --stage 0 $cpu
$xl 8 --steps 6 --stage 3 $cpu
$gpt2 12 --stage 0 $cpu
$gpt2 12 --stage 3 $cpu
$gpt2 12 --stage 1 $cpu
$gpt2 12 --stage 2 $cpu
${xl/ / CUDA_DEVICE_MAX_CONNECTIONS=8 } 8 --steps 20 --stage 3 $none
$xl 4 --recompute --steps 10 --stage 3 $none
${gpt2/16/1024} 4 --recompute --stage 0 $none
${gpt2/16/1024} 4 --recompute --slots 64 --chunk 1M --stage 0 $nvme
$gpt2 6 --stage 0 $nvme
$gpt2 6 --stage 3 $nvme
$gpt2 6 --stage 1 $nvme
$gpt2 6 --stage 2 $nvme
$xl 8 --steps 3 --stage 3 $nvme
$xl 8 --steps 3 --stage 0 $nvme
ROWS
}

# Rows that have been measured are not measured again, unless the programs are others. ROWS=5,9:
# of the table the fifth to the ninth.
trainer() {
    local row program rows=0 range=${ROWS:-1,99} measured=$results/measured
    wants gpt2 || return
    [ -z "${quick[*]}" ] || range=1,99
    if ! "$build/gpt2" --help | grep -q '^ *--device .*cuda'; then
        printf '\ngpt2 does not compute on GPUs in this version: no row of it.\n'
        return
    fi
    program=$(cat "$build/gpt2" "$ZERO_CUDA_PLUGIN" "$GPT2_CUDA_PLUGIN" 2>/dev/null | cksum)
    printf '\nWhole runs of gpt2 on one GPU, 1024 tokens a sequence, bf16; the median step:\n\n'
    printf '| options | tokens | arithmetic | its kernels alone | |\n|---|---|---|---|---|\n'
    while read -ra row <&3; do
        rows=$((rows + 1))
        [ -z "${quick[*]}" ] && grep -qsxF "$program ${row[*]}" "$measured" && continue
        train "${row[@]}" && echo "$program ${row[*]}" >>"$measured"
    done 3< <(table | sed -n "${range}p")
    [ $rows -gt 0 ] || { echo "There is no row $range in the table." >"$scratch/none" &&
        broken "gpt2" "$scratch/none"; }
}

# PyTorch's rows, where a python3 has it and it sees the GPU; on fakes a tiny model on the CPU.
peer() {
    local log=$scratch/peer see='import torch; assert torch.cuda.is_available()'
    wants peer || return
    [ "$what" = gpu ] || see='import torch'
    python3 -c "$see" >/dev/null 2>&1 || {
        printf '\nPyTorch is not installed here: no row of it.\n' && return
    }
    printf '\nThe same by PyTorch:\n\n| | tokens | arithmetic | memory |\n|---|---|---|---|\n'
    within "${PEER_SECONDS:-240}" python3 tests/gpu/peer.py "${quick[@]}" \
        --seconds $((${PEER_SECONDS:-240} * 3 / 4)) 2>"$log"
    case $? in 0 | 124) ;; *) broken "PyTorch" "$log" ;; esac
}

# What a step's other work hid behind, by CUPTI, which the toolkit brings.
timeline() {
    local cuda found options log=$scratch/timeline
    wants timeline && [ "$what" = gpu ] || return
    cuda=$(realpath "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)") && cuda=${cuda%/bin/nvcc}
    found=$(find "$cuda/include/cupti.h" "$cuda/extras/CUPTI/include/cupti.h" 2>/dev/null)
    [ -n "$found" ] || { printf '\nCUPTI is not installed here: no timeline.\n' && return; }
    cc -shared -fPIC -O2 -isystem "${found%%/cupti.h*}" -isystem "$cuda/include" \
        tests/gpu/timeline.c -o "$scratch/timeline.so" -L"$cuda/lib64" \
        -L"$cuda/extras/CUPTI/lib64" -Wl,-rpath,"$cuda/lib64:$cuda/extras/CUPTI/lib64" \
        -lcupti >"$log" 2>&1 || { broken "The timeline" "$log" && return; }
    printf '\nWhat ran when in a step, and how much of it behind the model:\n\n'
    printf '| options | line | busy | behind |\n|---|---|---|---|\n'
    for options in "gpt2-xl --batch 8 --stage 0 --offload none" \
        "gpt2-xl --batch 8 --stage 3 --offload cpu" "gpt2 --batch 16 --stage 0 --offload none"; do
        [ -z "${quick[*]}" ] || options="d4 ${options#* }"
        # shellcheck disable=SC2086 # words
        CUDA_INJECTION64_PATH=$scratch/timeline.so TIMELINE=$scratch/lines within 100 \
            "$build/gpt2" --device cuda --data LICENSE --sample 0 --steps 4 --model $options \
            >"$log" 2>&1 || { broken "The timeline" "$log" && return; }
        sort -k3,3n "$scratch/lines" | awk -f tests/gpu/timeline.awk >"$log" ||
            { broken "The timeline" "$log" && return; }
        sed "s/^/| $options /" "$log"
    done
}

# Without git: that of the bundle, which files may have left behind since.
version() {
    git describe --always --dirty 2>/dev/null && return
    local since
    since=$(find src include offload kernels examples -newer build-bundle/commit -print -quit \
        2>/dev/null)
    echo "$(cat build-bundle/commit 2>/dev/null || echo unknown)${since:+ or later}"
}

everything() {
    local sizes=(--model gpt2) driver
    [ -z "${quick[*]}" ] || sizes=(--model d4)
    echo "## $gpu, $(date -u +%F)"
    echo
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
    echo "Driver ${driver:-unknown}, $("$bench" --quick units 2>&1 | sed -n 's/^# //p')."
    echo "libzero at $(version), $(nproc) CPUs; \`make bench-gpu${quick[*]:+ QUICK=1}\`. A" \
        "kernel's bytes are those that it must read and write; the limit is a copy within the" \
        "GPU's memory."
    shares "Kernels" kernels
    shares "Copies between host and device, a chunk's parameters there, its gradients back, \
against one of all from memory of the driver's" copies
    units
    memory memory "Memory of the GPU" "${sizes[@]}" --stage 0 1 3 --offload none cpu
    [ -n "${quick[*]}" ] || memory largest "The largest model of a width of 1600 on one GPU" \
        --find-largest --channels 1600 --stage 0 3 --offload none
    trainer
    timeline
    peer
    return $status
}

[ "$what" = fakes ] || hold_gpus
find_gpu "Nothing was measured"
gpu=$(cut -d'|' -f2 <<<"$found" | cut -d, -f2)
gpu=${gpu# }
everything | tee -a "$results/results.md"
exit "${PIPESTATUS[0]}"
