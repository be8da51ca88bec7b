#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Machines that fail or that offer little, and what gpt2 makes of them:
#     tests/machine.sh check|more BUILD | --self-test
# Where a run cannot go on, every rank says so in one sentence "rank r: ...", the
# status is 1 and the end comes by itself; where it can, the digest is that of an
# undisturbed run, and what was given up is a warning. Either way no process, file
# or shared memory is left. check, of make check, has each kind of trouble once,
# in less than a minute; more, of make check-all, has the sweeps: every place of a
# failing disk, limits from too small to enough, and the sysctl that
# forbids io_uring (which other jobs here see for the second that it lasts).
# Mounts are made in a mount namespace of our own, so they go with it. Root is
# needed for most; the rest is listed as skipped.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
if [ "$(id -u)" = 0 ] && [ -z "${MACHINE_INSIDE-}" ] && unshare -m true 2>/dev/null; then
    MACHINE_INSIDE=1 exec unshare -m --propagation private "$0" "$@"
fi
. tests/support/verdicts.sh
trap 'clean_up' EXIT
limit=100 # seconds for a run: a hang is longer
user=64731 # nobody's: its processes are ours
own=${scratch##*/} folder=$scratch/files
mkdir "$scratch/tmp" "$scratch/files" "$scratch/shared" "$scratch/disk" "$scratch/space"
chmod 711 "$scratch" && chmod 1777 "$scratch/tmp" "$scratch/shared"
export TMPDIR=$scratch/tmp OMPI_MCA_btl_vader_backing_directory=$scratch/shared
unset ZERO_PROBE ZERO_DEVICE_MEMORY
mounts=() disk=0 groups=() sysctl=

clean_up() {
    local i
    [ -z "$sysctl" ] || echo "$sysctl" >/proc/sys/kernel/io_uring_disabled
    [ "$disk" = 0 ] || kill -KILL "$disk" 2>/dev/null
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do
        umount -l "${mounts[i]}"
    done
    [ ${#groups[@]} = 0 ] || rmdir "${groups[@]}"
    rm -rf "$scratch"
}

# ------------------------------------------------------------------------ runs

model=(--layers 2 --channels 32 --seq 16 --batch 1 --chunk 4096 --quiet)
model+=(--stage 3 --offload nvme)
front=() with=() # what stands before mpirun, and before the ranks' program

# Ranks, steps, options. The program is a copy, for users who may not read the tree.
start() {
    local launch=()
    [ "${#front[@]}" = 0 ] || cd "$scratch" || exit
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    exec "${front[@]}" timeout -k 5 "$limit" "${launch[@]}" "${with[@]}" \
        "$scratch/gpt2" "${model[@]}" \
        --data "$scratch/LICENSE" --nvme-path "$folder" --steps "$2" "${@:3}" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
}

run() {
    (start "$@")
    status=$?
    without_mpirun "$scratch/err"
    without_site "$scratch/err"
}

# Runs, and once some steps are made does what "hit" is, with the ranks under way.
hit_while_running() { # ranks, steps, options
    local job tries
    rm -f "$scratch/log.csv"
    (start "$@" --log "$scratch/log.csv") &
    job=$!
    for ((tries = 0; tries < 600; tries++)); do
        [ "$(wc -l 2>/dev/null <"$scratch/log.csv")" -ge 3 ] 2>/dev/null && break
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    hit
    wait "$job"
    status=$?
    without_mpirun "$scratch/err"
    without_site "$scratch/err"
}

declare -A digests
# The digest of an undisturbed run, made once. Sets "digest".
undisturbed() { # ranks, steps
    local was=("${with[@]}") before=("${front[@]}") place=$folder
    if [ -z "${digests[$1.$2]-}" ]; then
        front=() with=() folder=$scratch/files
        run "$1" "$2" --offload cpu
        digests[$1.$2]=$(grep ^digest "$scratch/out")
        front=("${before[@]}") with=("${was[@]}") folder=$place
    fi
    digest=${digests[$1.$2]}
}

# -------------------------------------------------------------------- verdicts

# The ids of processes that we started and that are still there.
left_running() { naming "$scratch/gpt2"; }

left_behind() {
    # PMIx leaves files of its own where ranks fail.
    find "$scratch/files" "$scratch/tmp" "$scratch/shared" -mindepth 1 ! -name 'pmix-*' |
        sed 's/^/left: /'
    left_running | sed 's/^/still running: process /'
}

# Whether every rank has said one sentence, which fits the pattern or points at
# another rank's that does, behind its launcher's SIGTERM or not. Warnings are no sentences.
sentences() { # ranks, pattern
    local rank said heard
    said=$(grep -v '^libzero: warning: ' "$scratch/err")
    grep -qE "^rank [0-9]+: .*($2)" <<<"$said" || echo "no sentence with: $2"
    grep -vE "^rank [0-9]+: (.*($2)|(after SIGTERM: )?Rank [0-9]+ gave up before message )" \
        <<<"$said" |
        sed '/^$/d; s/^/not the sentence: /'
    for ((rank = 0; rank < $1; rank++)); do
        heard=$(grep -c "^rank $rank: " <<<"$said")
        [ "$heard" = 1 ] || { [ "$heard" = 0 ] && [ "$1" -gt 1 ] && drops_sentences; } ||
            echo "rank $rank has not one sentence"
    done
}

# Whether standard error is the warning, and nothing else.
warnings() { # pattern; empty: none
    [ -z "$1" ] || grep -qE "^libzero: warning: .*($1)" "$scratch/err" || echo "no warning: $1"
    grep -vE "^libzero: warning: .*(${1:-^})" "$scratch/err" | sed 's/^/not the warning: /'
}

judge() { # what is wrong, in lines; name
    checks=$((checks + 1))
    [ -n "$1" ] || { echo "ok: $2" && return; }
    failures=$((failures + 1))
    printf 'WRONG: %s\n%s\n' "$2" "$1"
    sed 's/^/  /' "$scratch/err"
    find "$scratch/files" "$scratch/tmp" "$scratch/shared" -mindepth 1 -delete
}

# How the run has ended: it failed.
failed() { # name, ranks, pattern
    judge "$(
        [ "$status" = 1 ] || echo "exit status $status, expected 1"
        sentences "$2" "$3"
        grep '^digest' "$scratch/out"
        left_behind
    )" "$1"
}

# It went on as if nothing were.
went_on() { # name, ranks, steps, pattern of the warning
    cp "$scratch/out" "$scratch/was.out" && cp "$scratch/err" "$scratch/was.err"
    local ended_with=$status
    undisturbed "$2" "$3"
    mv "$scratch/was.out" "$scratch/out" && mv "$scratch/was.err" "$scratch/err"
    judge "$(
        [ "$ended_with" = 0 ] || echo "exit status $ended_with, expected 0"
        [ -n "$digest" ] || echo "there is no digest to compare with"
        [ "$(grep ^digest "$scratch/out")" = "$digest" ] || echo "another digest than $digest"
        warnings "$4"
        left_behind
    )" "$1"
}

# Either, where only the machine knows how much is too little.
ended_well() { # name, pattern of sentences, pattern of warnings
    if grep -q ^digest "$scratch/out"; then
        ended=well
        went_on "$1" 1 3 "$(grep -q '^libzero: warning: ' "$scratch/err" && echo "$3")"
    else
        ended=refused
        failed "$1" 1 "$2"
    fi
}

# ---------------------------------------------------------------------- folders

can_mount() { # what is skipped without
    [ -n "${MACHINE_INSIDE-}" ] || { skip "$1: needs root and a mount namespace" && false; }
}

# Mounts at "folder", which is $scratch/disk from then on.
attach() { # arguments of mount
    mount "$@" "$scratch/disk" 2>"$scratch/why" || return
    mounts+=("$scratch/disk")
    folder=$scratch/disk
}

detach() { # options of umount
    local tries
    folder=$scratch/files
    [ ${#mounts[@]} != 0 ] || return
    for ((tries = 0; tries < 100; tries++)); do
        umount "$@" "${mounts[-1]}" 2>/dev/null && unset 'mounts[-1]' && return
        sleep 0.1
    done
    echo "${mounts[-1]} is still in use"
    return 1
}

read_only_folder() {
    can_mount "a read-only file system" || return
    attach -t tmpfs -o ro tmpfs
    run 2 3
    failed "a read-only file system" 2 "Cannot create a file in .*: Read-only file system\."
    detach
}

folder_in_memory() { # type, pattern of warnings
    can_mount "a folder on $1" || return
    attach -t "$1" "$1"
    run 2 3
    went_on "a folder on $1" 2 3 "$2"
    judge "$(grep '^libzero: warning: rank 1: ' "$scratch/err")" "a folder on $1, said by one rank"
    detach
}

# Where rank 1's folder alone is in memory, that rank warns: nobody else can know of it.
own_folder_in_memory() {
    local name="rank 1's own folder on tmpfs"
    can_mount "$name" || return
    attach -t tmpfs -o size=16m tmpfs # too small to be measured
    with=(sh -c "$unlike" sh "--nvme-path $scratch/files" "--nvme-path $folder")
    XDG_CACHE_HOME=/dev/null ZERO_PROBE=1 run 2 3
    with=()
    went_on "$name" 2 3 \
        "rank 1: (.*/disk is memory \(tmpfs\), not a disk|ZERO_PROBE=1, but the defaults are used)"
    judge "$([ "$(wc -l <"$scratch/err")" = 2 ] || cat "$scratch/err")" "$name, two warnings"
    detach
}

# A rank that does not come is told with its node's name, where there are several.
stopped_on_a_node() {
    local name="a rank stops on another node"
    if [ -z "${MACHINE_INSIDE-}" ] || ! unshare -u hostname zero-elsewhere 2>/dev/null; then
        skip "$name: needs root and hostname"
        return
    fi
    # shellcheck disable=SC2016
    with=(sh -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || set -- unshare -u sh -c \
        "hostname zero-elsewhere && exec \"\$@\"" sh "$@"; exec "$@"' sh)
    # shellcheck disable=SC2046 # these are numbers
    hit() { kill -STOP "$(rank_among 1 "$scratch/gpt2" $(left_running))"; }
    hit_while_running 2 1000000 --deadline 3
    with=()
    judge "$(
        [ "$status" = 1 ] || echo "exit status $status, expected 1"
        grep -q '^rank 0: Rank 1 on zero-elsewhere did not arrive at the ' "$scratch/err" ||
            cat "$scratch/err"
        left_behind
    )" "$name"
}

# The tree may be where others have no entry: what they run and read is copied.
as_user() { # what is skipped without
    [ "$(id -u)" = 0 ] || { skip "$1: needs root, to become another user" && return 1; }
    front=(setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$scratch")
    "${front[@]}" test -x "$scratch/gpt2" 2>/dev/null && return
    front=()
    skip "$1: a user cannot run what is in $scratch"
    return 1
}

foreign_folder() {
    as_user "another user's folder" || return
    run 2 3
    failed "another user's folder" 2 "Cannot create a file in .*: Permission denied\."
    front=()
}

# ---------------------------------------------------------------- loop devices

# An ext4 file system in a file of so much, of which its own disk has so much.
attach_image() { # size, size of the disk below
    mount -t tmpfs -o size="$2" tmpfs "$scratch/space" || return
    mounts+=("$scratch/space")
    truncate -s "$1" "$scratch/space/image"
    mkfs.ext4 -q -O ^has_journal -m 0 "$scratch/space/image" >"$scratch/why" 2>&1 &&
        attach -o loop "$scratch/space/image" && return
    detach
    return 1
}

with_image() { # what is skipped without, then as above
    can_mount "$1" || return
    attach_image "$2" "$3" && return
    skip "$1: no loop device with ext4 ($(tail -n 1 "$scratch/why"))"
    return 1
}

detach_image() {
    detach && detach -l
}

small_image() {
    with_image "a disk that is too small" 256k 8M || return
    run 2 3
    failed "a disk that is too small" 2 "need .* in .*/disk \(ext4\), .* are free"
    detach_image
}

# Space is promised that the disk below does not have. Of a write that it takes in part Linux's loop
# device says that all was written: so it has 5 pages left, fewer than writes come, for the file
# system takes 160 KiB. With more of them only checksums tell for sure.
hollow_image() { # size of the disk below, options
    local name="a thin disk that fills${2:+, $2}"
    local says="No space left|Input/output error|Read-only file system${2:+|the page at offset}"
    with_image "$name" 16M "$1" || return
    # mpirun cuts lines where ranks have much to say: of few chunks each has less.
    run 2 3 --chunk 16384 "${@:2}"
    failed "$name" 2 "$says"
    detach_image
}

shrunk_image() { # ring
    local tries
    with_image "a disk that shrinks under a run, by $1" 16M 20M || return
    # What is written afterwards makes it longer again, with zeros in between.
    hit() {
        for ((tries = 0; tries < 600; tries++)); do
            truncate -s 64k "$scratch/space/image"
            kill -0 "$job" 2>/dev/null || break
            sleep 0.05
        done
    }
    hit_while_running 2 1000000 --ring "$1"
    failed "a disk that shrinks under a run, by $1" 2 \
        "Input/output error|Read-only file system|No space left"
    detach_image
}

# Open files keep what is detached.
detached_image() {
    with_image "a disk that is unmounted under a run" 16M 20M || return
    hit() { umount -l "$scratch/disk" && unset 'mounts[-1]'; }
    hit_while_running 2 300
    went_on "a disk that is unmounted under a run" 2 300 ""
    detach -l
}

# ----------------------------------------------------------------- a bad disk

# The disk of tests/bad_disk.c, at "folder".
attach_bad() { # rules
    local tries
    "$build/tests/bad_disk" "$scratch/disk" "$@" >"$scratch/bad" 2>&1 &
    disk=$!
    for ((tries = 0; tries < 200; tries++)); do
        mountpoint -q "$scratch/disk" && break
        kill -0 "$disk" 2>/dev/null || return
        sleep 0.05
    done
    mounts+=("$scratch/disk")
    folder=$scratch/disk
}

# It tells, by its status, whether it was left empty.
detach_bad() { # name
    detach
    wait "$disk" || judge "left on the disk, or its end: $(<"$scratch/bad")" "$1, the disk"
    disk=0
}

with_bad() { # what is skipped without, rules
    can_mount "$1" || return
    attach_bad "${@:2}" && return
    wait "$disk"
    disk=0
    skip "$1: no FUSE ($(<"$scratch/bad"))"
    return 1
}

fuse="io_uring may corrupt files on FUSE, where .* Using pread and pwrite"

bad_disk() { # ranks, pattern, options, rules
    local options name="$1 ranks, a disk with ${*:4}${3:+, $3}"
    with_bad "$name" "${@:4}" || return
    read -ra options <<<"$3"
    run "$1" 3 "${options[@]}"
    failed "$name" "$1" "$2"
    detach_bad "$name"
}

short_disk() { # rules
    local name="a disk with $*"
    with_bad "$name" "$@" || return
    run 2 3
    went_on "$name" 2 3 "$fuse"
    detach_bad "$name"
}

vanished_disk() { # ring
    local name="a disk that vanishes under a run, by $1"
    with_bad "$name" || return
    hit() { kill "$disk"; }
    hit_while_running 2 1000000 --ring "$1"
    failed "$name" 2 "not connected|connection abort|Input/output error"
    detach
    wait "$disk" 2>/dev/null
    disk=0
}

# What it holds up is told; the processes end once it lets go of their transfers.
hung_disk() {
    local tries name="a disk that hangs under a run"
    with_bad "$name" || return
    hit() {
        kill -STOP "$disk"
        for ((tries = 0; tries < 400; tries++)); do
            grep -qs '^rank .* has not answered' "$scratch/err" && break
            sleep 0.1
        done
        kill -CONT "$disk"
    }
    hit_while_running 2 1000000 --deadline 5
    sed -i '/^\[[^]]*:[0-9]*\] Read -1,/d' "$scratch/err" # Open MPI, of a rank that is gone
    failed "$name" 2 "the disk has not answered for 10 s|did not arrive at"
    detach_bad "$name"
}

io="Input/output error"
every_bad_place() {
    local where when
    for where in first middle last; do
        for when in 0 5; do
            bad_disk 2 "$io" "--ring posix" "eio-read:$where:$when"
            bad_disk 2 "$io" "--ring posix" "eio-write:$where:$((when + 1))"
        done
        bad_disk 1 "No space left" "--ring posix" "full-write:$where:2"
        bad_disk 1 "the file ends there" "--ring posix" "end-read:$where:1"
    done
    bad_disk 2 "io_uring may corrupt files on FUSE" "--ring uring" eio-write:middle:4
    for where in first middle last; do
        short_disk "short-read:$where" "short-write:$where"
    done
    short_disk short-read:any:40 short-write:any:60
}

# ---------------------------------------------------------------------- io_uring

no_uring="Using pread and pwrite instead\."
without_uring() {
    with=("$build/tests/without" io_uring)
    run 2 3
    went_on "io_uring is forbidden" 2 3 "$no_uring"
    run 2 3 --ring uring
    failed "io_uring is forbidden and asked for" 2 "This system refuses io_uring: Operation not"
    with=()
}

without_amx() {
    [ "$(uname -m)" != x86_64 ] || with=("$build/tests/without" amx)
    run 2 3 --dtype fp32 --bf16x3
    failed "AMX is refused and asked for" 2 "--bf16x3 needs AMX, which .* Leave"
    with=()
}

# A rank whose CPU has AMX beside one without: the digest is another, and that is said.
amx_on_one_rank() {
    local name="AMX on one of two ranks"
    if ! "$build/gpt2" --layers 1 --channels 16 --seq 8 --steps 1 --sample 0 --dtype bf16 \
        --data LICENSE | grep -q '^products by .*AMX'; then
        skip "$name: this CPU has none"
        return
    fi
    # shellcheck disable=SC2016
    with=(sh -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || set -- "$0" amx "$@"; exec "$@"'
        "$build/tests/without")
    run 2 3 --dtype bf16
    judge "$(
        [ "$status" = 0 ] || echo "exit status $status, expected 0"
        [ "$(cat "$scratch/err")" = "rank 0: 1 of 2 ranks multiply with AMX, which adds in another \
order than the others: another run gives the same digest only if the same ranks use AMX." ] ||
            cat "$scratch/err"
    )" "$name"
    with=()
    run 2 3 --dtype bf16
    judge "$(cat "$scratch/err")" "AMX on both ranks"
}

uring_sysctl() {
    local file=/proc/sys/kernel/io_uring_disabled name="sysctl kernel.io_uring_disabled=2"
    if ! [ -w $file ] || ! [ -d /run/lock ] || [ "$(<$file)" != 0 ]; then
        skip "$name: cannot be set here"
        return
    fi
    exec 9>/run/lock/libzero-io-uring && flock 9
    undisturbed 1 3
    sysctl=0
    echo 2 >$file
    run 1 3
    echo 0 >$file
    sysctl=
    exec 9>&-
    went_on "$name" 1 3 "$no_uring"
}

little_locked_memory() {
    local name="64 KiB of locked memory" bound=()
    [ "$(id -u)" != 0 ] || bound=(setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock)
    with=("${bound[@]}" prlimit --memlock=65536)
    "${with[@]}" true 2>/dev/null || { skip "$name: no prlimit or setpriv" && with=() && return; }
    run 2 3
    went_on "$name" 2 3 "could not register [0-9]* bytes of buffers: .* 64 KiB"
    with=()
}

# ------------------------------------------------------------------------ limits

# Every program of ours: its processes alone, not those of mpirun.
limited() { # options of ulimit, in words
    # shellcheck disable=SC2016 # the shell's words
    with+=(bash -c 'ulimit $0 && exec "$@"' "$1")
}

small_files() {
    limited "-f 64"
    run 1 3 # Open MPI has files of its own
    failed "files of 64 KiB at most" 1 "limit on file sizes is 65536\. Raise it \(ulimit -f\)\."
    with=()
}

file_limit_later() { # ring
    local pid
    hit() {
        for pid in $(left_running); do
            grep -qs OMPI_COMM_WORLD_RANK= "/proc/$pid/environ" &&
                prlimit --pid "$pid" --fsize=4096
        done
    }
    hit_while_running 2 1000000 --ring "$1" --chunk 64K # mpirun cuts lines of more than 4 KiB
    failed "the limit on files is lowered under a run, by $1" 2 \
        "File too large. Raise the limit on file sizes|could not be written"
}

thread_words="start worker thread|thread could not be started|threads could be started"
thread_words+="|thread cannot be created|could not start I/O workers"
little="Too many open files|no more files may be open|eventfd|(was|were) refused|No memory"
little+="|Cannot allocate|$thread_words|cannot be read|could not be"

few_descriptors() { # limit
    limited "-n $1"
    run 1 3
    ended_well "$1 descriptors" "$little" "Too many open files"
    with=()
}

little_address_space() { # KiB
    limited "-v $1"
    run 1 3 --threads 2
    ended_well "$1 KiB of address space" "$little" "io_uring"
    with=()
}

few_threads() { # limit
    as_user "$1 threads" || return
    chown "$user" "$scratch/files"
    limited "-u $1"
    run 1 3
    front=() with=()
    chown 0 "$scratch/files"
    ended_well "$1 threads" "$thread_words" ""
}

# Limits from too small to enough, both of which have to be seen.
sweep() { # case, limits
    local one seen=""
    for one in "${@:2}"; do
        ended=
        "$1" "$one"
        seen+=" $ended"
    done
    [ -z "${seen// /}" ] && return
    [[ $seen == *refused*well* ]]
    verdict $? "$1 from $2 to ${*: -1}: expected too little, then enough, and had:$seen"
}

# ------------------------------------------------------------------------ cgroups

# A control group of ours, in "with". Version 1, or 2 where it has the controller.
in_group() { # controller, file of version 1, file of version 2, limit, what is skipped without
    local base=/sys/fs/cgroup/$1 file=$2
    [ -d "$base" ] || base=/sys/fs/cgroup file=$3
    [ -d "/sys/fs/cgroup/$1" ] || grep -qsw "$1" "$base/cgroup.subtree_control" || base=
    if [ -z "$base" ] || ! mkdir "$base/zero-$own" 2>/dev/null; then
        skip "$5: needs root and a $1 control group" && return 1
    fi
    groups+=("$base/zero-$own")
    echo "$4" 2>/dev/null >"${groups[-1]}/$file" ||
        { skip "$5: $base has no $file"; leave_group; return 1; }
    # shellcheck disable=SC2016 # the shell's words
    with+=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "${groups[-1]}")
}

leave_group() {
    local tries
    with=()
    for ((tries = 0; tries < 100; tries++)); do
        rmdir "${groups[-1]}" 2>/dev/null && unset 'groups[-1]' && return
        sleep 0.05
    done
    verdict 1 "processes are left in ${groups[-1]}"
}

memory_group() {
    local name="48 MiB of memory for two ranks"
    in_group memory memory.limit_in_bytes memory.max 48M "$name" || return
    local model=(--model d4 --batch 1 --quiet --stage 3 --offload nvme)
    run 2 3
    failed "$name" 2 "need [0-9.]* MB of host memory .* [0-9.]* MB are available \(.*zero-"
    leave_group
}

# The engine would fit; what gpt2 takes behind it would not.
program_group() {
    local name="100 MiB of memory for a model's activations"
    in_group memory memory.limit_in_bytes memory.max 100M "$name" || return
    local model=(--model d4 --batch 8 --quiet)
    run 1 3
    failed "$name" 1 "needs [0-9.]* MB of host memory .*, program [0-9.]* MB.*--batch, \.program_b"
    leave_group
}

# The probe writes 256 MiB, which would be the last that was heard of the job.
probe_in_memory() {
    local name="a probe of tmpfs in 200 MiB of memory"
    can_mount "$name" || return
    in_group memory memory.limit_in_bytes memory.max 200M "$name" || return
    attach -t tmpfs tmpfs
    ZERO_PROBE=1 XDG_CACHE_HOME=/dev/null run 1 3
    went_on "$name" 1 3 "is memory \(tmpfs\)(, not a disk|: [0-9]+ bytes are available)"
    grep -q 'is memory (tmpfs), not a disk' "$scratch/err" &&
        grep -q 'warning: ZERO_PROBE=1, but the defaults are used: A file of ' "$scratch/err"
    verdict $? "$name: one of two warnings is missing: $(cat "$scratch/err")"
    leave_group
    detach
}

thread_group() { # limit
    local name="a control group of $1 threads"
    in_group pids pids.max pids.max "$1" "$name" || return
    run 1 3
    failed "$name" 1 "$thread_words"
    leave_group
}

# What it is worth is what is used, whatever CPUs there are.
cpu_group() {
    local name="a quota of one CPU" model=("${model[@]/--quiet/--l2}")
    in_group cpu cpu.cfs_quota_us cpu.max 100000 "$name" || return
    run 1 3
    [ "$status" = 0 ] && grep -q ': 1 rank, 1 thread each' "$scratch/out"
    verdict $? "$name: status $status, $(head -n 1 "$scratch/out")"
    run 1 3 --plan
    grep -q '1 thread each' "$scratch/out"
    verdict $? "$name: --plan says $(head -n 1 "$scratch/out")"
    leave_group
}

# ---------------------------------------------------------------- logs and traces

# Takes away what was said when it happened.
log_ended() {
    grep -q "log\.csv' could not be written from the row of step [1-9]" "$scratch/err"
    verdict $? "a log that ends is not told at once: $(cat "$scratch/err")"
    sed -i "/' could not be written from the row of step /d" "$scratch/err"
}

# What rank 0 alone writes: it alone has something to say.
full_log() { # option, file's name, steps
    can_mount "--$1 onto a disk that fills" || return
    mount -t tmpfs -o size=4k tmpfs "$scratch/space" && mounts+=("$scratch/space")
    run 2 "$3" "--$1" "$scratch/space/$2"
    [ "$1" = trace ] || log_ended
    told_to_its_end "--$1 onto a disk that fills"
    failed "--$1 onto a disk that fills" 1 "/space/$2' could not be written to its end"
    [ "$1" = log ] || [ -z "$(ls -A "$scratch/space")" ]
    verdict $? "--$1 onto a disk that fills leaves $(ls -A "$scratch/space")"
    detach
}

# ------------------------------------------------------------------------ the list

run_check() {
    uring_here "io_uring is forbidden" && without_uring
    without_amx
    amx_on_one_rank
    uring_here "little locked memory" && little_locked_memory
    foreign_folder
    read_only_folder
    folder_in_memory tmpfs "is memory \(tmpfs\), not a disk"
    own_folder_in_memory
    stopped_on_a_node
    small_image
    hollow_image 180k
    ! "$build/gpt2" --help | grep -q -e --verify-spill || hollow_image 400k --verify-spill
    uring_here "a disk that shrinks" && shrunk_image uring
    bad_disk 2 "$io" "" eio-read:first:3
    bad_disk 2 "$io" "--ring posix" eio-write:middle:4
    bad_disk 2 "No space left" "" full-write:last:3
    bad_disk 1 "the file ends there" "" end-read:last:2
    short_disk short-read:any short-write:any:1
    vanished_disk posix
    small_files
    file_limit_later posix
    memory_group
    program_group
    probe_in_memory
    thread_group 3
    cpu_group
    few_descriptors 4
    few_threads 4
    little_address_space 90000
    full_log log log.csv 60
    full_log trace run.json 20
}

run_more() {
    uring_here "io_uring_disabled" && uring_sysctl
    folder_in_memory ramfs "is memory \(ramfs\), not a disk|\(ramfs\) refuses O_DIRECT"
    shrunk_image posix
    detached_image
    every_bad_place
    hung_disk
    uring_here "a lowered limit on files" && file_limit_later uring
    sweep few_descriptors {4..12}
    sweep few_threads {1..12}
    sweep little_address_space {60000..480000..30000}
}

run_list() { # check or more
    if ! have_ranks 2 "all of it"; then
        echo "100%: Checks: 1, Failures: 0, Errors: 0"
        exit
    fi
    cp "$build/gpt2" LICENSE "$scratch" && chmod 755 "$scratch/gpt2" && chmod 644 "$scratch/LICENSE"
    case $1 in
    check) run_check ;;
    more) run_more ;;
    esac
}

