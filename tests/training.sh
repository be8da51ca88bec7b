#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpt2 trains as its options say: tests/training.sh GPT2
# The learning rate of each step is that of the formula; what is held out is not trained on; a
# loss of it that is not finite is told. Make it run by: make check ONLY=training.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/training.sh GPT2"}
. tests/support/verdicts.sh

run() { # options; leaves log.csv, out and err
    timeout -k 5 60 "$gpt2" --layers 1 --channels 64 --seq 32 --batch 4 --dtype fp32 --sample 0 \
        --log "$scratch/log.csv" "$@" >"$scratch/out" 2>"$scratch/err"
    verdict $? "$* failed: $(cat "$scratch/err")"
}

# Up to its highest value in step 3, then along half a cosine to a tenth of it in step 10.
run --steps 12 --warmup 3 --decay 9 --lr 2e-3 --data LICENSE
log_column lr "$scratch/log.csv" >"$scratch/lr"
awk 'BEGIN { pi = atan2(0, -1); for (step = 0; step < 12; step++) {
         part = step < 9 ? (step - 3) / 6 : 1
         print step < 3 ? 2e-3 * (step + 1) / 3 : 2e-3 * (0.1 + 0.45 * (1 + cos(pi * part))) } }' |
    paste - "$scratch/lr" >"$scratch/both"
awk '{ d = $1 / $2 - 1; wrong += d * d > 1e-9 } END { exit wrong || NR != 12 }' "$scratch/both"
verdict $? "the learning rates were $(tr '\n' ' ' <"$scratch/lr")"

# The 20th file has one letter alone, which the others have not.
mkdir "$scratch/text"
for i in {01..20}; do
    yes "$([ "$i" = 20 ] && echo Z || echo abcdefg)" | tr -d '\n' | head -c 4096 \
        >"$scratch/text/$i.txt"
done
run --steps 30 --lr 1e-2 --eval-every 30 --data "$scratch/text"
loss=$(log_column loss "$scratch/log.csv" | tail -n 1)
held=$(log_column eval_loss "$scratch/log.csv" | tail -n 1)
awk -v loss="$loss" -v held="$held" 'BEGIN { exit !(loss < 1 && held > 5) }'
verdict $? "trained to $loss, and what was held out has $held"
digest=$(tail -n 1 "$scratch/out")

# It is measured every so many steps and behind the last one, and told at the end.
run --steps 7 --eval-every 3 --data "$scratch/text"
log_column eval_loss "$scratch/log.csv" >"$scratch/held"
measured=$(grep -n . "$scratch/held" | cut -d: -f 1 | xargs)
[ "$measured" = "3 6 7" ] &&
    grep -q "; mean loss of the last 7: [0-9.]*, held out after step 7: $(
        awk 'END { printf "%.4f", $1 }' "$scratch/held")\$" "$scratch/out"
verdict $? "every 3 of 7 steps was behind $measured, told as: $(grep 'mean loss' "$scratch/out")"

# What is named for it is held out and nothing else: the 20th file is the same run again, and where
# it is another one, also by another name, that one is not trained on and the 20th is.
run --steps 30 --lr 1e-2 --eval-every 30 --data "$scratch/text" --eval-data "$scratch/text/20.txt"
[ "$(log_column eval_loss "$scratch/log.csv" | tail -n 1)" = "$held" ] &&
    [ "$(tail -n 1 "$scratch/out")" = "$digest" ]
verdict $? "the 20th file named: $(tail -n 1 "$scratch/out"), and not named: $digest"
ln -s text/01.txt "$scratch/first"
run --steps 30 --lr 1e-2 --eval-every 30 --data "$scratch/text" --eval-data "$scratch/first"
awk -v held="$(log_column eval_loss "$scratch/log.csv" | tail -n 1)" 'BEGIN { exit !(held < 1) }' &&
    grep -q '^text: 20 files, 76.0 KiB to train on, 4.0 KiB held out (1 file), 0 passed over' \
        "$scratch/out" && [ "$(tail -n 1 "$scratch/out")" != "$digest" ]
verdict $? "the first file named: $(grep '^text\|mean loss' "$scratch/out")"

# A letter of two bytes, which are two tokens, is one in the sample, and no byte is lost.
for _ in {1..64}; do printf '\xd0\xb6%.0s' {1..32} && echo; done >"$scratch/letter"
run --steps 300 --lr 1e-2 --sample 41 --temperature 0 --data "$scratch/letter"
grep -q $'^  | \\(\xd0\xb6\\)\\{20\\}\\\\xd0$' "$scratch/out"
verdict $? "of a letter of two bytes there is: $(grep '^  |' "$scratch/out")"

