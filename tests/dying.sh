#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that die, stop or are told to end: tests/dying.sh GPT2 HIT [all] | --self-test
# HIT is tests/hit.c, which lets a rank signal itself at a call of its own. Each
# run ends by itself, with its status and its sentences, and leaves no process, no
# file, nothing of Open MPI; log and trace are whole, or there is none. What Open
# MPI does leave, when mpirun itself is killed, is its own: a session folder and
# segments. make check runs it: make check ONLY=dying.sh; make check-all runs all.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
export ZERO_PROBE=0 # so many writes at once as ever
limit=90 settling=100 # seconds for a run: a hang is longer

mkdir "$scratch/files" "$scratch/shared" "$scratch/session"
open_mpi_files "$scratch/shared" "$scratch/session"
job='' hit='' slow='' data=LICENSE
ulimit -c 0
model=(--layers 2 --channels 32 --seq 32 --batch 1 --stage 3 --offload nvme)
model+=(--ring posix --nvme-path "$scratch/files" --quiet)
model+=(--log "$scratch/log.csv" --trace "$scratch/trace.json")

# The ids of processes that we started and that are still there.
left_running() { naming "$scratch/files"; }

clean_up() {
    local pid
    for pid in $(left_running); do
        kill -KILL "$pid"
    done
    rm -rf "$scratch"
}
trap clean_up EXIT

# Starts a run, which finds nothing of the one before; its job is in $job.
start() { # ranks, options
    local launch=() options both=$hit$slow
    read -ra options <<<"$2"
    rm -f "$scratch/log.csv" "$scratch/trace.json" "$scratch/out" "$scratch/err"
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1" ${both:+-x "LD_PRELOAD=$preload"}
        ${hit:+-x "HIT=$hit"} ${slow:+-x "SLOW=$slow"})
    timeout -k 5 "$limit" "${launch[@]}" "$gpt2" "${model[@]}" --data "$data" "${options[@]}" \
        >"$scratch/out" 2>"$scratch/err" </dev/null &
    job=$!
}

until_true() { # a command, asked while the job lives; or else ends it
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        "$@" && return
        kill -0 "$job" 2>/dev/null || return
        sleep 0.05
    done
    kill "$job"
}

rows() { [ -s "$scratch/log.csv" ] && [ "$(wc -l <"$scratch/log.csv")" -gt "$1" ]; }

# The process of a rank. 0 would be ours.
rank_pid() { # rank, of ranks
    # shellcheck disable=SC2046 # these are numbers
    rank_among "$([ "$2" = 1 ] || echo "$1")" "$gpt2" $(left_running)
}

stopped() { grep -qs '^State:.T' "/proc/$(rank_pid "$1" "$2")/status"; }

mpirun_pid() {
    local pid
    for pid in $(left_running); do
        [[ $(readlink "/proc/$pid/exe") != *orterun && $(readlink "/proc/$pid/exe") != *mpirun ]] ||
            echo "$pid"
    done
}

# --------------------------------------------------------------------- verdicts

# Standard error, without what Open MPI says when a peer dies, and what an engine does where a
# peer was stopped within a transfer and not between two.
said() {
    sed -e '/^\[[^]]*:[0-9]*\] /d' -e '/^\[warn\] /d' \
        -e '/^libzero: warning: io_uring could not register/d' \
        -e '/^libzero: warning: rank [0-9]*: zero_destroy: transfers that were given up may/d' \
        -e '/Using pread and pwrite instead\.$/d' "$scratch/err"
}

# Rows are whole and numbered; with a number, so many.
log_faults() {
    [ -e "$scratch/log.csv" ] || { [ -z "$1" ] || echo "there is no log"; return; }
    [ -z "$(tail -c 1 "$scratch/log.csv")" ] || echo "the log ends within a row"
    awk -F, -v rows="$1" 'NF != 15 || (NR > 1 && $1 != NR - 1) { print "a row of the log: " $0 }
        END { if (rows != "" && NR != rows + 1) print NR - 1 " rows, and " rows " steps" }' \
        "$scratch/log.csv"
}

