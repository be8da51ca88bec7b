#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What --plan says is what a run does: tests/plan.sh GPT2
# For each case the two print the same plan, --plan ends with status 0 on every
# rank and leaves no digest behind. Make it run by: make check ONLY=plan.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/plan.sh GPT2"}
. tests/support/verdicts.sh

# The plan's table and the lines about it.
plan_of() {
    sed -n '/^model /p; /^step: /p; /^plan of rank 0/,/^  each step/p' "$1"
}

run_case() { # ranks, options
    local launch=() options name="$1 ranks, $2"
    have_ranks "$1" "$name" || return
    [ "$1" = 1 ] || launch=("${launcher[@]}" -n "$1")
    read -ra options <<<"$2 --model d4 --batch 1 --steps 2 --sample 0 --data LICENSE"
    timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" --nvme-path "$scratch" --plan \
        >"$scratch/plan" 2>"$scratch/err"
    verdict $? "--plan of $name failed: $(cat "$scratch/err")"
    ! grep -q ^digest "$scratch/plan"
    verdict $? "--plan of $name trained"
    timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" --nvme-path "$scratch" \
        >"$scratch/run" 2>"$scratch/err"
    verdict $? "$name failed: $(cat "$scratch/err")"
    plan_of "$scratch/plan" >"$scratch/said"
    plan_of "$scratch/run" | diff "$scratch/said" - >"$scratch/diff" && [ -s "$scratch/said" ]
    verdict $? "of $name another plan was printed: $(cat "$scratch/diff")"
}

# A rank that its job has not, as variables left of another job tell: the plan is of one.
RANK=5 WORLD_SIZE=2 MASTER_ADDR=nowhere timeout -k 5 60 "$gpt2" --model d4 --data LICENSE --plan \
    >"$scratch/plan" 2>"$scratch/err"
verdict $? "--plan of rank 5 of 2 failed: $(cat "$scratch/err")"
grep -q '^gpt2 .*, planned: 1 rank, ' "$scratch/plan"
verdict $? "--plan of rank 5 of 2 says: $(head -n 1 "$scratch/plan")"
ZERO_PROBE=0 timeout -k 5 60 "$gpt2" --model d4 --data LICENSE --offload nvme \
    --nvme-path "$scratch" --plan >"$scratch/plan" 2>"$scratch/err"
grep -q "^  an update's seconds are not predicted: ZERO_PROBE is 0, so no probe" "$scratch/plan"
verdict $? "--plan with ZERO_PROBE=0 says: $(grep 'an update' "$scratch/plan" "$scratch/err")"
# A trace's memory is the program's own, too.
for trace in "" "--trace $scratch/trace"; do
    read -ra options <<<"$trace"
    timeout -k 5 60 "$gpt2" --model d4 --data LICENSE --plan "${options[@]}" >"$scratch/plan" \
        2>"$scratch/err"
    sed -n 's/.*, buffers \(.*\), total.*/\1/p' "$scratch/plan" >>"$scratch/buffers"
done
[ "$(sort -u "$scratch/buffers" | wc -l)" = 2 ]
verdict $? "--plan with and without --trace: buffers of $(cat "$scratch/buffers")"
# A server's folder holds the files of all nodes, and a drive behind a page cache is not measured.
cat >"$scratch/server.c" <<'SERVER'
#define _GNU_SOURCE
#include <errno.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
int fstatfs(int fd, struct statfs *fs)
{
    (void)fd;
    *fs = (struct statfs){.f_type = 0x6969};
    return 0;
}
int fstatvfs(int fd, struct statvfs *fs)
{
    (void)fd;
    *fs = (struct statvfs){.f_frsize = 4096, .f_blocks = 1 << 20, .f_bavail = 1 << 20};
    return 0;
}
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    (void)fd, (void)from, (void)bytes, (void)at;
    errno = EINVAL;
    return -1;
}
SERVER
plan=("${gpt2%/*}/zero" plan --params 4M --ranks 1000 --ranks-per-node 2 --nvme-path "$scratch")
if ${CC:-cc} -shared -fPIC -o "$scratch/server.so" "$scratch/server.c" 2>/dev/null; then
    XDG_CACHE_HOME=$scratch "${plan[@]}" >"$scratch/out" 2>&1
    grep -qE '^ *0 nvme .*  ✓$' "$scratch/out" && ! grep -q "a server's" "$scratch/out"
    verdict $? "zero plan of files on a disk: $(cat "$scratch/out")"
    LD_PRELOAD=$scratch/server.so XDG_CACHE_HOME=$scratch "${plan[@]}" >"$scratch/out" 2>&1
    grep -qE '^ *0 nvme .*✗ files of all nodes: 47\.2 GiB needed, 4\.0 GiB available$' \
        "$scratch/out" && grep -qE '^ *3 nvme .*  ✓$' "$scratch/out" &&
        grep -q "^  files: .*, a server's: the files of all nodes count there)$" "$scratch/out"
    verdict $? "zero plan of files on a server: $(cat "$scratch/out")"
    grep -qx "  files: $scratch refuses O_DIRECT, so its drive cannot be measured" "$scratch/out"
    verdict $? "zero plan of what cannot be measured: $(cat "$scratch/out")"
else
    echo "skipped: files on a server: nothing can be compiled to stand in for the kernel"
fi
run_case 1 ""
run_case 1 "--stage 3 --offload nvme --dtype fp32 --threads 3"
run_case 2 "--stage 1 --offload cpu --recompute"
run_case 2 "--stage 3 --offload nvme --host-bytes 3M --accumulate 2"
closing