# What bounds a step is told of steps alone: measuring what is held out takes longer than one here.
run --steps 40 --eval-every 1 --data LICENSE
mean=$(log_column step_ms "$scratch/log.csv" | awk '{ sum += $1 } END { print sum / NR }')
told=$(sed -n 's/^the step waits for .* of its \(.*\) s$/\1/p
    s/^none of these alone: of a step.s \([^ ]*\) s .*/\1/p' "$scratch/out")
awk -v mean="$mean" -v told="$told" 'BEGIN { exit !(told > 0 && 1e3 * told < 2.5 * mean) }'
verdict $? "a step takes $mean ms, and what bounds it is told of '$told' s"

# Where nothing will be evaluated, what is held out may be too short for it.
run --steps 2 --eval-every 3 --batch 1 --seq 1000 --data LICENSE
[ -z "$(log_column eval_loss "$scratch/log.csv" | xargs)" ] &&
    grep -q 'mean loss of the last 2: [0-9.]*$' "$scratch/out"
verdict $? "--eval-every 3 of 2 steps: $(grep 'mean loss' "$scratch/out")"

# Threads that take turns on one CPU have one CPU's limit. (What else runs on it takes a smaller
# share from four threads than from one: the most that one had counts, in one of five tries.)
cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
for _ in 1 2 3 4 5; do
    for threads in 1 1 1 4; do
        taskset -c "$cpu" "$gpt2" --layers 1 --channels 64 --seq 32 --batch 4 --dtype fp32 \
            --sample 0 --steps 1 --data LICENSE --threads $threads 2>"$scratch/err" |
            sed -n 's|^  compute: matrix products .* Gflop/s  *\([0-9.]*\) Gflop/s .*|\1|p'
    done >"$scratch/limits"
    awk 'NR < 4 && $1 > most { most = $1 } END { exit !(NR == 4 && $1 > 0 && $1 < 2.5 * most) }' \
        "$scratch/limits" && break
done
verdict $? "one CPU's limit is $(xargs <"$scratch/limits") Gflop/s for 1, 1, 1 and 4 threads"

# Links beside token files are passed over, and told of.
mkdir "$scratch/tokens"
printf '\x88\xd8\x34\x01\1\0\0\0\xd0\7\0\0' >"$scratch/tokens/a.bin" # 2000, all of them 0
truncate -s 5024 "$scratch/tokens/a.bin"
ln -s a.bin "$scratch/tokens/b.bin"
run --steps 1 --data "$scratch/tokens"
grep -q '^tokens: 1 file, 1900 to train on, 100 held out (0 files), 1 passed over (links)$' \
    "$scratch/out"
verdict $? "a link beside token files: $(grep '^tokens' "$scratch/out")"

# A step's row is there also where what is held out, the 20th file, cannot be read behind it.
for i in {01..20}; do
    printf '\x88\xd8\x34\x01\1\0\0\0\xd0\7\0\0' >"$scratch/tokens_$i.bin" # 2000 tokens of version 1
    truncate -s 5024 "$scratch/tokens_$i.bin"
done
timeout -k 5 60 "$gpt2" --layers 1 --channels 64 --seq 32 --batch 1 --sample 0 --steps 100000 \
    --eval-every 100 --log "$scratch/cut.csv" --data "$scratch"/tokens_*.bin \
    >"$scratch/out" 2>"$scratch/err" &
for ((tries = 0; tries < 500; tries++)); do
    [ "$(wc -l 2>/dev/null <"$scratch/cut.csv")" -ge 3 ] 2>/dev/null && break
    sleep 0.02
done
rm "$scratch/tokens_20.bin"
wait $!
[ $? = 1 ] && grep -q "tokens_20.bin' is not what it was when the run began" "$scratch/err" &&
    [[ $(log_column step "$scratch/cut.csv" | tail -n 1) =~ ^[1-9][0-9]*00$ ]] &&
    [ -z "$(log_column eval_loss "$scratch/cut.csv" | tail -n 1)" ]
verdict $? "a held-out file that goes: $(cat "$scratch/err") $(tail -n 1 "$scratch/cut.csv")"

# Tokens of two files: the same bits on one rank and on two, each of which looks at its half of
# them, so that one alone meets what is no token.
tokens_of() { # text
    local count
    count=$(wc -c <"$1")
    printf '\x88\xd8\x34\x01\1\0\0\0'
    printf '%b' "$(printf '\\x%02x' $((count & 255)) $((count >> 8 & 255)) $((count >> 16)) 0)"
    head -c 1012 /dev/zero
    iconv -f latin1 -t utf-16le "$1"
}

many() { # ranks, options: digest, or what was said
    "${launcher[@]}" -n "$1" timeout -k 5 60 "$gpt2" --layers 1 --channels 64 --seq 32 --batch 1 \
        --sample 0 --steps 3 --quiet --data "$scratch"/{first,second}.bin "${@:2}" 2>&1 </dev/null
}

if have_ranks 2 "tokens of two files"; then
    head -c 9000 LICENSE >"$scratch/first"
    cat <(tail -c +9001 LICENSE) LICENSE{,} >"$scratch/second"
    for i in first second; do tokens_of "$scratch/$i" >"$scratch/$i.bin"; done
    one=$(many 1 --accumulate 2)
    two=$(many 2 --stage 3 --offload nvme --nvme-path "$scratch")
    [[ $one == digest* ]] && [ "$two" = "$one" ]
    verdict $? "tokens of two files give '$one' on one rank, and '$two' on two"
    printf '\x51\xc4' | dd of="$scratch/second.bin" bs=1 seek=21024 conv=notrunc status=none
    two=$(many 2)
    drops_sentences || [ "$(grep -c "second.bin' has 50257 as token 10000, and" <<<"$two")" = 1 ]
    verdict $? "no token, and two ranks say: $two"
fi

# Parameters that one update has ruined.
run --steps 1 --lr 1e37 --clip 0 --eval-every 1 --data LICENSE
held=$(log_column eval_loss "$scratch/log.csv")
[[ $held = *nan ]] && grep -q 'held out -\?nan' "$scratch/out"
verdict $? "a loss that is not finite is '$held' in the log, and: $(grep '^step' "$scratch/out")"
closing
