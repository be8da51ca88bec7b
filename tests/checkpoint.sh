#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run that goes on from --checkpoint ends as one that was never interrupted:
# tests/checkpoint.sh GPT2
# On other ranks, at other stages and places; stopped, killed while it writes, on a disk that is
# full. What is damaged or another's is refused. Make it run by: make check ONLY=checkpoint.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/checkpoint.sh GPT2"}
. tests/support/verdicts.sh

file=$scratch/run.safetensors shape="--layers 2 --channels 48 --heads 3"
site=$(uring_refused "$(dirname "$gpt2")")

run() { # ranks, options; leaves out and err
    local launch=() options
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    read -ra options <<<"$2 $shape --seq 32 --batch 2 --sample 0 --data LICENSE --decay 40"
    timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" --nvme-path "$scratch" \
        >"$scratch/out" 2>"$scratch/err"
    local status=$?
    without_site "$scratch/err"
    return $status
}

digest() {
    grep '^digest ' "$scratch/out"
}

# From two steps to the sixth and to the ninth, each as it says: what has run without a break must
# come out. Nobody says a word of what does not matter.
goes_on() { # options of all, then of each part: ranks, options
    local whole steps=2
    run 1 "--steps 9 --accumulate 2 $1"
    whole=$(digest)
    rm -f "$file"
    for part in "${@:2}"; do
        have_ranks "${part%% *}" "$part" || return
        run "${part%% *}" "--steps $steps $1 ${part#* } --checkpoint $file"
        [ $? = 0 ] && [ ! -s "$scratch/err" ]
        verdict $? "$1, then $part, step $steps: $(cat "$scratch/err")"
        steps=$((steps == 2 ? 6 : 9))
    done
    [ -n "$whole" ] && [ "$(digest)" = "$whole" ]
    verdict $? "$*: $(digest) instead of $whole"
    [ ! -e "$file.part" ]
    verdict $? "$*: $file.part is left"
}

goes_on "--dtype bf16" "1 --accumulate 2" "1 --accumulate 2 --stage 3 --offload nvme" \
    "1 --accumulate 2 --offload cpu --state split"
goes_on "--dtype fp32 --clip 0.1" "2 --stage 3" "1 --accumulate 2" "2 --stage 2 --offload nvme"
goes_on "--dtype fp16" "1 --accumulate 2" "2 --stage 3 --offload cpu" "2 --stage 0"

# Its log goes on, too: rows of steps that are made anew are replaced.
rm -f "$file"
run 1 "--steps 4 --accumulate 2 --log $scratch/log.csv --checkpoint $file --checkpoint-every 3"
cp "$file" "$scratch/at4" && sed -i 's/^4,.*/5,unlike,/' "$scratch/log.csv"
echo "6,half" >>"$scratch/log.csv"
run 1 "--steps 7 --accumulate 2 --log $scratch/log.csv --checkpoint $file"
[ "$(log_column step "$scratch/log.csv" | xargs)" = "1 2 3 5 6 7" ] &&
    ! grep -q unlike "$scratch/log.csv"
verdict $? "the log has the steps $(log_column step "$scratch/log.csv" | xargs)"

# A log that is a pipe has no rows of before.
mkfifo "$scratch/pipe"
cat "$scratch/pipe" >"$scratch/piped" &
run 1 "--steps 8 --accumulate 2 --log $scratch/pipe --checkpoint $file"
[ $? = 0 ] && wait $! && [ "$(log_column step "$scratch/piped" | xargs)" = 8 ]
verdict $? "a log in a pipe: $(cat "$scratch/err" "$scratch/piped")"
cp "$scratch/at4" "$file"
run 1 "--steps 7 --accumulate 2 --checkpoint $file"

# What is written is safetensors.
if command -v python3 >/dev/null; then
    python3 - "$file" 2>"$scratch/err" <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
said = header.pop("__metadata__")
assert size % 8 == 0 and said["format"] == "libzero gpt2 1" and said["step"] == "7", said
assert all(isinstance(value, str) for value in said.values()), said
at = 0
for name, tensor in header.items():
    elements = 1
    for extent in tensor["shape"]:
        elements *= extent
    assert tensor["dtype"] == "F32" and tensor["data_offsets"] == [at, at + 4 * elements], name
    at += 4 * elements
assert 8 + size + at == len(data)
assert header["h.1.attn.c_attn.weight"]["shape"] == [48, 144]
bias = header["exp_avg_sq.ln_f.bias"]["data_offsets"]
square = struct.unpack("<48f", data[8 + size:][bias[0]:bias[1]])
assert all(value > 0 for value in square), square
PYTHON
    verdict $? "not safetensors: $(tail -n 1 "$scratch/err")"
else
    skip "the format: needs python3"
fi

