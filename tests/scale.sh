#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What only large runs show, by make check-scale: tests/scale.sh BUILD
#  1. A model of a billion parameters trains on two ranks in 6 GiB of memory.
#  2. One tensor of more than 2^31 elements takes a step.
#  3. Transfers are cut where they exceed a limit: the suites for it, on 2 and 3
#     ranks.
# It takes minutes, 22 GB of disk and 14 GB of memory; a part whose place lacks is
# skipped with the reason. Memory is limited by a control group, which root makes.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=${1:?"give the build folder: tests/scale.sh BUILD"}
folder=${TMPDIR:-/var/tmp}
. tests/support/verdicts.sh
group=
trap '[ -z "$group" ] || rmdir "$group"; rm -rf "$scratch"' EXIT

# A control group with so many bytes of memory, of version 1 or 2; false: none.
group_make() { # bytes
    local mount=/sys/fs/cgroup name=zero-scale.$$ file=memory.max
    [ ! -d $mount/memory ] || { mount=$mount/memory && file=memory.limit_in_bytes; }
    mkdir "$mount/$name" 2>/dev/null || return
    group=$mount/$name
    echo "$1" 2>/dev/null >"$group/$file" && return
    group_end
    false
}

group_end() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        rmdir "$group" 2>/dev/null && break
        sleep 0.1
    done
    group=
}

# The most that was in it at once, pages of files not told apart.
group_peak() {
    cat "$group/memory.max_usage_in_bytes" 2>/dev/null || cat "$group/memory.peak"
}

in_group() { # command...
    bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" "$@"
}

room() { # GB of memory, GB of disk, what: is there so much?
    local memory disk
    memory=$(awk '/^MemAvailable/ { print int($2 / 1e6) }' /proc/meminfo)
    disk=$(($(stat -f -c '%a * %S' "$folder") / 1000000000))
    [ "$memory" -ge "$1" ] && [ "$disk" -ge "$2" ] && return
    echo "skipped: $3: needs $1 GB of memory ($memory are available) and $2 GB of disk in $folder \
($disk are free)"
    false
}

billion() {
    local what="a billion parameters in 6 GiB" status
    [ "${#launcher[@]}" != 0 ] || { echo "skipped: $what: needs mpirun" && return; }
    room 7 16 "$what" || return
    group_make $((6 << 30)) || { echo "skipped: $what: no memory control group (root)" && return; }
    in_group timeout -k 5 3600 "${launcher[@]}" -n 2 "$build/gpt2" --model 1B --stage 3 \
        --offload nvme --recompute --grad-dtype bf16 --steps 3 --batch 1 --sample 0 \
        --data README.md --nvme-path "$folder" >"$scratch/out" 2>"$scratch/err"
    status=$?
    echo "$what: $(group_peak) bytes at most"
    group_end
    grep -E '^model|^step|^[0-9]+ steps|VmHWM|^digest' "$scratch/out"
    verdict $status "$what failed: $(tail -n 3 "$scratch/err")"
    [ "$(grep -cE '^step [123]/3 ' "$scratch/out")" = 3 ]
    verdict $? "$what did not take 3 steps"
    grep -q ^digest "$scratch/out"
    verdict $? "$what printed no digest"
}

big_tensor() {
    local what="a tensor of 2^31 + 64 elements" status
    room 14 22 "$what" || return
    timeout -k 5 1800 "$build/tests/big_tensor" >"$scratch/out" 2>"$scratch/err"
    status=$?
    cat "$scratch/out"
    [ $status = 77 ] && return
    verdict $status "$what failed: $(tail -n 3 "$scratch/err")"
}

# The program's own checks, where they take no time.
small_tensors() {
    local elements
    for elements in 1000 64000000; do
        "$build/tests/big_tensor" $elements >"$scratch/out" 2>&1
        verdict $? "a tensor of $elements elements: $(tail -n 1 "$scratch/out")"
    done
}

limits() {
    local suite ranks
    for suite in mpi_test mpi_large_test; do
        for ranks in 2 3; do
            if [ ! -x "$build/tests/$suite" ] || [ "${#launcher[@]}" = 0 ]; then
                echo "skipped: $suite on $ranks ranks: needs MPI"
                continue
            fi
            timeout -k 5 300 "${launcher[@]}" -n $ranks "$build/tests/$suite" \
                >"$scratch/out" 2>&1
            verdict $? "$suite on $ranks ranks: $(tail -n 2 "$scratch/out")"
        done
    done
    for suite in ring_test ring_core_test; do
        CK_DEFAULT_TIMEOUT=120 "$build/tests/$suite" >"$scratch/out" 2>&1
        verdict $? "$suite: $(tail -n 2 "$scratch/out")"
    done
}

for part in ${2:-small_tensors limits big_tensor billion}; do
    begin=$SECONDS
    $part
    echo "-- $part: $((SECONDS - begin)) s"
done
[ $checks != 0 ] || exit 0
closing
