#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpt2's memory is what it planned, and a device that is too small for a stage is
# refused by every rank with the numbers: tests/memory.sh GPT2 | --self-test
# The kernel's high-water mark (code, libraries and MPI included) may exceed
# 1.02 times what library and program planned by 40 MiB. make check runs it:
# make check ONLY=memory.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
unset ZERO_DEVICE_MEMORY

run() { # ranks, words: gpt2's options
    local launch=()
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    timeout -k 5 120 "${launch[@]}" "$gpt2" --data LICENSE --steps 3 --batch 1 --sample 0 \
        --nvme-path "$scratch" "${@:2}" >"$scratch/out" 2>"$scratch/err" </dev/null
}

# Rows of the memory table, one for each rank or of many the least and the most, that are within
# the bound, and together what the plan wants of the node; what is not, in words.
within_bound() { # ranks
    awk -v ranks="$1" -v rows="$(($1 > 8 ? 2 : $1))" '
        function bytes(number, unit) {
            return number * (unit == "B" ? 1 : unit == "KiB" ? 1024 : unit == "MiB" ? 1048576 : \
                             unit == "GiB" ? 1073741824 : 0)
        }
        /memory for all that \(--mem\): / {
            split($0, part, /: |, /); split(part[2], is); node = bytes(is[1], is[2])
        }
        /, memory \(VmHWM\) / {
            planned = bytes($(NF - 3), $(NF - 2)); peak = bytes($(NF - 1), $NF)
            if (planned > 0 && peak > 0 && peak <= 1.02 * planned + 41943040) good++
            else print $0
            all += planned * ranks / rows
        }
        END {
            if (good != rows) print good + 0 " of " rows " rows are within the bound"
            if (node < 0.95 * all || node > 1.05 * all) print "of the node " node ", in all " all
        }' \
        "$scratch/out"
}

# Rows of the table that do not end below their heads.
crooked() {
    awk '/^ +planned +measured$/ { wide = length; next }
        wide && /^  (rank [0-9]+|(least|most) of [0-9]+ ranks), / && length != wide' "$scratch/out"
}

# The library's share of it as well: what gpt2 planned of its own, it took.
bounded() { # ranks, options
    local options wrong name="$1 ranks, $2"
    have_ranks "$1" "$name" || return
    read -ra options <<<"$2"
    run "$1" "${options[@]}"
    verdict $? "$name failed: $(tail -n 2 "$scratch/err")"
    wrong=$(within_bound "$1" && crooked)
    [ -z "$wrong" ]
    verdict $? "$name: $wrong"
}

# Fits at stage 3, not below: there every rank says what was needed and there.
too_small() { # model, device memory
    local stage status name bytes=$((${2%M} << 20))
    have_ranks 2 "$1 in $2 of device memory" || return
    export ZERO_DEVICE_MEMORY=$2
    for stage in 3 2 1 0; do
        name="$1 at stage $stage in $2 of device memory"
        run 2 --model "$1" --stage "$stage" --offload nvme
        status=$?
        if [ $stage = 3 ]; then
            verdict $status "$name failed: $(tail -n 2 "$scratch/err")"
            grep -q ^digest "$scratch/out"
            verdict $? "$name printed no digest"
            continue
        fi
        [ $status = 1 ]
        verdict $? "$name was not refused with status 1"
        refused "$bytes" "$name"
    done
    unset ZERO_DEVICE_MEMORY
}

refused() { # bytes of the device, name
    local rank needed
    for rank in 0 1; do
        needed=$(sed -nE "s/^rank $rank: (.*[^0-9])?([0-9]+) bytes of device memory are needed, \
$1 of $1 are free.*/\2/p" "$scratch/err")
        [ "${needed:-0}" -gt "$1" ]
        verdict $? "$2: rank $rank does not give the numbers: $(tail -n 2 "$scratch/err")"
    done
    ! grep -q ^digest "$scratch/out"
    verdict $? "$2: it trained"
}

# Programs that do not keep these promises; each line: what they print, their
# status, and how many of the checks they are due to fail.
self_test() {
    local expected script was
    gpt2=$scratch/gpt2 launcher=()
    export node="  the node's memory for all that (--mem):" row="  rank 0, memory (VmHWM)"
    while IFS='|' read -r expected script; do
        printf '#!/bin/bash\n%s\n' "$script" >"$gpt2" && chmod +x "$gpt2"
        was=$failures
        bounded 1 "" >"$scratch/said"
        [ $((failures - was)) = "$expected" ]
        was=$?
        failures=0
        verdicts+=("$was $script")
    done <<'LIST'
0|echo "$node 100.0 MiB, and"; echo "$row  100.0 MiB  134.0 MiB"
0|echo "$node 0.1 GiB, and"; echo "$row  100.0 MiB  134.0 MiB"
1|echo "$node 94.0 MiB, and"; echo "$row  100.0 MiB  134.0 MiB"
1|echo "$node 106.0 MiB, and"; echo "$row  100.0 MiB  134.0 MiB"
1|echo "$row  100.0 MiB  134.0 MiB"
1|echo "$node 100.0 MiB, and"; echo "$row  100.0 MiB  142.1 MiB"
1|echo "$node 100.0 MiB, and"; echo "$row  100.0 MiB  0.2 GiB"
1|echo "$node 0 B, and"; echo "$row  0 B  1.0 MiB"
0|echo "$node 1.0 MiB, and"; printf "%42s\n" "planned measured"; echo "$row  1.0 MiB  1.0 MiB"
1|echo "$node 1.0 MiB, and"; printf "%41s\n" "planned measured"; echo "$row  1.0 MiB  1.0 MiB"
1|echo "nothing"
2|exit 3
LIST
    checks=0 failures=0
    for was in "${verdicts[@]}"; do
        verdict "${was%% *}" "self-test: ${was#* }"
    done
}

if [ "${1-}" = --self-test ]; then
    verdicts=()
    self_test
else
    gpt2=${1:?"give gpt2: tests/memory.sh GPT2 | --self-test"}
    bounded 1 "--model d4"
    bounded 1 "--model d6 --dtype fp32 --stage 3 --offload cpu"
    bounded 2 "--model d4 --stage 1 --offload nvme --accumulate 2"
    bounded 2 "--model d6 --stage 3 --offload nvme --recompute --grad-dtype bf16"
    bounded 2 "--model d6 --stage 3 --offload nvme --state split --slots 2 --chunk 65536"
    bounded 2 "--model d6 --stage 0 --offload cpu"
    bounded 9 "--layers 2 --channels 64 --heads 4 --seq 64 --stage 3 --offload nvme"
    too_small d4 15M
    too_small d6 36M
fi
closing