trace_faults() {
    # Empty it may be, of a rank that was killed before it wrote.
    [ ! -s "$scratch/trace.json.part" ] || echo "a part of a trace is left"
    [ -e "$scratch/trace.json" ] || return
    head -c 15 "$scratch/trace.json" | grep -q '^{"displayTimeUn' || echo "the trace has no begin"
    [ "$(tail -n 1 "$scratch/trace.json")" = "]}" ] || echo "the trace has no end"
    command -v python3 >/dev/null || return
    python3 -m json.tool "$scratch/trace.json" 2>&1 >/dev/null | sed 's/^/the trace: /'
}

left() {
    find "$scratch/files" "$scratch/shared" "$scratch/session" -mindepth 1
    left_running | sed 's/^/still running: process /'
}

# A process that was killed is gone soon.
settle() {
    local tries
    for ((tries = 0; tries < settling; tries++)); do
        [ -n "$(left)" ] || return
        sleep 0.05
    done
}

# What is wrong with how a run ended, in lines. The pattern is the whole of what
# was said, line by line in the order of the ranks; digest: none, or that line.
faults() { # expected status, status, pattern, digest, rows
    [ "$2" = "$1" ] || echo "exit status $2, expected $1"
    [[ $(said | sort | tr '\n' '~') =~ ^($3)$ ]] || echo "was said: $(said)"
    [ "$(grep '^digest' "$scratch/out")" = "$4" ] || echo "digest: $(grep '^digest' "$scratch/out")"
    log_faults "$5"
    trace_faults
    settle
    left
}

ends() { # name, expected status, pattern, digest, rows
    local status wrong
    wait "$job"
    status=$?
    without_mpirun "$scratch/err"
    wrong=$(faults "$2" "$status" "$3" "${4-}" "${5-}")
    verdict "$([ -z "$wrong" ]; echo $?)" "$1: $wrong"
    rm -rf "$scratch/files/"* "$scratch/shared/"* "$scratch/session/"* "$scratch/trace.json.part"
}

# Steps that the sentence of a run that was stopped tells of.
steps_told() {
    sed -n 's/^rank 0: SIG[A-Z]* stopped all ranks after step \([0-9]*\) of.*/\1/p' "$scratch/err"
}

ends_well() { # name, expected status, SIGNAL
    wait "$job"
    local status=$?
    job=
    (exit "$status") & job=$!
    [ -e "$scratch/trace.json" ] || echo "a run without a trace" >>"$scratch/err"
    ends "$1" "$2" "rank 0: $3 stopped all ranks after step [0-9]+ of 1000000\. Nothing [^~]*~" "" \
        "$(steps_told)"
}

# ------------------------------------------------------------------------ cases

# What stands where a rank is hit; counted in a model of 4 units.
moments() {
    cat <<'LIST'
creation|MPI_Comm_dup 1
forward|MPI_Isend 60
update|pwrite 7
verdict|MPI_Iallreduce 9
end|MPI_Comm_free 2
LIST
}

calm() { # ranks, options: the digest of a run that is left alone
    hit=''
    start "$1" "--steps 6 ${2-}"
    wait "$job"
    calm=$(grep '^digest' "$scratch/out")
    verdict "$([ -n "$calm" ]; echo $?)" "an undisturbed run failed: $(cat "$scratch/err")"
}

dies() { # ranks, rank, moment, SIGNAL, status
    local calm='' ring=auto
    [ "$3" != end ] || calm "$1"
    hit="$2 $(moments | sed -n "s/^$3|//p") $(kill -l "$4")"
    [ "$3" != update ] || ring=posix # which is hit
    start "$1" "--steps 6 --ring $ring"
    ends "rank $2 of $1 dies of SIG$4, $3" "$5" "(rank [0-9]+: [^~]*~)*" "$calm"
    hit=''
}

