#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs that share a node, folders and a cache:
#     tests/neighbours.sh check|more BUILD | --self-test
# Two jobs at once, of one user and of two, end as each does alone; a job that is
# killed takes nobody with it; a cache that is foreign, broken or locked costs
# nothing but time; and no run opens for writing, renames or deletes anything that
# it has not made itself, which strace shows call by call. more, of make check-all,
# has further caches, and what waits half a minute for a lock that is never had.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
limit=100
users=(64741 64742) # nobody's
folder=$scratch/files cache=$scratch/cache node=$(uname -n)
mkdir -m 1777 "$folder" "$cache" "$scratch/precious"
mkdir "$scratch/jobs"
chmod 711 "$scratch"
unset ZERO_DEVICE_MEMORY

# ------------------------------------------------------------------------ jobs

front=() with=() # what stands before mpirun, and before the ranks' program
probe=1          # ZERO_PROBE

# A job that is called $1 has a folder of its own for what Open MPI leaves.
job_start() { # name, ranks, steps, options
    local at=$scratch/jobs/$1 launch=()
    [ "$2" = 1 ] || launch=("${launcher[@]}" -n "$2")
    rm -rf "$at"
    mkdir -m 1777 "$at" "$at/tmp" "$at/shared" "$at/logs"
    (
        cd "$at/tmp" || exit
        export TMPDIR=$at/tmp OMPI_MCA_btl_vader_backing_directory=$at/shared
        export XDG_CACHE_HOME=$cache HOME=$at/tmp ZERO_PROBE=$probe
        "${front[@]}" timeout -k 5 "$limit" "${launch[@]}" "${with[@]}" "$scratch/gpt2" \
            --layers 2 --channels 32 --seq 16 --batch 1 --chunk 4096 --quiet --stage 3 \
            --offload nvme --data "$scratch/LICENSE" --nvme-path "$folder" --steps "$3" "${@:4}" \
            >"$at/out" 2>"$at/err" </dev/null
        echo $? >"$at/status"
    ) 2>/dev/null &
    job=$!
}

# What is wrong with how a job ended, in lines.
faults() { # name, the digest it has alone
    local at=$scratch/jobs/$1
    [ "$(<"$at/status")" = 0 ] || echo "exit status $(<"$at/status")"
    [ -n "$2" ] || echo "there is no digest to compare with"
    [ "$(grep ^digest "$at/out")" = "$2" ] || echo "another digest than alone"
    # A site may refuse io_uring, and who shares a limit on locked memory has what others left.
    sed -E '/^libzero: warning: (This system refuses|io_uring could not register)/d; s/^/said: /' \
        "$at/err"
    find "$at/tmp" "$at/shared" -mindepth 1 | sed 's/^/left: /'
}

judge() { # name, what is wrong
    local wrong
    wrong=$2$(find "$folder" -mindepth 1 -newer "$scratch/LICENSE" | sed 's/^/left: /')
    [ -z "$wrong" ]
    verdict $? "$1: $wrong"
    [ -n "$wrong" ] || echo "ok: $1"
}

can_become() { # what is skipped without
    local user front=()
    [ "$(id -u)" = 0 ] || { skip "$1: needs root, to become other users" && return 1; }
    for user in "${users[@]}"; do
        as "$user"
        "${front[@]}" test -x "$scratch/gpt2" && continue
        skip "$1: users cannot run what is in $scratch"
        return 1
    done 2>/dev/null
}

as() { # user
    front=(setpriv --reuid "$1" --regid "$1" --clear-groups)
}

# ----------------------------------------------------------------------- at once

alone() {
    probe=0
    job_start alone 2 3
    wait "$job"
    digest=$(grep ^digest "$scratch/jobs/alone/out")
    job_start alone 2 100
    wait "$job"
    long_digest=$(grep ^digest "$scratch/jobs/alone/out")
    probe=1
}

# What the cache calls this drive.
find_key() {
    empty_cache
    job_start alone 1 3
    wait "$job"
    key=$(find "$cache/libzero" -name 'io-????????????????' | sed 's/.*io-//')
    [ -n "$key" ]
    verdict $? "a run with ZERO_PROBE=1 left nothing in the cache"
}

empty_cache() {
    rm -rf "$cache" && mkdir -m "${1:-1777}" "$cache"
}

# The names in the cache, without what stands for a drive.
cached() {
    find "$cache" -mindepth 2 -printf '%f\n' 2>/dev/null |
        sed -E "s/[0-9a-f]{16}/KEY/; s/[.]${node//./[.]}[.]lock$/.NODE.lock/" | sort | xargs
}