# What stands in for gpt2, told in its first line whether its case fails or goes on.
broken() {
    cat <<'LIST'
ok|failed|echo "rank 0: what, and why." >&2; exit 1
ok|failed|echo "libzero: warning: other" >&2; echo "rank 0: what, and why." >&2; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; exit 2
WRONG|failed|echo "rank 0: what, and why." >&2
WRONG|failed|exit 1
WRONG|failed|exec sleep 99
WRONG|failed|echo "what, and why." >&2; exit 1
WRONG|failed|echo "rank 0: what, and why not" >&2; exit 1
WRONG|failed|echo "rank 0: Rank 1 gave up before message 3." >&2; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; echo "rank 0: what, and why." >&2; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; echo "Aborted" >&2; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; echo "digest"; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; touch "$TMPDIR/a"; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; touch "$TMPDIR/../files/a"; exit 1
WRONG|failed|echo "rank 0: what, and why." >&2; touch "$TMPDIR/../shared/a"; exit 1
ok|went_on|echo "libzero: warning: so be it" >&2; echo digest 1
WRONG|went_on|echo digest 1
WRONG|went_on|echo "libzero: warning: so be it" >&2; echo digest 2
WRONG|went_on|echo "libzero: warning: so be it" >&2; echo digest 1; exit 1
WRONG|went_on|echo "libzero: warning: so be it" >&2
WRONG|went_on|echo "libzero: warning: so be it" >&2; echo "rank 0: what" >&2; echo digest 1
WRONG|failed|echo "rank 0: what, and why." >&2; (sleep 5; exit "$TMPDIR") & exit 1
LIST
}

self_test() {
    local verdict case script output tested=0 missed=0
    while IFS='|' read -r verdict case script; do
        printf '#!/bin/bash\n%s\n' "$script" >"$scratch/gpt2"
        chmod +x "$scratch/gpt2"
        limit=10 digests=([1.3]="digest 1")
        [[ $script != *99* ]] || limit=1
        run 1 3
        if [ "$case" = failed ]; then
            output=$(failed "$script" 1 "what, and why\.$")
        else
            output=$(went_on "$script" 1 3 "so be it")
        fi
        rm -f "$scratch"/{files,tmp,shared}/*
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
    [ $# = 2 ] || { echo "tests/machine.sh check|more BUILD | --self-test" >&2 && exit 2; }
    build=$2 site=$(uring_refused "$2")
    run_list "$1"
fi
closing
