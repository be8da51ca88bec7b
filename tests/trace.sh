#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --trace and --log of one run say the same: tests/trace.sh GPT2
# In the trace no two spans of a lane overlap, every lane has one name, and the
# bytes of its disk lanes, step by step, are those of the log's columns; rows of
# equal steps have equal bytes. Make it run by: make check ONLY=trace.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/trace.sh GPT2"}
. tests/support/verdicts.sh

run() { # ranks, options
    local launch=() options
    [ "$1" = 1 ] || launch=("${launcher[@]}" -q -n "$1")
    read -ra options <<<"$2 --layers 3 --channels 32 --seq 32 --batch 2 --sample 0 --data LICENSE"
    rm -f "$scratch/log.csv" "$scratch/trace.json"
    timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" --nvme-path "$scratch" --quiet \
        --log "$scratch/log.csv" --trace "$scratch/trace.json" >"$scratch/out" 2>"$scratch/err"
}

run_case() { # ranks, steps, options
    local name="$1 ranks, $2 steps, $3"
    have_ranks "$1" "$name" || return
    run "$1" "--steps $2 $3"
    verdict $? "$name failed: $(cat "$scratch/err")"
    awk -v ranks="$1" -v steps="$2" -f tests/trace.awk "$scratch/log.csv" "$scratch/trace.json" \
        >"$scratch/wrong"
    verdict $? "$name: $(head -n 5 "$scratch/wrong")"
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$scratch/trace.json" >/dev/null 2>"$scratch/err"
        verdict $? "$name: not JSON: $(cat "$scratch/err")"
    fi
}

run_case 1 3 ""
run_case 1 4 "--stage 3 --offload nvme --chunk 4096"
run_case 2 4 "--stage 3 --offload nvme --chunk 4096 --accumulate 2 --ring posix"
run_case 3 3 "--stage 1 --offload nvme --state split --chunk 1024 --slots 8"
run_case 2 4 "--stage 3 --offload cpu --eval-every 2 --dtype fp32"
run 1 "--steps 40 --lr 1e30"
made=$(sed -n 's/.*up to step \([0-9]*\),.*/\1/p' "$scratch/err")
[ -n "$made" ] && awk -F, -v made="$made" 'NR > 1 && $1 == NR - 1 { rows++ }
    END { exit !(rows == made && rows == NR - 1) }' "$scratch/log.csv"
verdict $? "a failed run has no row for each of its $made steps: $(tail -n 1 "$scratch/log.csv")"
closing