two_jobs() {
    local first wrong
    empty_cache
    job_start first 2 3
    first=$job
    job_start second 2 3
    wait "$first" "$job"
    wrong=$(faults first "$digest" && faults second "$digest")
    [ "$(cached)" = "io-KEY io-KEY.NODE.lock" ] || wrong+="; the cache holds: $(cached)"
    judge "two jobs of one user" "$wrong"
}

two_users() { # mode of the cache's folder libzero; empty: the first user makes it
    local first name="two users${1:+, and a cache of mode $1}"
    can_become "$name" || return
    empty_cache
    [ -z "$1" ] || mkdir -m "$1" "$cache/libzero"
    as "${users[0]}"
    job_start first 2 3
    first=$job
    as "${users[1]}"
    job_start second 2 3
    front=()
    wait "$first" "$job"
    judge "$name" "$(faults first "$digest" && faults second "$digest")"
    [ -z "$1" ] || judge "$name: what they left" "$(cached | sed '/^io-KEY io-KEY.NODE.lock$/d')"
}

# Killed are the ranks and their mpirun, as a batch system does when a job's time is over.
killed_neighbour() { # signal
    local first tries pid name="a job whose neighbour gets SIG$1"
    probe=0
    job_start first 2 1000000 --log "$scratch/jobs/first/logs/run.csv"
    first=$job
    for ((tries = 0; tries < 600; tries++)); do
        [ "$(wc -l 2>/dev/null <"$scratch/jobs/first/logs/run.csv")" -ge 3 ] 2>/dev/null && break
        sleep 0.05
    done
    [ "$tries" -lt 600 ]
    verdict $? "$name: the neighbour did not come to its second step: $(<"$scratch/jobs/first/err")"
    job_start second 2 100
    for pid in $(naming "$scratch/jobs/first/logs"); do
        kill -s "$1" "$pid" 2>/dev/null
    done
    wait "$first" "$job"
    [ "$(<"$scratch/jobs/first/status")" != 0 ]
    verdict $? "$name: the neighbour was not killed"
    judge "$name" "$(faults second "$long_digest")"
    probe=1
}

# --------------------------------------------------------------------- the cache

# One rank with a cache that something is wrong with: it goes on without a word.
odd_cache() { # name
    job_start odd 2 3
    wait "$job"
    judge "$1" "$(faults odd "$digest")"
}

odd_caches() {
    rm -rf "$cache"
    odd_cache "a cache that does not exist"
    rm -rf "$cache" && touch "$cache"
    odd_cache "a file where the cache's folder would be"
    rm "$cache" && mkdir -p "$cache/libzero/io-$key"
    odd_cache "a folder where a result would be"
    empty_cache
    mkdir "$cache/libzero" && mkfifo "$cache/libzero/io-$key" "$cache/libzero/io-$key.$node.lock"
    odd_cache "pipes where result and lock would be"
}

foreign_cache() { # mode
    local name="a cache of root with mode $1"
    can_become "$name" || return
    empty_cache 755
    mkdir -m "$1" "$cache/libzero"
    echo "not ours" >"$cache/libzero/io-$key"
    as "${users[0]}"
    odd_cache "$name"
    front=()
    [ "$(<"$cache/libzero/io-$key")" = "not ours" ]
    verdict $? "$name: the result was replaced"
    empty_cache
}

# Somebody has the lock for ever.
held_lock() {
    local holder begun=$SECONDS name="a lock that is never had"
    empty_cache
    mkdir "$cache/libzero"
    flock --no-fork -x "$cache/libzero/io-$key.$node.lock" sleep 300 &
    holder=$!
    odd_cache "$name"
    [ $((SECONDS - begun)) -ge 29 ]
    verdict $? "$name: it was waited for $((SECONDS - begun)) s"
    kill $holder
    wait $holder 2>/dev/null
}

# ----------------------------------------------------------------- others' files

# Everything about the files that were there before.
inventory() {
    find "$folder" "$cache" "$scratch/precious" \
        \( -type f -size -100k -printf '%p %i %n %m %U %s %T@ ' -exec sha256sum {} \; \) -o \
        \( -type l -printf '%p %i %T@ -> %l\n' \) -o \( ! -type d -printf '%p %y\n' \) | sort
}