# Who waited names it, the others hear of that; so does it, when it is ended.
hangs() { # ranks, rank, moment, deadline
    local one="did not arrive at the [a-z_ -]+( of unit [0-9])? within $4 s .rank [0-9] waited."
    local who="rank [0-9]: (after SIGTERM: )?" # mpirun may be quicker than a rank speaks
    local overdue="${who}Rank $2 ${one}[^~]*~"
    local heard="${who}Rank [0-9] gave up before message [^~]*~"
    hit="$2 $(moments | sed -n "s/^$3|//p") $(kill -l STOP)"
    start "$1" "--steps 6 --deadline $4"
    local said="(${heard}|${overdue})*${overdue}(${heard}|${overdue})*"
    ! drops_sentences || said="(${heard}|${overdue})+"
    ends "rank $2 of $1 hangs, $3" 1 "$said"
    hit=''
}

# MPI's own end has a deadline, too, of ten seconds or more.
hangs_at_end() {
    local calm
    calm 2
    hit="1 MPI_Finalize 1 $(kill -l STOP)"
    start 2 "--steps 6 --deadline 5"
    ends "rank 1 hangs in the end" 142 "" "$calm" 6
    hit=''
}

# Nobody is overdue who comes within the deadline.
pauses() {
    local calm
    calm 2
    hit="1 MPI_Isend 60 $(kill -l STOP)"
    start 2 "--steps 6 --deadline 60"
    until_true stopped 1 2
    stopped 1 2
    verdict $? "rank 1 was not stopped for a while"
    kill -CONT "$(rank_pid 1 2)"
    ends "rank 1 stops for a while" 0 "" "$calm" 6
    hit=''
}

# One rank's updates take longer than the deadline; mid-run their peer waits for a part at a time,
# behind the last step for all of it.
slow_disk() {
    local calm
    calm 2 "--chunk 1K"
    slow="1 pwrite 172 900" # from the fifth update on: 4.5 s each, five rounds of eight writes
    start 2 "--steps 6 --chunk 1K --deadline 3"
    ends "rank 1 has a slow disk" 0 "" "$calm" 6
    slow=''
}

# Each rank looks at 640 MiB of tokens, one for longer than the deadline: they meet on the way. One
# that is told to end meanwhile has no run to end.
slow_data() {
    local calm data=$scratch/tokens.bin model=("${model[@]/--quiet/--sample=0}")
    printf '\x88\xd8\x34\x01\1\0\0\0\0\0\0\x28' >"$data" # 5 << 27 tokens of version 1
    truncate -s $((1024 + (10 << 27))) "$data"
    calm 2
    slow="1 pread 1 1"
    start 2 "--steps 6 --deadline 5"
    ends "rank 1 reads its data slowly" 0 "" "$calm" 6
    grep -q '^tokens: [0-9.]* [GM]iB of 1\.2 GiB are checked$' "$scratch/out"
    verdict $? "nothing tells how far the data are checked: $(head -n 3 "$scratch/out")"
    slow='' hit="1 pread 1000 $(kill -l TERM)"
    start 2 "--steps 6"
    ends "rank 1 is told while it reads its data" 143 "(rank 0: Rank 1 [^~]*~)?"
    hit=''
    rm "$data"
}

# As late as behind the fourth step, in what is held out: there is no fifth.
told_in_evaluation() {
    hit="1 MPI_Isend 130 $(kill -l TERM)"
    start 2 "--steps 1000000 --eval-every 2 --batch 16 --seq 256"
    ends_well "rank 1 is told in an evaluation" 143 SIGTERM
    [ "$(steps_told)" = 4 ]
    verdict $? "a rank that was told in an evaluation behind step 4 went on to $(steps_told)"
    hit=''
}

# The run is complete: a signal changes nothing any more.
told_at_end() {
    local calm
    calm 2
    hit="1 MPI_Finalize 1 $(kill -l TERM)"
    start 2 "--steps 6"
    ends "rank 1 is told in the end" 0 "" "$calm" 6
    hit=''
}

