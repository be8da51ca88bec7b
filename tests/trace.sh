#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --trace and --log of one run say the same: tests/trace.sh GPT2
# In the trace no two spans of a lane overlap, every lane has one name, and the
# bytes of its disk lanes, step by step, are those of the log's columns; rows of
# equal steps have equal bytes. The report's last table says what a step waits for,
# and measuring it changes no bit. Make it run by: make check ONLY=trace.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/trace.sh GPT2"}
. tests/support/verdicts.sh

quiet=--quiet trace=$scratch/trace.json shape="--layers 3 --channels 32"

run() { # ranks, options
    local launch=() options
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    read -ra options <<<"$2 $quiet $shape --seq 32 --batch 2 --sample 0 --data LICENSE"
    rm -f "$scratch/log.csv" "$scratch/trace.json"
    timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" --nvme-path "$scratch" \
        --log "$scratch/log.csv" --trace "$trace" >"$scratch/out" 2>"$scratch/err"
}

step_tokens() { # ranks, options
    local accumulate=1
    [[ $2 =~ --accumulate\ ([0-9]+) ]] && accumulate=${BASH_REMATCH[1]}
    echo $((2 * 32 * accumulate * $1))
}

run_case() { # ranks, steps, options
    local name="$1 ranks, $2 steps, $3"
    have_ranks "$1" "$name" || return
    run "$1" "--steps $2 $3"
    verdict $? "$name failed: $(cat "$scratch/err")"
    awk -v ranks="$1" -v steps="$2" -v tokens="$(step_tokens "$1" "$3")" -f tests/trace.awk \
        "$scratch/log.csv" "$scratch/trace.json" >"$scratch/wrong"
    verdict $? "$name: $(head -n 5 "$scratch/wrong")"
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$scratch/trace.json" >/dev/null 2>"$scratch/err"
        verdict $? "$name: not JSON: $(cat "$scratch/err")"
        [[ "$2 $3" != 4*nvme* ]] || pictured "$name"
    fi
}

# The picture of steps 2 and 3 has a row for each lane that moved something, and spans in it.
pictured() { # name
    local lane
    python3 tests/bench/picture.py "$scratch/trace.json" "$scratch/trace.svg" 2>"$scratch/err"
    verdict $? "$1: no picture: $(cat "$scratch/err")"
    for lane in step pass compute update state-disk param-disk; do
        grep -q ">$lane</text>" "$scratch/trace.svg"
        verdict $? "$1: the picture has no row $lane"
    done
    for lane in forward state-read state-write; do
        grep -q "$lane" "$scratch/trace.svg"
        verdict $? "$1: the picture has no $lane"
    done
    tail -n 1 "$scratch/trace.svg" | grep -q '</svg>'
    verdict $? "$1: the picture does not end"
}

# A pipe's reader gets what all ranks have written, more than a pipe holds, in its own time.
piped() { # ranks
    local name="$1 ranks, a pipe" steps=60
    have_ranks "$1" "$name" || return
    rm -f "$scratch/pipe" && mkfifo "$scratch/pipe"
    exec 4<>"$scratch/pipe" # a reader, until that shell is one
    # shellcheck disable=SC2016 # for that shell
    timeout 60 sh -c 'exec <"$1" && sleep 2 && cat' sh "$scratch/pipe" >"$scratch/read" 4<&- &
    trace=$scratch/pipe run "$1" "--steps $steps"
    verdict $? "$name failed: $(cat "$scratch/err")"
    exec 4<&-
    wait $!
    [ "$(wc -c <"$scratch/read")" -gt 100000 ]
    verdict $? "$name: $(wc -c <"$scratch/read") bytes of trace"
    awk -v ranks="$1" -v steps=$steps -v tokens="$(step_tokens "$1" "")" -f tests/trace.awk \
        "$scratch/log.csv" "$scratch/read" >"$scratch/wrong"
    verdict $? "$name: $(head -n 5 "$scratch/wrong")"
}

command -v python3 >/dev/null || echo "skipped: whether traces are JSON, for want of python3"
piped 1
piped 2
run_case 1 3 ""
run_case 1 4 "--stage 3 --offload nvme --chunk 4096"
run_case 2 4 "--stage 3 --offload nvme --chunk 4096 --accumulate 2 --ring posix"
run_case 3 3 "--stage 1 --offload nvme --state split --chunk 1024 --slots 8"
run_case 2 4 "--stage 3 --offload cpu --eval-every 2 --dtype fp32"
# What a link leads to is written, in one piece, and the link stays; a run that fails leaves
# an older run's there, and nothing else.
mkdir "$scratch/far"
ln -s far/link "$scratch/link" && ln -s "$scratch/elsewhere" "$scratch/far/link"
for number in 1 2; do
    timeout -k 5 60 "$gpt2" --layers 1 --channels 16 --seq 16 --batch 1 --steps $number --quiet \
        --data LICENSE --trace "$scratch/link" >"$scratch/out" 2>"$scratch/err"
    verdict $? "--trace with a link failed: $(cat "$scratch/err")"
    [ -L "$scratch/link" ] && [ "$(grep -c '"name":"step"' "$scratch/elsewhere")" = $number ]
    verdict $? "--trace with a link: $(ls -l "$scratch/link" "$scratch/elsewhere" 2>&1)"