plant() {
    local i precious=$scratch/precious lib=$cache/libzero
    empty_cache
    mkdir "$lib"
    for i in zero-spill-XXXXXX zero-spill-a1b2c3 zero-spill-000000 data; do
        echo "$i" >"$folder/$i"
        echo "$i" >"$precious/$i"
        ln -s "$precious/$i" "$folder/$i.link"
    done
    for i in "io-$key.XXXXXX" "io-$key.a1b2c3" io-0123456789abcdef io-0123456789abcdef.lock; do
        echo "$i" >"$lib/$i"
    done
    ln -s "$precious/nothing" "$lib/io-$key.$node.lock"
    ln -s "$precious/data" "$lib/io-$key.temporary"
    ln -s "$precious/data" "$lib/io-$key"
    touch -d 2001-01-01 "$folder"/* "$precious"/* "$lib"/* -h
}

# The drive's own result is replaced; nothing else is, also not through links.
others_files() { # what stands before gpt2, in words
    local before after name="others' files${1:+, $1}"
    plant
    before=$(inventory | grep -v "/io-$key ")
    read -ra with <<<"${1:+$build/tests/without $1}"
    job_start first 2 3
    with=()
    wait "$job"
    judge "$name: the job" "$(faults first "$digest")"
    after=$(inventory | grep -v "/io-$key ")
    [ "$before" = "$after" ]
    verdict $? "$name are changed: $(diff <(echo "$before") <(echo "$after"))"
    [ -f "$cache/libzero/io-$key" ] && ! [ -h "$cache/libzero/io-$key" ]
    verdict $? "$name: the result is not in its place"
    [ "$(find "$folder" "$scratch/precious" "$cache/libzero" | wc -l)" = 22 ]
    verdict $? "$name: something is there that was not"
    rm -f "$folder"/* "$scratch/precious"/*
    empty_cache
}

# ------------------------------------------------------------------------ strace

calls=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,truncate
calls+=,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,mknod,mknodat
calls+=,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,setxattr

# The calls of strace's output that touch what they may not, in its words.
strangers() { # where its lines are: folder of the job; reads them
    awk -v at="$1" -v folder="$folder" -v cache="$cache" -v node="${node//./[.]}" '
        BEGIN { # without {16}, which not every awk knows
            trace = at "/logs/run.json"
            ours = "^" cache "/libzero/io-"
            for (i = 0; i < 16; i++)
                ours = ours "[0-9a-f]"
            for (i = 0; i < 6; i++)
                six = six "[A-Za-z0-9]"
        }
        function begins(text, with) { return substr(text, 1, length(with)) == with }
        # Open MPI and what it stands on: its session, its shared memory, terminals, GPUs,
        # names of threads.
        function mpi(path) {
            return begins(path, at "/tmp/ompi.") || begins(path, at "/tmp/prterun.") ||
                   path ~ ("^" at "/shared/(vader|sm)_segment[.]") ||
                   begins(path, "/dev/shm/open_mpi.") || path == "/dev/ptmx" ||
                   begins(path, at "/tmp/pmix") || begins(path, "/dev/pts/") ||
                   path ~ "^/(dev/(kfd|accel/|dri/|nvidia)|proc/self/task/[0-9]+/comm$)"
        }
        function result(path) { return path ~ (ours "$") }
        function temporary(path) { return path ~ (ours "[.]" six "$") }
        function written(path) {
            if (path == at "/logs/run.csv" || path == trace ".part" || path == "/dev/null")
                return 1
            if (path == folder)
                return /O_TMPFILE/
            if (path ~ (ours "[.]" node "[.]lock$"))
                return /O_NOFOLLOW/
            return temporary(path) && /O_CREAT\|O_EXCL/
        }
        # Paths, which have no spaces here.
        function paths(  rest) {
            count = 0
            rest = $0
            while (match(rest, /"[^"]*"/)) {
                path[++count] = substr(rest, RSTART + 1, RLENGTH - 2)
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
        !/^[a-z0-9_]+\(/ { next }
        {
            call = substr($0, 1, index($0, "(") - 1)
            paths()
            good = mpi(path[1]) && (count < 2 || mpi(path[2]))
        }
        call ~ /^(open|openat|openat2|creat)$/ {
            if (call != "creat" && !/O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE/)
                next
            good = good || written(path[1])
        }
        call ~ /^mkdir/ { good = good || / = -1 EEXIST/ || path[1] == cache "/libzero" }
        call ~ /^rename/ {
            good = temporary(path[1]) && result(path[2]) ||
                   path[1] == trace ".part" && path[2] == trace
        }
        call ~ /^unlink/ { good = good || temporary(path[1]) || index(path[1], trace) == 1 }
        !good { print }'
}

# Programs that must say nothing, lines of which each must be reported, and
# nothing but these.
show_calls() {
    local at=$scratch/jobs/traced seen strange
    if ! command -v strace >/dev/null || ! strace -o /dev/null true 2>/dev/null; then
        skip "which files a run touches: needs strace (make deps) and the right to trace"
        return
    fi
    empty_cache
    mkdir "$scratch/calls"
    front=(strace -ff -o "$scratch/calls/of" -e "trace=$calls")
    job_start traced 2 3 --log "$at/logs/run.csv" --trace "$at/logs/run.json"
    front=()
    wait "$job"
    judge "a run under strace" "$(faults traced "$digest")"
    cat "$scratch/calls/"* >"$scratch/lines"
    for seen in O_TMPFILE /run.csv /run.json 'rename.*/io-' 'io-.*\.lock' \
        '\(vader\|sm\)_segment'; do
        grep -q "$seen" "$scratch/lines"
        verdict $? "strace has not seen $seen"
    done
    strange=$(strangers "$at" <"$scratch/lines")
    [ -z "$strange" ]
    verdict $? "what a run may not touch: $strange"
    rm -rf "$scratch/calls"
}