# A job that was suspended goes on: nobody waited meanwhile.
suspended() { # deadline
    local pids
    start 2 "--steps 1000000 --deadline $1"
    until_true rows 3
    pids="$(rank_pid 0 2) $(rank_pid 1 2)"
    # shellcheck disable=SC2086 # two of them
    kill -STOP $pids
    until_true stopped 1 2
    sleep $(($1 + 1))
    # shellcheck disable=SC2086
    kill -CONT $pids
    until_true rows $(($(wc -l <"$scratch/log.csv") + 3))
    # shellcheck disable=SC2086
    kill -TERM $pids
    ends_well "a suspended run goes on" 143 SIGTERM
}

told() { # ranks, SIGNAL, ranks that are sent it
    local rank pids=
    start "$1" "--steps 1000000"
    until_true rows 3
    for rank in $3; do
        pids+=" $(rank_pid "$rank" "$1")"
    done
    # A thread waits for them: no handler interrupts what is under way.
    local caught
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/${pids##* }/status")
    verdict $(((0x${caught:-4002} & 0x4002) != 0)) "SIGINT or SIGTERM has a handler: $caught"
    # shellcheck disable=SC2086 # several; each twice, as timeout does
    kill -s "$2" $pids $pids
    ends_well "$1 ranks, SIG$2 to rank $3" "$((128 + $(kill -l "$2")))" "SIG$2"
}

# Told to end, a rank writes for longer than one that hangs is waited for: all wait for it.
told_and_slow() {
    local reader
    mkfifo "$scratch/slow"
    exec 7<>"$scratch/slow"
    start 2 "--steps 1000000 --trace $scratch/slow"
    until_true rows 60 # of spans, more than a pipe holds
    kill -TERM "$(rank_pid 0 2)" "$(rank_pid 1 2)"
    sleep 13
    kill -0 "$job"
    verdict $? "a trace was written to its end, or given up, while nobody read it"
    cat <&7 >/dev/null &
    reader=$!
    ends "a trace that is written slowly" 143 "rank 0: SIGTERM stopped all ranks after [^~]*~" "" \
        "$(steps_told)"
    kill "$reader"
    exec 7>&-
}

# Behind the last step the sample ends, and the run as ever.
told_in_sample() {
    local calm model=("${model[@]/--quiet/--recompute}")
    calm 2 "--sample 0"
    start 2 "--steps 6 --sample 1000000"
    until_true grep -qs '^at stage 0 without' "$scratch/out"
    kill -INT "$(rank_pid 1 2)"
    ends "SIGINT to rank 1 in the sample" 0 "" "$calm" 6
    grep -q '^sample of .* stopped before the 1000000' "$scratch/out"
    verdict $? "a sample that was stopped: $(grep '^sample' "$scratch/out")"
}

# Before there is a run a signal ends the process. mpirun then speaks of it.
told_early() {
    hit="1 MPI_Comm_dup 1 $(kill -l TERM)"
    start 2 "--steps 6"
    ends "SIGTERM before there is a run" 143 ""
    hit=''
}

# mpirun sends SIGTERM after a time of its own, SIGKILL after as much again.
told_mpirun() { # SIGNAL, seconds
    OMPI_MCA_odls_base_sigkill_timeout=$2 start 2 "--steps 1000000"
    until_true rows 3
    kill -s "$1" "$(mpirun_pid)"
    ends_well "SIG$1 to mpirun" 1 SIGTERM
}

# A peer does not come, and the run is told to end.
told_in_vain() { # how often
    local name="SIGTERM while rank 1 hangs, sent $1 times"
    hit="1 MPI_Isend 60 $(kill -l STOP)"
    start 2 "--steps 1000000"
    until_true stopped 1 2
    kill -TERM "$(rank_pid 0 2)"
    if [ "$1" = 1 ]; then
        local overdue="rank 0: after SIGTERM: Rank 1 did not arrive at the [^~]* within 10 s "
        ends "$name" 1 "${overdue}[^~]*~(rank 1: [^~]*~)?"
    else
        sleep 1.5
        kill -TERM "$(rank_pid 0 2)"
        ends "$name" 143 ""
    fi
    hit=''
}

some() {
    dies 2 1 creation KILL 137
    dies 3 1 forward SEGV 139
    dies 4 2 update KILL 137
    dies 2 0 end KILL 137
    hangs 3 1 forward 5
    pauses
    slow_disk
    slow_data
    suspended 5
    told 1 TERM 0
    told 2 INT 1
    told_in_evaluation
    told_in_sample
    told_at_end
    told_early
    told_in_vain 2
}

every() {
    local moment ranks=2
    while IFS='|' read -r moment _; do
        dies "$ranks" 1 "$moment" KILL 137
        dies $((ranks % 3 + 2)) 0 "$moment" SEGV 139
        ranks=$((ranks % 3 + 2))
    done < <(moments)
    hangs 2 0 verdict 5
    hangs 4 2 forward 5
    hangs_at_end
    pauses
    slow_disk
    slow_data
    suspended 5
    told 2 TERM "0 1"
    told 4 TERM 2
    told 3 INT "0 1 2"
    told_and_slow
    told_in_evaluation
    told_in_sample
    told_at_end
    if drops_sentences; then
        echo "skipped: signals to mpirun, of which this one kills half a second later"
    else
        told_mpirun TERM 10
        told_mpirun INT 10
    fi
    told_in_vain 1
    told_in_vain 2
}

# -------------------------------------------------------------------- self-test

# Programs in gpt2's place, of whom status 1 and "rank 0: so." are expected; ok: nothing else.
broken() {
    cat <<'LIST'
ok|echo "rank 0: so." >&2; exit 1
ok|echo "rank 0: so." >&2; echo ,,,,,,,,,,,,,, >log.csv; exit 1
WRONG|echo "rank 0: so." >&2; exit 2
WRONG|exit 1
WRONG|echo "rank 1: so." >&2; exit 1
WRONG|echo "rank 0: so." >&2; echo "rank 1: so." >&2; exit 1
WRONG|echo "rank 0: so." >&2; echo digest; exit 1
WRONG|echo "rank 0: so." >&2; touch files/a; exit 1
WRONG|echo "rank 0: so." >&2; touch shared/a; exit 1
WRONG|echo "rank 0: so." >&2; mkdir session/a; exit 1
WRONG|echo "rank 0: so." >&2; touch trace.json; exit 1
WRONG|echo "rank 0: so." >&2; echo "{" >trace.json; exit 1
WRONG|echo "rank 0: so." >&2; echo "{" >trace.json.part; exit 1
WRONG|echo "rank 0: so." >&2; echo 1,2 >log.csv; exit 1
WRONG|echo "rank 0: so." >&2; printf ,,,,,,,,,,,,,, >log.csv; exit 1
WRONG|echo "rank 0: so." >&2; (exec -a "$PWD/files" sleep 60 >/dev/null 2>&1) & exit 1
WRONG|exec sleep 60
LIST
}

self_test() {
    local expected script got pid tested=0 missed=0
    gpt2=$scratch/gpt2
    while IFS='|' read -r expected script; do
        printf '#!/bin/bash\ncd %s || exit\n%s\n' "$scratch" "$script" >"$gpt2"
        chmod +x "$gpt2"
        limit=2 checks=0 failures=0
        start 1 ""
        ends "a program" 1 "rank 0: so\.~" >/dev/null
        got=ok
        [ "$failures" = 0 ] || got=WRONG
        for pid in $(left_running); do
            kill -KILL "$pid"
        done
        tested=$((tested + 1))
        [ "$got" = "$expected" ] && continue
        missed=$((missed + 1))
        echo "expected $expected of: $script"
    done < <(broken)
    checks=$tested failures=$missed
}

if [ "${1-}" = --self-test ]; then
    settling=5
    self_test
else
    gpt2=${1:?"give gpt2: tests/dying.sh GPT2 HIT [all] | --self-test"}
    preload=$scratch/hit.so # of whose path the loader makes no list
    cp "${2:?"give what tests/hit.c becomes"}" "$preload" || exit 1
    have_ranks 2 "all of it" || { verdict 0 "" && closing && exit; }
    command -v python3 >/dev/null || echo "skipped: whether traces are JSON, for want of python3"
    if [ "${3-}" = all ]; then every; else some; fi
fi
closing
