#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What users do wrong, and what happens to them: tests/wrong_use.sh GPT2 | --self-test
# Each case must end by itself, with its status, with one sentence "rank r: ..."
# of every rank that speaks and nothing else on standard error, no digest, no
# file and no process left. make check runs it: make check ONLY=wrong_use.sh.
# --self-test puts programs in gpt2's place that break each of these rules.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
limit=60 # seconds for a case: a hang is longer
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; rm -rf "$scratch"' EXIT
mkdir -p "$scratch/files" "$scratch/empty" "$scratch/read/deep"
mkfifo "$scratch/pipe"
ln -s loop "$scratch/loop"
for name in text text.part read/deep/text; do
    cp LICENSE "$scratch/$name"
done

printf words >"$scratch/words"
head -c 64 /dev/zero >"$scratch/zeros"
printf '\x88\xd8\x34\x01' >"$scratch/token.bin"
cp LICENSE "$scratch/huge"
truncate -s 1T "$scratch/huge" # more text than memory

# status | ranks | environment | options, with @ for a folder of ours | the sentence
cases() {
    cat <<'LIST'
2|3||--unknown 3|There is no option --unknown\.
2|1||--stage 4|--stage cannot be '4'\. .* 0 to 3\.
2|1||--dtype fp8|--dtype cannot be 'fp8'\. .* bf16, fp32 or fp16\.
1|1||--data @/nothing|'@/nothing' cannot be read: No such file
1|1||--seq 60000|one sequence of 60000 tokens needs 60002\.
1|1||--seq 1000 --eval-every 1|--eval-every 1 needs 1002 for one sequence\.
1|2||--data @/huge|host memory .* The text takes 1\.0 TiB of each rank's memory: give less
1|1||--eval-every 2 --eval-data @/words|5 bytes of 1 file are .* Give more with --eval-data\.
2|2||--eval-data @/words|--eval-data is for --eval-every, but that is 0\.
1|2||--eval-every 2 --eval-data @/nothing|'@/nothing' cannot be read: .* Give --eval-data files
1|1||--eval-every 2 --eval-data @/empty|No file was found under --eval-data \(links
1|1||--eval-every 2 --eval-data @/zeros|No text was found in 1 file of --eval-data: each has NUL
1|1||--eval-every 2 --eval-data @/token.bin|'@/token\.bin' is a token file and 'LICENSE' is not
1|1||--tokenizer LICENSE|--tokenizer is for token files, and --data is text
1|1||--offload nvme --nvme-path LICENSE|Cannot create a file in LICENSE: Not a dir
1|2||--offload nvme --nvme-path @/nothing|Cannot create a file in @/nothing: No such file
1|1|ZERO_DEVICE_MEMORY=1000||bytes of device memory are needed, 1000 of 1000 are free
2|2||--eps 1e-60|--eps cannot be '1e-60'\. Give 1\.2e-38 to 3\.4e38\.
1|1||--lr 3e38|zero_set_adam to lr 3e[+]38, .*within fp32\.
2|2||--loss-scale 1e300|--loss-scale is 1e[+]300, and can be 2\^-64
1|2||--offload nvme --nvme-path @/files::|'@/files::' has an empty name in it\.
1|2|ZERO_PROBE=2|--offload nvme|ZERO_PROBE is '2'\. Use 1
1|2|ZERO_DEVICE_MEMORY=many||ZERO_DEVICE_MEMORY=many is not a number of bytes\.
1|1|PMI_SIZE=2||This job has 2 ranks \(PMI_SIZE is set\)
1|1|ZERO_ISA=sse||There is no instruction set .sse.\.
1|2||--log @/nothing/run.csv|'@/nothing/run\.csv' cannot be written: No such file
1|2||--trace @/nothing/run.json|'@/nothing/run\.json' cannot be written: No such file
1|2||--log @/pipe|'@/pipe' cannot be written: nobody reads this pipe
1|1||--trace @/loop|'@/loop' cannot be written: Too many levels of symbolic links
1|1||--trace @/pipe|'@/pipe' cannot be written: nobody reads this pipe
1|2||--log @/empty/../one --trace @/one|'@/one' is the file of --log, '@/empty/\.\./one', too
1|2||--data @/text --log @/empty/../text|'@/empty/\.\./text' is the file of --data, '@/text', too
1|1||--data LICENSE @/text --trace @/text|'@/text' is the file of --data, '@/text', too
1|2||--data @/read --log @/read/deep/../new|'@/read/deep/\.\./new' lies in the folder of --data
1|1||--eval-every 2 --eval-data @/words @/text --log @/text|'@/text' is the file of --eval-data
1|2||--eval-every 2 --eval-data @/read --trace @/read/new|'@/read/new' lies in the folder of --eval-
1|2||--data @/read --log @/read/deep/text|'@/read/deep/text' lies in the folder of --data
1|2||--data @/text.part --trace @/empty/../text|'@/empty/\.\./text\.part' is the file of --data
1|2||--log @/two.part --trace @/two|'@/two\.part' is the file of --log, '@/two\.part', too
1|1||--tokenizer @/text --log @/text|'@/text' is the file of --tokenizer, '@/text', too
1|1||--log /dev/full|'/dev/full' cannot be written: No space left on device\.
1|1||--lr 1e30 --steps 50|10 steps in a row were skipped
1|2||--dtype fp16 --loss-scale 1e18 --steps 3|3 steps in a row were skipped, up to step 3, because
1|1||--dtype fp16 --loss-scale 1e18 --steps 1|1 step in a row was skipped, up to step 1, because
1|2||--lr 1e30 --steps 6|The run ends with [1-5] steps? skipped and a loss of -?nan\. Lower --lr\.
LIST
}

model=(--layers 1 --channels 16 --seq 16 --batch 1 --steps 2 --quiet)
model+=(--nvme-path "$scratch/files")
text=(--data LICENSE)

# The ids of processes that we started and that are still there.
left_running() { naming "$scratch/files"; }

# Whether standard error is one sentence of each of some ranks; of none will do
# without a pattern.
sentences() { # ranks, pattern
    [ -s "$scratch/err" ] || [ -z "$2" ] || { echo "no sentence" && return; }
    [ -z "$(tail -c 1 "$scratch/err")" ] || echo "a sentence without an end of line"
    grep -vE "^rank [0-9]+: .*$2" "$scratch/err" | sed 's/^/not the sentence: /'
    cut -d: -f1 "$scratch/err" | sort | uniq -d | sed 's/^/twice: /'
    awk -v ranks="$1" '$2 + 0 >= ranks { print "there is no " $1 " " $2 }' "$scratch/err"
}

# What is wrong with how the case ended, in lines; empty: nothing.
faults() { # expected status, status, ranks, pattern
    [ "$2" = "$1" ] || echo "exit status $2, expected $1"
    sentences "$3" "$4"
    grep '^digest' "$scratch/out"
    ls -A "$scratch/files"
    left_running | sed 's/^/still running: process /'
}

judge() { # name, then as faults
    local wrong
    without_mpirun "$scratch/err"
    wrong=$(faults "${@:2}")
    checks=$((checks + 1))
    [ -n "$wrong" ] || { echo "ok: $1" && return; }
    failures=$((failures + 1))
    echo "WRONG: $1"
    echo "$wrong"
    sed 's/^/  /' "$scratch/err"
}

run_case() { # as a line of cases, in five arguments
    local options launch=() name="${3:+$3 }gpt2 $4"
    have_ranks "$2" "$name" || return
    read -ra options <<<"${4//@/$scratch}"
    [ "$2" = 1 ] || launch=("${launcher[@]}" -n "$2")
    timeout -k 5 "$limit" env ${3:+"$3"} "${launch[@]}" "$gpt2" "${model[@]}" "${text[@]}" \
        "${options[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
    judge "$name" "$1" $? "$2" "${5//@/$scratch}"
}

# Two ranks, each with options of its own.
run_unlike() { # options of rank 0, of rank 1, pattern
    local name="gpt2 $1 : gpt2 $2"
    have_ranks 2 "$name" || return
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 sh -c "$unlike" sh "$1" "$2" "$gpt2" \
        "${model[@]}" "${text[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
    judge "$name" 1 $? 2 "$3"
}

# What is wild but no error: the run goes on to the digest of any other.
run_taken() { # ranks, NAME=VALUE... with @ for a folder of ours, options
    local name="${2:+$2 }gpt2 $3, on $1 ranks" options launch=() environment wrong=""
    have_ranks "$1" "$name" || return
    read -ra environment <<<"${2//@/$scratch}"
    read -ra options <<<"$3"
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    timeout -k 5 "$limit" env "${environment[@]}" "${launch[@]}" "$gpt2" "${model[@]}" \
        "${text[@]}" --accumulate $((6 / $1)) "${options[@]}" >"$scratch/out" \
        2>"$scratch/err" </dev/null || wrong="exit status $?"
    # Others of this user's jobs share its limit on locked memory.
    sed -i '/^libzero: warning: io_uring could not register/d' "$scratch/err"
    without_site "$scratch/err"
    wrong+=$(cat "$scratch/err" && ls -A "$scratch/files")
    grep '^digest' "$scratch/out" >"$scratch/digest" || wrong+="no digest"
    [ -e "$scratch/digest.first" ] || cp "$scratch/digest" "$scratch/digest.first"
    wrong+=$(diff "$scratch/digest.first" "$scratch/digest")
    checks=$((checks + 1))
    [ -n "$wrong" ] || { echo "ok: $name" && return; }
    failures=$((failures + 1))
    printf 'WRONG: %s\n%s\n' "$name" "$wrong"
}

run_all_taken() {
    local offload="--stage 3 --offload nvme"
    run_taken 1 "" ""
    run_taken 3 "" "$offload" # on two cores, say
    run_taken 2 "ZERO_ISA=" "--stage 1"
    run_taken 2 "ZERO_PROBE=1 XDG_CACHE_HOME=@/text" "$offload"
    run_taken 1 "XDG_CACHE_HOME= HOME=@/nothing ZERO_PROBE=" "$offload"
    run_taken 1 "SLURM_TMPDIR=@/nothing" "$offload"
    run_taken 2 "ZERO_DEVICE_MEMORY=1G" "--stage 3"
    mkdir "$scratch/in" && cp LICENSE "$scratch/in"
    text=(--data "$scratch/in")
    : >"$scratch/in.csv"
    run_taken 1 "" "--log $scratch/in.csv" # not in the folder, but beside it
    text=(--data LICENSE)
}

# Of a path that has no room in a sentence, the middle is left out.
run_long_paths() {
    local deep
    deep=$scratch/$(printf './%.0s' {1..500})nothing
    run_case 2 1 "" "--stage $deep" "--stage cannot be '/.*\.\.\..*/nothing'\. .* 0 to 3\.$"
    run_case 1 1 "" "--data $deep" "'/.*nothing' cannot be read: No such file .* can be read\.$"
    run_case 1 1 "" "--log $deep/a" "nothing/a' cannot be written: No such file .* may write to\.$"
    run_case 1 2 "" "--trace $deep/a" "nothing/a' cannot be written: No such file .* write to\.$"
    deep+=$(printf '/%.0s' {1..3100})
    run_case 1 1 "" "--trace ${deep/nothing/empty}a" "/a' cannot be written: File name too long\."
}

# A log and a trace that a run still writes are not another's, by whatever name.
run_taken_files() {
    local job tries
    ln -s taken.json "$scratch/link"
    timeout -k 5 "$limit" "$gpt2" "${model[@]:0:8}" "${text[@]}" --steps 1000000 --quiet \
        --log "$scratch/taken" --trace "$scratch/taken.json" >/dev/null 2>&1 </dev/null &
    job=$!
    for ((tries = 0; tries < 200; tries++)); do
        [ "$(wc -l 2>/dev/null <"$scratch/taken")" -ge 3 ] 2>/dev/null && break
        sleep 0.05
    done
    run_case 1 2 "" "--log @/taken" "taken' cannot be written: another run is writing to it\."
    run_case 1 2 "" "--trace @/taken" "taken' cannot be written: another run is writing to it\."
    run_case 1 2 "" "--trace @/taken.json" \
        "taken\.json' cannot be written: another run is writing to it\."
    run_case 1 1 "" "--trace @/link" "link' cannot be written: another run is writing to it\."
    kill "$job"
    wait "$job"
    awk -F, 'NR > 1 && $1 != NR - 1 { exit wrong = 1 } END { exit wrong || NR < 3 }' \
        "$scratch/taken"
    verdict $? "another run wrote into the log of a run: $(head -c 300 "$scratch/taken")"
    [ "$(tail -n 1 "$scratch/taken.json")" = "]}" ] && [ ! -e "$scratch/taken.json.part" ]
    verdict $? "another run took the trace of a run: $(ls "$scratch")"
}

# Nor is what the run itself prints written over, by whatever name.
run_printed_files() {
    local why="cannot be written: this run.s own output is written there\."
    run_case 1 1 "" "--log @/out" "out' $why .* a file of its own"
    run_case 1 1 "" "--log /dev/stderr" "'/dev/stderr' $why"
    run_case 1 1 "" "--trace @/err" "err' $why"
    run_case 1 1 "" "--trace /dev/stdout" "'/dev/stdout' $why"
}

# What is refused leaves the log and the trace of an older run as they are.
run_kept_files() {
    local name
    echo old | tee "$scratch/old.csv" >"$scratch/old.json"
    run_case 1 2 "" "--log @/old.csv --trace @/empty/../old.csv" "old\.csv' is the file of --log"
    run_case 1 2 "" "--log @/old.csv --trace @/nothing/run.json" "run\.json' cannot be written"
    run_case 1 2 "" "--log @/old.csv --trace @/old.json --lr 3e38" "zero_set_adam to lr"
    run_case 1 1 "" "--log @/old.csv --trace @/old.json --lr 3e38 --warmup 2" "zero_set_adam"
    run_case 1 1 "" "--trace @/old.json --log @/old.csv --data @/huge" "host memory"
    for name in old.csv old.json; do
        [ "$(cat "$scratch/$name")" = old ]
        verdict $? "$name, of an older run, where a command line was refused"
    done
    echo precious >"$scratch/other.json.part"
    ln -s other.json.part "$scratch/link.json.part"
    run_case 1 2 "" "--trace @/other.json" "other\.json\.part', .* is not a trace of gpt2\. Move it"
    run_case 1 1 "" "--trace @/link.json" "link\.json\.part', .* is not a trace of gpt2\. Move it"
    [ "$(cat "$scratch/other.json.part")" = precious ]
    verdict $? "other.json.part, which is no trace"
    [ ! -e "$scratch/old.json.part" ]
    verdict $? "old.json.part is left of a run that was refused"
}

run_full_disk() {
    if ! mount -t tmpfs -o size=64k tmpfs "$scratch/empty" 2>/dev/null; then
        skip "a full disk: a tmpfs cannot be mounted (root can)"
        return
    fi
    mounted=$scratch/empty
    run_case 1 2 "" "--offload nvme --nvme-path @/empty" \
        "The 2 ranks on node .* need [0-9]* bytes in @/empty .tmpfs., but only 65536 bytes are free"
    umount "$mounted" && mounted=
}

sampled() { # name
    grep -q '^sample of ' "$scratch/out"
    verdict $? "$1: no sample: $(tail -n 3 "$scratch/out")"
    told_to_its_end "$1"
}

run_full_trace() {
    have_ranks 2 "gpt2 --trace /dev/full" || return
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$gpt2" "${model[@]/--quiet/--l2}" "${text[@]}" \
        --trace /dev/full >"$scratch/out" 2>"$scratch/err" </dev/null
    local status=$?
    sampled "gpt2 --trace /dev/full"
    judge "gpt2 --trace /dev/full" 1 $status 2 "'/dev/full' could not be written to its end"
}

# A log whose disk fills is told at once, and the run goes on.
run_log_ends() {
    rm -f "$scratch/log.csv"
    (ulimit -f 4 && exec timeout -k 5 "$limit" "$gpt2" "${model[@]/--quiet/--l2}" "${text[@]}" \
        --steps 100 --log "$scratch/log.csv") 2>&1 </dev/null | cat >"$scratch/out"
    local status=${PIPESTATUS[0]}
    grep '^rank [0-9]*: ' "$scratch/out" | tail -n +2 >"$scratch/err"
    awk -v log_file="$scratch/log.csv' could not be written from the row of step " '
        { i = index($0, log_file) }
        i && / larger \(ulimit -f\)\. / { told = substr($0, i + length(log_file)) + 0 }
        /^step / { after = told && $2 + 0 > told }
        END { exit !(told > 9 && after) }' "$scratch/out"
    verdict $? "a log that ends is not told at once: $(grep '^rank ' "$scratch/out")"
    sampled "gpt2 --log beyond ulimit -f"
    judge "gpt2 --log beyond ulimit -f" 1 "$status" 1 "could not be written to its end\. .*ulimit"
}

run_full_output() {
    local options
    for options in "" --plan --help; do
        timeout -k 5 "$limit" "$gpt2" "${model[@]}" "${text[@]}" ${options:+"$options"} \
            >/dev/full 2>"$scratch/err" </dev/null
        local status=$?
        : >"$scratch/out"
        judge "gpt2 $options >/dev/full" 1 $status 1 "Standard output could not be written\."
    done
}

# What is printed nowhere is not written into the first file that is opened. A shell closes
# them behind timeout, which may open them again.
run_without_output() {
    # shellcheck disable=SC2016 # for that shell
    timeout -k 5 "$limit" sh -c 'exec "$@" <&- >&-' sh "$gpt2" "${model[@]/--quiet/--l2}" \
        "${text[@]}" --log "$scratch/log.csv" 2>"$scratch/err"
    local status=$?
    grep -v '^[0-9]*,' "$scratch/log.csv" | tail -n +2 >>"$scratch/err"
    : >"$scratch/out"
    judge "gpt2 --log <&- >&-" 1 $status 1 "Standard output could not be written\."
}

# Nobody reads what is printed, and no signal says so: the run ends, unless a log tells of it.
run_unread() {
    local name
    local -a status lines=()
    for name in "gpt2 | head -n 1" "stdbuf -oL gpt2 | head -n 1"; do
        (trap '' PIPE && exec timeout -k 5 "$limit" "${lines[@]}" "$gpt2" \
            "${model[@]/--quiet/--l2}" "${text[@]}" --steps 1000000 2>"$scratch/err" </dev/null) |
            head -n 1 >"$scratch/out"
        status=("${PIPESTATUS[@]}")
        judge "$name" 1 "${status[0]}" 1 "written: Broken pipe\. .* --log a file\."
        # It loads a library before all others, which sanitizers do not allow.
        ! ldd "$gpt2" | grep -q 'lib[at]san' || break
        lines=(stdbuf -oL)
    done
    (trap '' PIPE && exec timeout -k 5 "$limit" "$gpt2" "${model[@]/--quiet/--l2}" "${text[@]}" \
        --steps 50 --log "$scratch/log.csv" 2>"$scratch/err" </dev/null) | true
    status=("${PIPESTATUS[@]}")
    [ "$(wc -l <"$scratch/log.csv")" = 51 ]
    verdict $? "gpt2 --log | true: $(wc -l <"$scratch/log.csv") rows"
    judge "gpt2 --log | true" 1 "${status[0]}" 1 "Standard output could not be written\."
}

# Nor does another rank wait for one whose output is gone.
run_unread_ranks() {
    local name="gpt2 on 2 ranks, rank 0 with >&-"
    have_ranks 2 "$name" || return
    # shellcheck disable=SC2016 # for that shell
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 sh -c 'exec "$@" >&-' sh "$gpt2" \
        "${model[@]/--quiet/--l2}" "${text[@]}" --steps 1000000 >"$scratch/out" 2>"$scratch/err" \
        </dev/null
    judge "$name" 1 $? 1 "written: Bad file descriptor\. .* --log a file\."
}

run_all() {
    local status ranks environment options pattern
    while IFS='|' read -r status ranks environment options pattern; do
        run_case "$status" "$ranks" "$environment" "$options" "$pattern"
    done < <(cases)
    for name in text text.part read/deep/text; do
        cmp -s LICENSE "$scratch/$name"
        verdict $? "$name, input that --log or --trace names as well"
    done
    run_case 1 2 "" "--layers 1024 --channels 65536 --chunk 1M" \
        "332498 chunks, and 16777216 are the most\. Use 4194304 or more"
    text=(--data "$scratch/empty")
    run_case 1 2 "" "" "No file was found under --data \(links and folders passed over: 0\)\."
    text=(--data LICENSE)
    run_unlike "--stage 1" "--stage 2" \
        "Ranks differ in \.stage: rank [01] has [12], rank [01] has [12]\."
    run_unlike "--steps 3" "--steps 4" "not given the same --steps: it is [34] on this one"
    run_unlike "--lr 1e-3" "--lr 1e-4" "not given the same --lr: it is 0.0*1 on this one"
    run_unlike "" "--log $scratch/unlike" "not given the same --log\. Start every rank"
    run_unlike "" "--data README.md" "not given the same text; this one read [12] files?"
    run_unlike "--eval-every 2" "--eval-every 2 --eval-data README.md" \
        "not given the same --eval-data\. Start every rank"
    run_unlike "--eval-every 2 --eval-data $scratch/text" "--eval-every 2 --eval-data README.md" \
        "not given the same text; .* same files under --data and --eval-data\."
    run_all_taken
    model=("${model[@]:0:11}") # the folder of files as the environment says
    run_case 1 2 "SLURM_TMPDIR=$scratch/nothing" "--offload nvme" \
        "Cannot create a file in $scratch/nothing: No such file"
    model+=(--nvme-path "$scratch/files")
    run_long_paths
    run_taken_files
    run_printed_files
    run_kept_files
    run_full_output
    run_full_trace
    run_log_ends
    run_without_output
    run_unread
    run_unread_ranks
    run_full_disk
}

# What stands in for gpt2 where a case asks for status 1 and "what, and why".
broken() {
    cat <<'LIST'
ok|echo "rank 0: what, and why." >&2; exit 1
WRONG|echo "rank 0: what, and why." >&2; exit 2
WRONG|echo "rank 0: what, and why." >&2
WRONG|exit 1
WRONG|kill -SEGV $$
WRONG|exec sleep 99
WRONG|echo "what, and why." >&2; exit 1
WRONG|echo "rank 0: what, and why not." >&2; exit 1
WRONG|printf "rank 0: what, and why." >&2; exit 1
WRONG|echo "rank 1: what, and why." >&2; exit 1
WRONG|echo "rank 0: what, and why." >&2; echo "rank 0: what, and why." >&2; exit 1
WRONG|echo "rank 0: what, and why." >&2; echo "core dumped" >&2; exit 1
WRONG|echo "rank 0: what, and why." >&2; echo "digest"; exit 1
WRONG|echo "rank 0: what, and why." >&2; touch "$TMPDIR/a"; exit 1
WRONG|echo "rank 0: what, and why." >&2; (sleep 5; exit "$TMPDIR") & exit 1
LIST
}

self_test() {
    local verdict script output tested=0 missed=0
    gpt2=$scratch/gpt2 limit=10
    export TMPDIR=$scratch/files
    while IFS='|' read -r verdict script; do
        printf '#!/bin/bash\n%s\n' "$script" >"$gpt2"
        chmod +x "$gpt2"
        [[ $script != *99* ]] || limit=1
        output=$(run_case 1 1 "" "" "what, and why\.$")
        limit=10
        rm -f "$scratch/files/"*
        tested=$((tested + 1))
        [ "${output%%:*}" = "$verdict" ] && continue
        missed=$((missed + 1))
        printf 'expected %s of: %s\n%s\n' "$verdict" "$script" "$output"
    done < <(broken)
    checks=$tested failures=$missed
}

if [ "${1-}" = --self-test ]; then
    self_test
else
    gpt2=${1:?"give gpt2: tests/wrong_use.sh GPT2 | --self-test"}
    site=$(uring_refused "$(dirname "$gpt2")")
    run_all
fi
closing