done
# Where folders of ranks differ, as on drives of their own nodes, nothing is computed in vain.
# shellcheck disable=SC2016
own='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || cd far || exit; exec "$@"'
program=$(realpath "$gpt2") text=$PWD/LICENSE
if have_ranks 2 "a trace in folders of their own"; then
    echo "an older run's" >"$scratch/old.csv"
    (cd "$scratch" && timeout -k 5 60 "${launcher[@]}" -n 2 sh -c "$own" sh "$program" --layers 1 \
        --channels 16 --seq 16 --batch 1 --steps 3 --data "$text" --trace own.json \
        --log "$scratch/old.csv") \
        >"$scratch/out" 2>"$scratch/err"
    [ $? = 1 ] && ! grep -q '^step' "$scratch/out" && [ ! -e "$scratch/own.json.part" ] &&
        [ "$(cat "$scratch/old.csv")" = "an older run's" ] &&
        grep -q "^rank 1: 'own.json' cannot be opened for writing after rank 0 created it: No " \
            "$scratch/err"
    verdict $? "a trace in folders of their own: $(cat "$scratch/out" "$scratch/err")"
fi
(ulimit -f 8 && run 1 "--steps 40")
[ $? = 1 ] && grep -q "json' could not be written to its end: files may be no larger (ulimit -f)" \
    "$scratch/err"
verdict $? "a trace beyond ulimit -f: $(cat "$scratch/err")"
trace=$scratch/link run 1 "--steps 40 --lr 1e30"
[ -L "$scratch/link" ] && [ "$(grep -c '"name":"step"' "$scratch/elsewhere")" = 2 ] &&
    [ ! -e "$scratch/elsewhere.part" ]
verdict $? "a failed run changed what a link leads to: $(ls "$scratch")"
run 1 "--steps 40 --lr 1e30"
made=$(sed -n 's/.*up to step \([0-9]*\),.*/\1/p' "$scratch/err")
[ -n "$made" ] && awk -F, -v made="$made" 'NR > 1 && $1 == NR - 1 { rows++ }
    END { exit !(rows == made && rows == NR - 1) }' "$scratch/log.csv"
verdict $? "a failed run has no row for each of its $made steps: $(tail -n 1 "$scratch/log.csv")"

