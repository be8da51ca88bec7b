#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Chaos: gpt2 on 2 to 4 ranks with NVMe offload, once a round, and something goes
# wrong at a random moment: a rank dies or stops, the disk loses or spoils what
# it holds, a limit falls, somebody sends a signal.
#     tests/chaos.sh GPT2 [ROUNDS [SEED [FIRST]]] | --self-test
# Round k of a seed always draws the same run and the same fault, so
# chaos.sh GPT2 1 SEED k repeats it; what else the machine does is its own.
# A round must end in time, in a way that its fault allows, leave nothing behind,
# and, when it ends well, with the digest of the undisturbed run: by the law of
# equal bits one digest for all of them. Outcomes are counted by kind.
set -u
export LC_ALL=C
if [ -z "${CHAOS_APART-}" ] && unshare -m true 2>/dev/null; then
    CHAOS_APART=1 exec unshare -m "$0" "$@" # what is mounted ends with us
fi
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
cgroup=/sys/fs/cgroup/memory/zero-chaos.$$ cgroup_limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || cgroup=/sys/fs/cgroup/zero-chaos.$$ cgroup_limit=memory.max
limit=90 # seconds for a round; alone it takes few

mkdir "$scratch/shm" "$scratch/files" "$scratch/session"
open_mpi_files "$scratch/shm" "$scratch/session"
job='' mounted=''
finish() {
    [ -z "$job" ] || end_all
    [ -z "$mounted" ] || umount -l "$mounted"
    rmdir "$cgroup" 2>/dev/null
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# ------------------------------------------------------------------ the draw

draw() { # n: drawn becomes one of 0 .. n - 1
    drawn=$(((RANDOM * 32768 + RANDOM) % $1))
}

one_of() { # word...: drawn becomes one of them
    draw $#
    shift "$drawn"
    drawn=$1
}

# name | outcomes it may have | what standard error then says
faults() {
    cat <<'LIST'
none|well|
rank-killed|killed refused well late|gave up before|did not arrive at|MPI did not bring this job
rank-crashes|killed refused well late|gave up before|did not arrive at|MPI did not bring this job
launcher-killed|killed well late|
rank-pauses|well|
rank-stops|refused killed well late|did not arrive at|gave up before|MPI did not bring this job
rank-told-to-end|stopped well late|SIGTERM stopped all ranks
ranks-told-to-end|stopped well late|SIGINT stopped all ranks
told-to-end-twice|stopped killed well late|SIGTERM stopped all ranks
folder-removed|well|
files-limited|refused well|limit on file sizes
descriptors-limited|well|
memory-limited|well|
memory-runs-out|refused killed well|are available
no-such-folder|refused|Cannot create a file in
drive-is-memory|well|
drive-without-direct|well|
no-space|refused|bytes are free
unlike-ranks|refused|Ranks differ in|not given the same
page-spoiled|refused well|is not what was written there
file-cut|refused well|is not what was written there|was truncated while in use
drive-fails|refused well|is not what was written there|Input/output error
LIST
}

draw_round() { # round
    local mixed
    mixed=$(cksum <<<"$seed $1") # numbers drawn from near seeds are alike
    RANDOM=$((${mixed%% *} % 32768))
    draw 3 && ranks=$((drawn + 2))
    draw 3 && stage=$((drawn + 1))
    options=(--stage "$stage" --accumulate $((12 / ranks)) --offload nvme --deadline 20)
    one_of uring posix auto && ring=$drawn
    [ "$ring" = auto ] || options+=(--ring "$ring")
    one_of fp32 split && options+=(--state "$drawn")
    one_of 4096 1024 65536 && options+=(--chunk "$drawn")
    one_of 0 64K && options+=(--host-bytes "$drawn")
    draw 2 && [ "$drawn" = 0 ] || options+=(--recompute)
    draw 2 && [ "$drawn" = 0 ] || options+=(--verify-spill)
    mapfile -t names < <(faults | cut -d'|' -f1 | grep -vxF "${without:-nothing}")
    one_of "${names[@]}" && fault=$drawn
    draw $((length * 11 / 10)) && moment=$drawn # milliseconds
    draw "$ranks" && victim=$drawn
    draw 1000 && where=$drawn # of a thousand
}

# ------------------------------------------------------------- what goes wrong

# The processes of this round's ranks, and of all it started.
rank_pids() {
    local p
    for p in $(all_left); do
        [ "/proc/$p/exe" -ef "$gpt2" ] && echo "$p"
    done
}

all_left() { naming "$scratch/files"; }

# The process of rank $1, waited for while the job lives; empty: it has ended.
pid_of() {
    local p
    while kill -0 "$job" 2>/dev/null; do
        for p in $(rank_pids); do
            grep -qszx "OMPI_COMM_WORLD_RANK=$1" "/proc/$p/environ" && echo "$p" && return
        done
        sleep 0.05
    done
}

end_all() {
    local p
    for p in "$job" $(all_left); do
        kill -KILL "$p"
    done 2>/dev/null
}

# The open nameless file of a process, waited for as long as it lives.
spill_of() { # process
    local fd
    while kill -0 "$1" 2>/dev/null; do
        for fd in "/proc/$1/fd"/*; do
            [[ $(readlink "$fd") == "$scratch/files/"*deleted* ]] && echo "$fd" && return
        done
        sleep 0.05
    done 2>/dev/null
}

# A page of the victim's file gets other bytes.
spoil_page() {
    local file pages
    file=$(spill_of "$1")
    pages=$(($(stat -Lc %s "$file") / 4096)) || return
    dd if=/dev/urandom of="$file" bs=4096 count=1 seek=$((pages * where / 1000)) conv=notrunc \
        oflag=direct
}

cut_file() {
    local file bytes
    file=$(spill_of "$1")
    bytes=$(stat -Lc %s "$file") || return
    truncate -s $((bytes * where / 1000)) "$file"
}

# A memory cgroup that the victim is in, and that is soon too small for it.
confine() {
    echo $((where << 12)) >"$cgroup/$cgroup_limit"
    echo "$1" >"$cgroup/cgroup.procs" # what it has stays charged where it was
}

# The fault itself, at its moment. 99: there is nothing to hit, not yet or not any more.
strike() {
    local pid
    pid=$(pid_of "$victim")
    [ -n "$pid" ] || return 99
    case $fault in
    rank-killed) kill -KILL "$pid" ;;
    rank-crashes) kill -SEGV "$pid" ;;
    launcher-killed) kill -KILL "$job" ;;
    rank-pauses) kill -STOP "$pid" && sleep 1 && kill -CONT "$pid" ;;
    rank-stops) kill -STOP "$pid" ;;
    rank-told-to-end) when_training && kill -TERM "$pid" ;;
    ranks-told-to-end) when_training && rank_pids | xargs kill -INT ;;
    told-to-end-twice) when_training && kill -TERM "$pid" && sleep 1.5 && kill -TERM "$pid" ;;
    folder-removed) [ -n "$(spill_of "$pid")" ] && rmdir "$scratch/files/"* ;;
    files-limited) prlimit --pid "$pid" --fsize=$((where << 10)) ;;
    descriptors-limited) when_training && prlimit --pid "$pid" --nofile=16:16 ;;
    memory-limited) when_training && prlimit --pid "$pid" --as=$((where << 16)) ;;
    memory-runs-out) confine "$pid" ;;
    page-spoiled) spoil_page "$pid" ;;
    file-cut) cut_file "$pid" ;;
    drive-fails) when_training && truncate -s $((where << 12)) "$scratch/image" ;;
    *) return 99 ;; # from the start, or nothing
    esac 2>/dev/null
}

# Waits for a row of the log; 99 when the job ends before there is one.
when_training() {
    until [ "$(wc -l <"$scratch/log.csv")" -ge 2 ] 2>/dev/null; do
        kill -0 "$job" 2>/dev/null || return 99
        sleep 0.05
    done
}

# What is spoiled is only then no other result.
be_checked() {
    [[ " ${options[*]} " == *" --verify-spill "* ]] || options+=(--verify-spill)
}

# What is wrong from the start.
prepare() {
    folder=$scratch/files/spill
    mkdir "$folder"
    unlike_options=
    case $fault in
    no-such-folder) rmdir "$folder" ;;
    no-space) mount_drive 1 ;;
    drive-is-memory) mount -t tmpfs tmpfs "$folder" && mounted=$folder ;;
    drive-without-direct) mount -t ramfs ramfs "$folder" && mounted=$folder ;;
    drive-fails) mount_drive 16 && be_checked ;;
    page-spoiled | file-cut) be_checked ;;
    rank-stops) options+=(--deadline 5) ;;
    unlike-ranks) one_of "--stage 0" "--steps 1" "--clip 3" && unlike_options=$drawn ;;
    esac
}

mount_drive() { # MiB
    truncate -s 0 "$scratch/image" && truncate -s "$1M" "$scratch/image" &&
        mkfs.ext4 -q -m 0 -O ^has_journal "$scratch/image" &&
        mount -o loop "$scratch/image" "$folder" && mounted=$folder
}

# -------------------------------------------------------------------- a round

launch() {
    local model=(--layers 2 --channels 64 --heads 4 --seq 64 --batch 1 --steps 40 --eval-every 10)
    local run=("$gpt2" "${model[@]}" --data LICENSE --nvme-path "$folder" --sample 0
        --log "$scratch/log.csv" "${options[@]}")
    local start=("${launcher[@]}" -n "$ranks")
    [ ${#launcher[@]} != 0 ] || start=()
    [ -z "$unlike_options" ] || start+=(sh -c "$unlike" sh "" "$unlike_options")
    rm -f "$scratch/log.csv"
    "${start[@]}" "${run[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null &
    job=$!
}

# Waits for the job's end; false when it has none within the limit.
await() {
    local end=$((SECONDS + limit))
    while kill -0 "$job" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || return
        sleep 0.05
    done 2>/dev/null # where a shell says that it was killed
    wait "$job" 2>/dev/null
    status=$?
    while [ -n "$(all_left)" ]; do # a killed launcher's ranks see it a little later
        [ "$SECONDS" -lt "$end" ] || return
        sleep 0.05
    done
}

# How the run ended, as a kind of outcome. Open MPI and a shell speak of the
# dead themselves; of our own sentences there is one a rank.
kind() {
    if grep -q "^digest" "$scratch/out"; then
        if [ "$(grep "^digest" "$scratch/out")" != "$reference" ]; then
            echo "another digest"
        elif [ "$status" = 0 ]; then
            echo well
        elif [ "$status" -gt 128 ]; then
            echo late # the signal came behind the result
        else
            echo "a digest, and status $status"
        fi
    elif [ "$status" = 0 ]; then
        echo "no digest, and status 0"
    elif grep -q "^rank [0-9]*: SIG[A-Z]* stopped all ranks" "$scratch/err"; then
        echo stopped
    elif grep -q "^rank [0-9]*: " "$scratch/err"; then
        echo refused
    elif [ "$status" -gt 128 ]; then
        echo killed
    else
        echo "no sentence, and status $status"
    fi
}

# What is wrong with it, in lines; empty: nothing.
faults_found() { # kind, allowed kinds, pattern
    [[ " $2 " == *" $1 "* ]] || echo "ended as: $1; allowed: $2"
    case $1 in
    stopped | refused) grep -qE "^rank [0-9]*: .*($3)" "$scratch/err" || echo "not the sentence" ;;
    esac
    grep '^rank' "$scratch/err" | cut -d: -f1 | sort | uniq -d | sed 's/^/twice: /'
    find "$scratch/files" -mindepth 1 | sed 's/^/left behind: /'
    all_left | sed 's/^/still running: process /'
}

run_round() { # number
    local name allowed pattern wrong ended="no end within $limit s"
    prepare || { verdict 1 "round $1: $fault could not be prepared" && return; }
    IFS='|' read -r name allowed pattern < <(faults | grep "^$fault|")
    launch
    { sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))" && strike; } &
    local striker=$!
    await && ended=$(kind)
    kill "$striker" 2>/dev/null
    wait "$striker" 2>/dev/null
    case $? in
    0) hits[$fault]=$((${hits[$fault]-0} + 1)) ;;
    99 | 143) ;; # or the job has ended before
    *) misses[$fault]=$((${misses[$fault]-0} + 1)) ;;
    esac
    [ "$ended" != "no end within $limit s" ] || end_all
    job=
    [ -z "$mounted" ] || umount "$mounted"
    mounted=
    rmdir "$folder" 2>/dev/null
    wrong=$(faults_found "$ended" "$allowed" "$pattern")
    printf 'round %d: %s at %d ms, rank %d of %d, %s: %s\n' "$1" "$fault" "$moment" "$victim" \
        "$ranks" "${options[*]}" "$ended"
    outcomes[$fault.$ended]=$((${outcomes[$fault.$ended]-0} + 1))
    [ -z "$wrong" ] || sed 's/^/  /' "$scratch/err"
    verdict "${#wrong}" "round $1: $wrong"
    rm -rf "$scratch/files/"* "$scratch/shm/"*
}

summary() {
    local name all
    printf '%-24s%s\n' "$rounds rounds, seed $seed" "how they ended"
    for name in $(faults | cut -d'|' -f1); do
        all=$(for key in "${!outcomes[@]}"; do
            [ "${key%%.*}" = "$name" ] && printf '%s %d  ' "${key#*.}" "${outcomes[$key]}"
        done)
        [ -z "$all" ] || printf '%-24s%s\n' "$name" "$all"
    done
}

# ----------------------------------------------------------------- self-test

# What stands in for gpt2, and whether a round that draws this fault is well.
impostors() {
    cat <<'LIST'
0|none|echo "digest a"
0|rank-killed|kill -KILL $$
0|rank-stops|echo "rank 0: rank 1 did not arrive at" >&2; exit 1
1|none|echo "digest b"
0|rank-told-to-end|echo "digest a"; kill -TERM $$
1|rank-told-to-end|echo "digest b"; kill -TERM $$
1|none|echo "digest a"; kill -TERM $$
1|none|echo "digest a"; exit 1
1|none|exit 0
1|none|echo "rank 0: what, and why" >&2; exit 1
1|rank-killed|exit 3
1|rank-stops|echo "rank 0: what, and why" >&2; exit 1
1|rank-stops|echo "rank 0: rank 1 did not arrive at" >&2; echo "digest a"; exit 1
1|rank-stops|for i in 1 2; do echo "rank 0: rank 1 did not arrive at" >&2; done; exit 1
1|none|echo "digest a"; touch "$folder/a"
1|none|echo "digest a"; bash -c "sleep 60; true" "$folder" &
1|none|bash -c "sleep 60; true" "$folder"
LIST
}

self_test() {
    local expected name script missed=0 tested=0 before
    gpt2=$scratch/gpt2 launcher=() ranks=1 victim=0 moment=0 where=0
    local limit=5 # seconds, of which SECONDS may count one too many; a loaded machine stalls
    options=() reference="digest a" rounds=0 seed=0
    while IFS='|' read -r expected name script; do
        printf '#!/bin/bash\nfolder=%s\n%s\n' "$scratch/files/spill" "$script" >"$gpt2"
        chmod +x "$gpt2"
        fault=$name before=$failures
        run_round "$tested" >/dev/null 2>&1
        tested=$((tested + 1))
        [ $((failures > before)) = "$expected" ] && continue
        missed=$((missed + 1))
        echo "not judged as it should be: $name: $script"
    done < <(impostors)
    checks=$tested failures=$missed
}

# --------------------------------------------------------------------- the run

# Faults of a drive need a file system of our own: as root, in a mount
# namespace that ends with us.
can_mount() {
    local folder=$scratch/files well
    options=()
    mount_drive 4 2>/dev/null
    well=$?
    [ -z "$mounted" ] || umount "$mounted"
    mounted=
    return $well
}

undisturbed() {
    local begun
    ranks=2 fault=none where=0
    options=(--stage 3 --accumulate 6 --offload nvme)
    prepare && begun=${EPOCHREALTIME/./} && launch && await && rmdir "$folder" &&
        reference=$(grep '^digest' "$scratch/out") &&
        length=$(((${EPOCHREALTIME/./} - begun) / 1000)) && return
    cat "$scratch/err"
    return 1
}

declare -A outcomes=() hits=() misses=() # rounds, of each fault
if [ "${1-}" = --self-test ]; then
    self_test
    closing
    exit
fi
gpt2=${1:?"give gpt2: tests/chaos.sh GPT2 [ROUNDS [SEED [FIRST]]] | --self-test"}
rounds=${2:-20} seed=${3:-1} first=${4:-1}

if [ "${#launcher[@]}" = 0 ]; then
    echo "skipped: chaos: needs mpirun"
    verdict 0 && closing
    exit
fi
without=
can_mount || without=$(faults | grep -E "^(no-space|drive-)" | cut -d"|" -f1)
mkdir "$cgroup" 2>/dev/null && [ -e "$cgroup/$cgroup_limit" ] || without+=$'\n'memory-runs-out
[ -z "$without" ] || echo "skipped: what needs root: ${without//$'\n'/ }"
undisturbed || exit 1
for ((round = first; round < first + rounds; round++)); do
    draw_round "$round"
    run_round "$round"
done
summary
[ "$rounds" -lt 10 ] || [ "${#hits[@]}" != 0 ]
verdict $? "in $rounds rounds nothing was hit"
for fault in "${!misses[@]}"; do
    [ "${misses[$fault]}" -lt 8 ] || [ "${hits[$fault]-0}" != 0 ]
    verdict $? "$fault failed to hit anything ${misses[$fault]} times"
done
closing