# ------------------------------------------------------------------------ the list

run_check() {
    two_jobs
    show_calls
    others_files ""
    two_users ""
    killed_neighbour KILL
    foreign_cache 700
}

run_more() {
    others_files tmpfile
    two_users 1777
    two_users 700
    killed_neighbour TERM
    foreign_cache 711
    foreign_cache 755
    odd_caches
    held_lock
}

run_list() { # check or more
    if ! have_ranks 2 "all of it"; then
        verdict 0
        return
    fi
    cp "$build/gpt2" LICENSE "$scratch" && chmod 755 "$scratch/gpt2" && chmod 644 "$scratch/LICENSE"
    alone
    find_key
    case $1 in
    check) run_check ;;
    more) run_more ;;
    esac
}

# Each line has to be reported, or not.
self_test() {
    local expected line at=$scratch/jobs/j reported
    while IFS='|' read -r expected line; do
        reported=$(eval "echo \"${line//\"/\\\"}\"" | strangers "$at" | wc -l)
        [ "$reported" = "$expected" ]
        verdict $? "$reported lines are reported, $expected expected: $line"
    done <<'LIST'
0|openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3
0|openat(AT_FDCWD, "$folder", O_RDWR|O_CLOEXEC|O_TMPFILE, 0600) = 18
0|openat(AT_FDCWD, "$at/logs/run.csv", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 20
0|openat(AT_FDCWD, "$at/shared/vader_segment.vm.0.1", O_RDWR|O_CREAT, 0600) = 17
0|openat(AT_FDCWD, "$cache/libzero/io-0123456789abcdef.$node.lock", O_RDWR|O_CREAT|O_NOFOLLOW) = 1
0|openat(AT_FDCWD, "$cache/libzero/io-0123456789abcdef.jfUqqW", O_RDWR|O_CREAT|O_EXCL) = 18
0|openat(AT_FDCWD, "$at/logs/run.json.part", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 20
0|rename("$at/logs/run.json.part", "$at/logs/run.json") = 0
0|unlink("$at/logs/run.json.part") = 0
0|unlink("$at/logs/run.json") = -1 ENOENT (No such file or directory)
0|rename("$cache/libzero/io-0123456789abcdef.jfUqqW", "$cache/libzero/io-0123456789abcdef") = 0
0|mkdir("/tmp", 0700) = -1 EEXIST (File exists)
0|mkdir("$cache/libzero", 0700) = 0
0|--- SIGCHLD {si_signo=SIGCHLD} ---
1|openat(AT_FDCWD, "/etc/passwd", O_RDWR) = 3
1|open("/etc/passwd", O_WRONLY|O_APPEND) = 3
1|creat("/etc/passwd", 0600) = 3
1|openat(AT_FDCWD, "$folder/zero-spill-a1b2c3", O_RDWR|O_CREAT) = 18
1|openat(AT_FDCWD, "$cache/libzero/io-0123456789abcdef", O_WRONLY|O_CREAT|O_TRUNC) = 18
1|openat(AT_FDCWD, "$cache/libzero/io-0123456789abcdef.jfUqqW", O_RDWR|O_CREAT) = 18
1|openat(AT_FDCWD, "$cache/libzero/io-0123456789abcdef.$node.lock", O_RDWR|O_CREAT) = 18
1|rename("$cache/libzero/io-0123456789abcdef.jfUqqW", "/etc/passwd") = 0
1|rename("$at/tmp/ompi.vm", "/etc/passwd") = 0
1|openat(AT_FDCWD, "$at/logs/run.json", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 20
1|unlink("$cache/libzero/io-0123456789abcdef") = 0
1|unlinkat(AT_FDCWD, "$folder/data", 0) = 0
1|mkdir("/opt/new", 0700) = 0
1|truncate("$folder/data", 0) = 0
1|symlink("/etc/passwd", "$at/tmp/ompi.vm") = 0
1|chmod("/etc/passwd", 0777) = 0
1|link("$at/tmp/ompi.a", "/etc/passwd") = 0
1|rmdir("/opt") = 0
LIST
}

if [ "${1-}" = --self-test ]; then
    self_test
else
    [ $# = 2 ] || { echo "tests/neighbours.sh check|more BUILD | --self-test" >&2 && exit 2; }
    case $2 in
    /*) build=$2 ;;
    *) build=$PWD/$2 ;;
    esac
    run_list "$1"
fi
closing