# Four rows, none busy for longer than a step, steps that take as long as they do,
# and what is said of them.
report_wrong() { # steps, pattern of the last line, tokens of a step
    awk -v steps="$1" -v pattern="$2" -v tokens="$3" -v most="$(nproc)" '
        function bad(text) { print text; wrong++ }
        / steps in .* s \(/ { seconds = $4; rate = substr($6, 2) }
        / (state read from|written to) files / && $(NF - 3) " " $(NF - 2) != $(NF - 1) " " $NF {
            bad("not planned: " $0)
        }
        /^CPU time of rank 0 / {
            cpus = $13 > 0 && $26 >= 0 && $13 + $26 < 1.05 * most * $7 + 0.1
        }
        /^what bounds the step / { rows = 1; next }
        rows && /^  / {
            name[rows] = $1
            busy[rows++] = match($0, /[0-9.e+-]+ s  /) ? substr($0, RSTART, RLENGTH) + 0 : 0
            next
        }
        rows { said = $0; exit }
        END {
            if (name[1] name[2] name[3] name[4] != "compute:memory:network:disk:" || rows != 5)
                bad(rows - 1 " rows")
            if (!match(said, /of (its|a step.s) [0-9.e+-]+ s/) || said !~ pattern)
                bad("it says: " said)
            split(substr(said, RSTART, RLENGTH), words)
            step = words[words[2] == "its" ? 3 : 4] + 0
            for (i in busy)
                if (busy[i] > 1.01 * step) bad(name[i] " busy " busy[i] " of " step " s")
            if (!cpus) bad("no CPU seconds that can be")
            if (!(busy[1] > 0 && busy[2] > 0)) bad("nothing was computed, or updated")
            # Both are rounded to a tenth, or better.
            if (1e3 * (rate + 0.05) * (seconds + 0.05) < tokens * steps ||
                1e3 * (rate - 0.05) * (seconds - 0.05) > tokens * steps)
                bad(rate " thousand tokens a second for " seconds " s are not " tokens * steps)
            if (seconds - 0.1 > 1.01 * steps * step) bad(steps " of " step " s are not " seconds)
            exit wrong > 0
        }' "$scratch/out"
}

report_case() { # ranks, pattern, options
    local name="the report, $1 ranks, $3" digest
    have_ranks "$1" "$name" || return
    run "$1" "--steps 3 $3"
    digest=$(tail -n 1 "$scratch/out")
    quiet='' run "$1" "--steps 3 $3"
    verdict $? "$name failed: $(cat "$scratch/err")"
    [[ $digest == digest* ]] && [ "$(tail -n 1 "$scratch/out")" = "$digest" ]
    verdict $? "$name: with --quiet the last line is '$digest', else $(tail -n 1 "$scratch/out")"
    report_wrong 3 "$2" "$(step_tokens "$1" "$3")" >"$scratch/wrong"
    verdict $? "$name: $(cat "$scratch/wrong")"
}

# Chunks so small that files take all of the time, or their updates' threads where others have
# the cores; and micro-steps so many that the model does.
report_case 1 "^the step waits for (the disk|updates in memory): " \
    "--stage 3 --offload nvme --chunk 64 --host-bytes 4K"
grep -q '^at stage 0 without offload each rank would need ' "$scratch/out"
verdict $? "what offload has spared is not said"
grep -q '^  written to files ' "$scratch/out"
verdict $? "what was written is not said"
report_case 2 "^(the step waits for|none of these alone:) " "--stage 1 --offload nvme --chunk 1024"
report_case 1 "^(the step waits for matrix products|none of these alone): " "--accumulate 32"
grep -q '^  disk: files  *-  *-  *-  *-  no files$' "$scratch/out"
verdict $? "without files there is a disk: $(grep 'disk: files' "$scratch/out")"
nothing="nothing is offloaded to nvme; give --offload nvme to use it"
grep -qxF "files: none in $scratch, as $nothing" "$scratch/out"
verdict $? "a folder that is not used is not said: $(grep '^files' "$scratch/out")"
grep -q '^  compute: .* [0-9.]* [GT]flop/s .* products in cache$' "$scratch/out"
verdict $? "nothing was measured: $(grep 'compute: ' "$scratch/out")"
# Two threads multiply for most of a step: what is busy is a clock's seconds, not theirs.
shape="--layers 1 --channels 512" \
    report_case 1 "^(the step waits for matrix products|none of these alone): " \
    "--accumulate 8 --threads 2 --dtype fp32"

# The drive's limit is that of all ranks here, of which each has its share of the probe.
disk_limit() { # ranks; prints it in MiB/s
    quiet='' XDG_CACHE_HOME=$scratch/cache run "$1" "--steps 3 --stage 3 --offload nvme"
    awk '/^  disk: files .*the drive.s probe$/ { print $5 * ($6 == "GiB/s" ? 1024 : 1) }' \
        "$scratch/out"
}
one=$(ZERO_PROBE=1 disk_limit 1)
[ -n "$one" ]
verdict $? "no disk's limit by the probe: $(grep 'disk: files' "$scratch/out")"
if have_ranks 2 "the disk's limit on 2 ranks"; then
    two=$(disk_limit 2)
    awk -v one="$one" -v two="$two" 'BEGIN { exit !(two < 1.2 * one && one < 1.2 * two) }'
    verdict $? "the disk's limit is $one MiB/s for one rank, ${two:-not known} for two"
fi

# Only skips in a row end a run: here others come between them.
shape="--layers 1 --channels 16" quiet='' run 1 "--steps 60 --dtype fp16 --loss-scale 160000"
verdict $? "a run with skips: $(cat "$scratch/err")"
skips=$(awk -F, '$4 == "nan" { n++ } END { print n + 0 }' "$scratch/log.csv")
[ "$skips" -ge 10 ] && grep -q "^60 steps in .*, $skips skipped; " "$scratch/out"
verdict $? "$skips skips in the log, in the report: $(grep ' skipped; ' "$scratch/out")"

# What was stopped ends at once: nothing is measured. Unstopped it would end within minutes.
rm -f "$scratch/log.csv"
"$gpt2" --steps 10000 --seq 32 --batch 1 --data LICENSE --log "$scratch/log.csv" \
    --offload nvme --nvme-path "$scratch" \
    >"$scratch/out" 2>"$scratch/err" &
for _ in $(seq 300); do
    grep -qs '^[1-9]' "$scratch/log.csv" && break
    sleep 0.1
done
kill -TERM $!
wait $!
[ $? = 143 ] && grep -q '^rank 0: SIGTERM stopped all ranks after step ' "$scratch/err"
verdict $? "a run that was to be stopped: $(tail -n 1 "$scratch/err")"
awk '/ (state read from|written to) files / {
        rows++; wrong += $(NF - 3) " " $(NF - 2) != $(NF - 1) " " $NF
    }
    END { exit rows != 2 || wrong }' "$scratch/out"
verdict $? "a stopped run's files: $(grep ' files ' "$scratch/out")"
grep -q '^  compute: .* not measured$' "$scratch/out"
verdict $? "a stopped run measured: $(grep 'compute: ' "$scratch/out")"
closing