# Where other steps are made than before it is said, once for each reason.
run 1 "--steps 8 --accumulate 2 --lr 2e-3 --seed 2 --checkpoint $file"
[ $? = 0 ] && [ "$(grep -c "was written by a run with another --" "$scratch/err")" = 2 ] &&
    grep -q "another --lr: it was 0.001, and is 0.002 now\. The run goes on" "$scratch/err"
verdict $? "another rate and seed: $(cat "$scratch/err")"

cp "$file" "$scratch/other"
run 1 "--steps 9 --accumulate 2 --eval-every 9 --eval-data README.md --checkpoint $scratch/other"
[ $? = 0 ] && grep -q "another --data or --eval-data\. The run goes on" "$scratch/err"
verdict $? "other files held out: $(cat "$scratch/err")"

refused() { # ranks, what is wrong, options, sentence; the file stays as it is
    have_ranks "$1" "$2" || return
    local before
    before=$(cksum "$file" 2>/dev/null)
    run "$1" "--steps 9 --accumulate 2 --checkpoint $file $3"
    local status=$?
    [ $status = 1 ] && [ "$(grep -c '^rank' "$scratch/err")" -ge 1 ] && grep -q "$4" "$scratch/err"
    verdict $? "$2: status $status, $(cat "$scratch/err")"
    [ "$(cksum "$file" 2>/dev/null)" = "$before" ] && [ ! -e "$file.part" ]
    verdict $? "$2: what was there has changed"
}

kept=$scratch/kept
cp "$file" "$kept"
size=$(stat -c %s "$file")
shape="--layers 2 --channels 64 --heads 4"
refused 2 "another model" "" "another --channels: it was 48, and is 64 now\. Give --checkpoint ano"
shape="--layers 2 --channels 48 --heads 3"
refused 1 "nothing left" "--steps 8" "has step 8 already, and --steps is 8\. Give more --steps"
truncate -s $((size - 4)) "$file"
refused 2 "a file cut" "" "has $((size - 4)) bytes instead of $size\."
cp "$kept" "$file" && printf '\x40' | dd of="$file" bs=1 seek=$((size - 9)) conv=notrunc 2>/dev/null
refused 2 "a flipped bit" "" "is damaged: its values are not those that were saved\."
sed 's/h\.1\.ln_1\.weight/h.9.ln_1.weight/' "$kept" >"$file"
refused 1 "another tensor" "" "is damaged: its header is not this model's\."
sed 's/"step":"[0-9]*"/"stop":"0"/' "$kept" >"$file"
refused 1 "no step" "" "is damaged: its header is not this model's\."
echo text >"$file"
refused 2 "a text" "" "is not a checkpoint of gpt2\. Give --checkpoint another file, or move"
rm "$file" && mkdir "$file"
refused 1 "a folder" "" "is not a regular file\."
rmdir "$file"
cp "$kept" "$file"
ln "$file" "$scratch/same"
refused 1 "the log's file" "--log $scratch/same" "is the file of --log, too\. Give --checkpoint ano"
refused 1 "the trace's file" "--trace $scratch/same" "is the file of --trace, too\. Give --checkpo"
refused 1 "the text's file" "--data LICENSE $file" "is the file of --data, '.*', too\. Give --check"
refused 1 "what is held out" "--eval-every 2 --eval-data $file" "is the file of --eval-data, "
rm "$file" "$scratch/same"
echo precious >"$file.part"
run 1 "--steps 2 --checkpoint $file"
[ $? = 1 ] && grep -q "exists already and is not one of gpt2\. Move it" "$scratch/err" &&
    [ "$(cat "$file.part")" = precious ]
verdict $? "a file of another's: $(cat "$scratch/err")"
rm -f "$file.part"
run 1 "--steps 2 --checkpoint $scratch/none/file"
[ $? = 1 ] && grep -q "none/file' cannot be written: No such file or directory\." "$scratch/err"
verdict $? "no folder: $(cat "$scratch/err")"

# A disk that fills: it is said each time, the run goes on to its end and fails, and of an older
# run all is there.
cp "$kept" "$file"
(
    ulimit -f 100
    run 1 "--steps 12 --accumulate 2 --checkpoint $file --checkpoint-every 2"
)
[ $? = 1 ] && [ "$(grep -c "' cannot be written: .*ulimit" "$scratch/err")" = 2 ] &&
    [ "$(grep -c 'The run goes on\.$' "$scratch/err")" = 1 ]
verdict $? "a full disk: $(cat "$scratch/err")"
told_to_its_end "a full disk"
cmp -s "$kept" "$file" && [ ! -e "$file.part" ]
verdict $? "a full disk: the older checkpoint has changed"

# Other steps are told of; a loss scale that adapts begins where it was, or anew.
run 1 "--steps 1 --accumulate 2 --checkpoint $scratch/scaled"
run 1 "--steps 3 --accumulate 2 --dtype fp16 --checkpoint $scratch/scaled"
[ "$(sed -n 's/^step .* | scale \([0-9]*\)$/\1/p' "$scratch/out" | xargs)" = "65536 65536" ]
verdict $? "fp16 behind bf16: $(grep '^step' "$scratch/out")"
run 1 "--steps 4 --accumulate 2 --dtype fp16 --loss-scale 4 --checkpoint $scratch/scaled"
grep -q "another --loss-scale: it was 0, and is 4 now\. The run goes on" "$scratch/err"
verdict $? "another loss scale: $(cat "$scratch/err")"

# A disk that is too small is told of before the first step; what a killed run has left there goes.
mkdir "$scratch/small"
if mount -t tmpfs -o size=2m tmpfs "$scratch/small" 2>/dev/null; then
    trap 'umount "$scratch/small"; rm -rf "$scratch"' EXIT
    run 1 "--steps 1 --accumulate 2 --checkpoint $scratch/small/f"
    cp "$scratch/small/f" "$scratch/small/f.part"
    run 1 "--steps 2 --accumulate 2 --checkpoint $scratch/small/f"
    verdict $? "a small disk with a part: $(cat "$scratch/err")"
    head -c 500000 /dev/zero >"$scratch/small/full"
    run 1 "--steps 3 --accumulate 2 --checkpoint $scratch/small/f"
    [ $? = 1 ] && [ "$(cd "$scratch/small" && echo ./*)" = "./f ./full" ] &&
        grep -q "will take [0-9.]* KiB beside what is there, and [0-9.]* KiB are" "$scratch/err"
    verdict $? "a small disk that is full: $(cat "$scratch/err")"
else
    skip "a small disk: a tmpfs cannot be mounted (root can)"
fi

# Trains on and on behind what others check, and has made three steps more when this returns.
begin() { # options; leaves job, and gpt2's own pid
    local before tries
    before=$(cat "$log" 2>/dev/null | wc -l)
    timeout -k 5 120 "$gpt2" --layers 2 --channels 48 --heads 3 --seq 32 --batch 2 --sample 0 \
        --data LICENSE --decay 40 --accumulate 2 --steps 1000000 --log "$log" \
        --checkpoint "$file" "$@" >"$scratch/out" 2>"$scratch/err" &
    job=$!
    for ((tries = 0; tries < 3000; tries++)); do
        [ "$(cat "$log" 2>/dev/null | wc -l)" -gt $((before + 3)) ] && break
        sleep 0.01
    done
    # shellcheck disable=SC2046 # these are processes
    pid=$(rank_among '' "$gpt2" $(naming "$log"))
}

# The step of the checkpoint.
made() {
    head -c 4096 "$file" 2>/dev/null | grep -ao '"step":"[0-9]*"' | tr -dc 0-9
}

# Its log has each step once, and its digest is that of a run without a break.
ends_alike() { # what happened
    local steps=$(($(made) + 1)) whole
    run 1 "--steps $steps --accumulate 2"
    whole=$(digest)
    run 1 "--steps $steps --accumulate 2 --log $log --checkpoint $file"
    [ -n "$whole" ] && [ "$(digest)" = "$whole" ] && [ ! -e "$file.part" ]
    verdict $? "$1, step $steps: $(digest) instead of $whole, $(cat "$scratch/err")"
    [ "$(log_column step "$log" | xargs)" = "$(seq -s ' ' "$steps")" ]
    verdict $? "$1, step $steps: the log has $(log_column step "$log" | xargs)"
}

# One that a signal stops goes on where it was. Meanwhile no other one has its checkpoint.
log=$scratch/stopped.csv
rm -f "$file"
begin --checkpoint-every 500
for _ in {1..3000}; do
    [ -s "$file" ] && break
    sleep 0.01
done
timeout -k 5 60 "$gpt2" --layers 2 --channels 48 --heads 3 --seq 32 --batch 2 --data LICENSE \
    --steps 501 --checkpoint "$file" >/dev/null 2>"$scratch/other.err"
[ $? = 1 ] && grep -q "' cannot be written: another run is writing to it\." "$scratch/other.err"
verdict $? "two runs with one checkpoint: $(cat "$scratch/other.err")"
kill -TERM "$pid"
wait "$job"
status=$?
[ $status = 143 ] && grep -q "after step $(made) of 1000000\. It goes on from its checkpoint: to" \
    "$scratch/err"
verdict $? "stopped: status $status, step $(made), $(cat "$scratch/err")"
ends_alike "stopped"

# However it is killed there is a whole one, no older than the last, and what is left is cleared.
log=$scratch/killed.csv last=0
rm -f "$file"
for round in 1 2 3 4 5 6; do
    begin --checkpoint-every 1
    sleep "0.0$((round * 3 % 10))"
    { kill -KILL "$pid" && wait "$job"; } 2>/dev/null
    step=$(made)
    [ "${step:-0}" -gt "$last" ]
    verdict $? "killed: step ${step:-none} behind step $last, $(cat "$scratch/err")"
    last=${step:-0}
done
ends_alike "killed"

closing
