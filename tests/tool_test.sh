#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tool: tests/tool_test.sh ZERO | --self-test
# info names what it must, also where the kernel tells nothing; plan agrees with
# a computation by hand and says what does not fit; each bench ends and prints
# its three lines; what is wrong gets one sentence and status 2. Speed is not
# judged. --self-test puts programs in the tool's place that break these rules.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
limit=60 # seconds for a command: a hang is longer
# What tells how a job was launched would tell it of this script, too.
unset SLURM_TMPDIR TMPDIR ZERO_DEVICE_MEMORY ZERO_ISA ZERO_PROBE
for name in $(compgen -e | grep -E '^(SLURM_|PMI|OMPI_COMM_|MV2_COMM)'); do
    unset "$name"
done

tool() { # environment or nothing, arguments; standard output and error are kept
    local environment=()
    while [[ ${1-} == *=* ]]; do
        environment+=("$1")
        shift
    done
    timeout -k 5 "$limit" env "${environment[@]}" "$zero" "$@" >"$scratch/out" 2>"$scratch/err" \
        </dev/null
}

have_two_ranks() { # what is left out without them
    [ ${#launcher[@]} != 0 ] && nm -D "$zero" | grep -q MPI_Init && return
    echo "skipped: $1 on two ranks, for want of MPI"
    return 1
}

has() { # pattern, what it is about
    grep -qE "$1" "$scratch/out"
    verdict $? "$2: no line with '$1'"
}

# ------------------------------------------------------------------- wrong use

refused() { # the sentence | arguments, after an environment
    local sentence=$1 status
    shift
    tool "$@"
    status=$?
    [ "$status" = 2 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" = 1 ] &&
        grep -qE "^zero: .*$sentence" "$scratch/err"
    verdict $? "$*: status $status, $(cat "$scratch/err"), expected 2 and '$sentence'"
}

wrong_use() {
    refused "No command is given\."
    refused "There is no command 'plann'\." plann
    refused "There is no option --unknown\." info --unknown
    refused "'now' is no option\." info now
    refused "--ranks cannot be '0'" plan --ranks 0
    refused "--model cannot be 'd5'" plan --model d5
    refused "--params and --layers contradict each other\." plan --params 1M --layers 3
    refused "--unit-size is for --params" plan --unit-size 64
    refused "--ranks-per-node 3 is more than --ranks 2\." plan --ranks-per-node 3
    refused "--channels 70 cannot be divided among 4 heads\." plan --channels 70 --heads 4
    refused "--state split is for bf16 models\." plan --dtype fp32 --state split
    refused "--chunk 100 is not a multiple of 64\." plan --chunk 100
    refused "Give a larger --unit-size\." plan --params 1G --unit-size 1
    refused "has an empty name in it" plan --nvme-path :
    refused "ZERO_DEVICE_MEMORY is 'much', which is no size\." ZERO_DEVICE_MEMORY=much plan
    refused "ZERO_PROBE is '2'\. Use 1 to measure" ZERO_PROBE=2 plan
    refused "zero bench needs a name\." bench
    refused "There is no bench 'disk'\." bench disk
    refused "--full and --quick contradict each other\." bench adam --full --quick
    refused "--params is for zero bench memory and step" bench io --params 1M
    refused "--verify-spill is for zero bench step" bench io --verify-spill
    refused "--alone is for zero bench step" bench fixed --alone
    for name in plan "bench step" "bench io"; do
        read -ra words <<<"$name"
        refused "TMPDIR is '/a:b', of which the ':' would make two" TMPDIR=/a:b "${words[@]}"
    done
    refused "--alone is for --state split" bench step --alone --state fp32
    refused "--alone and --host-share 100 leave nothing" bench step --alone --host-share 100
    refused "--fio is for zero bench io" bench step --fio
    refused "There is no fio in PATH" PATH=/nowhere bench io --fio
    refused "--host-share is for zero bench step" bench fixed --host-share 30
    refused "--state is for zero bench step" bench adam --state split
    refused "--threads is for zero bench adam" bench comm --threads 1
    refused "--nvme-path is for zero bench io and step" bench adam --nvme-path /
    refused "2 were launched\." OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 bench io
    if strace -o "$scratch/calls" -e trace=write "$zero" bench disk 2>/dev/null; [ $? = 2 ]; then
        [ "$(grep -c '^write(2,' "$scratch/calls")" = 1 ]
        verdict $? "a sentence in pieces, which other ranks' come between: $(cat "$scratch/calls")"
    else
        echo "skipped: a sentence in one piece, for want of strace or the right to trace"
    fi
    refused "There is no page on 'pages'\." help pages
    refused "zero help takes one topic" help law mpi
}

# A folder that cannot be used is the run's failure, not the command line's.
failed() { # pattern, arguments
    local pattern=$1 status
    shift
    tool "$@"
    status=$?
    [ "$status" = 1 ] && grep -qE "^zero: .*$pattern" "$scratch/err"
    verdict $? "$*: status $status, $(cat "$scratch/err"), expected 1 and '$pattern'"
}

# ------------------------------------------------------------------------ info

facts() { # what a machine of any kind is told of
    local fact
    for fact in libzero compiler MPI liburing xxHash kernel io_uring model CPUs \
        "affinity mask" "quota of time" "NUMA nodes" "instruction sets" "kernels chosen" available \
        "cgroup limit" \
        "transparent huge pages" RLIMIT_MEMLOCK "default for nvme" /var/tmp "launched under"; do
        has "^  $fact  *[^ ]" "info"
    done
    has '^  (GPU [0-9]|GPUs)  *[^ ]' "info"
}

info() {
    mkdir "$scratch/liburing" && cp "$zero" "$scratch/liburing/zero"
    "$scratch/liburing/zero" info >"$scratch/out"
    has '^  liburing  *(liburing\.so|linked|not in)' "info of a build in a folder of that name"
    tool info
    verdict $? "info failed: $(cat "$scratch/err")"
    facts
    has "^  libzero  *$(sed -n 's/^#define ZERO_VERSION "\(.*\)"/\1/p' include/zero.h)\$" "info"
    has '^  launched under .*single process' "info"
    tool SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 info
    has '^  launched under  *Slurm without PMIx' "info in a step without PMIx"
    has '^  SLURM_PROCID  *1$' "info in a step without PMIx"
    tool PMI_RANK=0 info
    has '^  launched under  *mpirun \(MPICH or kin\)$' "info with a rank of PMI"
    tool PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 SLURM_JOB_ID=7 info
    has '^  launched under  *mpirun \(MPICH or kin\) in a Slurm job$' "info under MPICH in a job"
    tool PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 SLURM_JOB_ID=7 PMIX_RANK=0 info
    has '^  launched under  *mpirun \(MPICH or kin\) in a Slurm job$' "info of MPICH's in a step"
    tool PMI_RANK=0 PMI_SIZE=2 SLURM_JOB_ID=7 info
    has '^  launched under  *Slurm with PMI$' "info in a step with PMI"
    tool SLURM_JOB_ID=7 PMIX_RANK=0 SLURM_STEP_NUM_TASKS=2 info
    has '^  launched under  *Slurm with PMIx' "info in a step with PMIx"
    tool TORCHELASTIC_RUN_ID=a RANK=0 WORLD_SIZE=2 MASTER_ADDR=b SLURM_JOB_ID=7 PMIX_RANK=0 info
    has '^  launched under  *torchrun$' "info in a worker of torchrun in a step with PMIx"
    tool ZERO_ISA=scalar info
    has '^  kernels chosen  *scalar' "info with ZERO_ISA"
    tool TMPDIR=/dev/shm SLURM_TMPDIR="$scratch/nothing" info
    # shellcheck disable=SC2016 # the name of a variable is meant
    has '^  \$SLURM_TMPDIR .*No such file' "info with a folder that is not there"
    [ "$(stat -f -c %T /dev/shm)" != tmpfs ] || has 'tmpfs is RAM' "info with a tmpfs"
    info_disk
    many_cpus
    info_gpu
    info_group
    info_blind
    info_ranks
}

# A kernel for more CPUs than a set of glibc's usual size has, of which three are allowed.
many_cpus() {
    cat >"$scratch/many.c" <<'MANY'
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
int sched_getaffinity(pid_t id, size_t size, cpu_set_t *set)
{
    (void)id;
    if (size < 256)
        return errno = EINVAL, -1;
    CPU_ZERO_S(size, set);
    for (int i = 1; i < 4; i++)
        CPU_SET_S(500 * i, size, set);
    return 0;
}
MANY
    if ! ${CC:-cc} -shared -fPIC -o "$scratch/many.so" "$scratch/many.c" 2>/dev/null; then
        skip "many CPUs: nothing can be compiled to stand in for the kernel" && return
    fi
    tool LD_PRELOAD="$scratch/many.so" info
    has '^  affinity mask  *3 CPUs: ' "info with many CPUs"
    tool LD_PRELOAD="$scratch/many.so" plan
    verdict $? "plan with many CPUs failed: $(cat "$scratch/err")"
    has '^  memory: .* by 3 threads$' "plan with many CPUs"
}

# A file system of its own, at a name that the kernel's list of them writes otherwise.
info_disk() {
    # shellcheck disable=SC2016 # these are the inner shell's
    local mounted='mount -t tmpfs none "$TMPDIR" && exec "$1" info'
    mkdir "$scratch/a b\\"
    if ! TMPDIR="$scratch/a b\\" timeout "$limit" unshare -m sh -c "$mounted" sh "$zero" \
        >"$scratch/out" 2>"$scratch/err"; then
        skip "info with a folder of its own: nothing can be mounted (root can)" && return
    fi
    # shellcheck disable=SC2016 # the name of a variable is meant
    has '^  \$TMPDIR .*/a b\\: tmpfs on none, ' "info with a mount at 'a b\\'"
    TMPDIR="$scratch/a b\\" timeout "$limit" unshare -m sh -c "${mounted/tmpfs/ramfs}" sh "$zero" \
        >"$scratch/out" 2>"$scratch/err"
    # shellcheck disable=SC2016 # here, too
    has '^  \$TMPDIR .*: ramfs on none, an unknown amount free' "info with a ramfs"
}

# A driver of ours, which answers as the real one does.
info_gpu() {
    cat >"$scratch/driver.c" <<'DRIVER'
#include <stdio.h>
#include <stddef.h>
int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *version) { return *version = 12040, 0; }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal + 10, 0; }
int cuDeviceGetName(char *name, int size, int device)
{
    return snprintf(name, size, "Toy %d", device), 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)device << 30, 0; }
DRIVER
    if ! ${CC:-cc} -shared -fPIC -o "$scratch/libcuda.so.1" "$scratch/driver.c" 2>/dev/null; then
        skip "info with GPUs: no driver can be compiled to stand in" && return
    fi
    tool LD_LIBRARY_PATH="$scratch" info
    has '^  --device cuda  *[A-Z].*\.$' "info with GPUs"
    has '^  CUDA driver  *for CUDA 12\.4$' "info with GPUs"
    has '^  GPU 0  *Toy 10, 10\.0 GiB$' "info with GPUs"
    has '^  GPU 1  *Toy 11, 11\.0 GiB$' "info with GPUs"
}

# A control group of ours that allows 64 MiB: info names it, plan counts with it.
info_group() {
    local limit_file group=/sys/fs/cgroup/memory/zero-tool-$$
    [ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/zero-tool-$$
    limit_file=$group/memory.limit_in_bytes
    if ! mkdir "$group" 2>/dev/null; then
        skip "info in a control group: none can be made (root can)" && return
    fi
    [ -e "$limit_file" ] || limit_file=$group/memory.max
    if echo $((64 << 20)) 2>/dev/null >"$limit_file"; then
        for command in info plan; do
            # shellcheck disable=SC2016 # these are the inner shell's
            sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" "$3"' sh "$group" "$zero" $command \
                >"$scratch/out" 2>"$scratch/err" </dev/null
            verdict $? "$command in a control group failed: $(cat "$scratch/err")"
            [ $command = plan ] || has "^  cgroup limit  *64\.0 MiB, .* used: $group\$" "info"
        done
        has "^this machine: memory [1-6].* MiB available \($group\)" "plan in a control group"
        has '^ *0 none .*✗ memory: 121\.9 MiB needed' "plan in a control group"
    else
        echo "skipped: info in a control group: it takes no limit on memory"
    fi
    rmdir "$group"
}

# Without /proc and /sys it knows less, and says so.
info_blind() {
    local hide='mount -t tmpfs none /sys && mount -t tmpfs none /proc && shift && exec "$@"'
    if ! unshare -m sh -c 'mount -t tmpfs none /sys && mount -t tmpfs none /proc' 2>/dev/null; then
        skip "info without /proc and /sys: nothing can be mounted (root can)" && return
    fi
    timeout "$limit" unshare -m sh -c "$hide" sh - "$zero" info >"$scratch/out" 2>"$scratch/err"
    verdict $? "info without /proc and /sys failed: $(cat "$scratch/err")"
    facts
}

# One process of a node speaks.
info_ranks() {
    have_two_ranks info || return
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$zero" info >"$scratch/out" 2>&1 </dev/null
    verdict $? "info on two ranks failed"
    [ "$(grep -c '^  libzero ' "$scratch/out")" = 1 ]
    verdict $? "info on two ranks: $(grep -c '^  libzero ' "$scratch/out") of them spoke"
    has '^  launched under  *mpirun' "info on two ranks"
}

# ------------------------------------------------------------------------ plan

column() { # row "stage,place", name: that column of the CSV
    awk -F, -v row="$1" -v name="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
        $1 "," $2 == row { print $at }' "$scratch/out"
}

equals() { # row, column, expected
    local value
    value=$(column "$1" "$2")
    [ "$value" = "$3" ]
    verdict $? "plan, row $1: $2 is '$value', expected $3"
}

up() { # to whole pages
    echo $((($1 + 4095) / 4096 * 4096))
}

page_spans() { # elements of shards, one after the other: bytes of bf16 read for each, summed
    local at=0 sum=0 n
    for n in "$@"; do
        sum=$((sum + $(up $((2 * (at + n)))) - 2 * at / 4096 * 4096))
        at=$((at + n))
    done
    echo "$sum"
}

# 2 layers of 64 channels, 32 positions, 256 tokens; all tensors are multiples of
# 64 elements. Units are padded to 128 for two ranks: embeddings (256 + 32) * 64,
# blocks 12 * 64^2 + 13 * 64 = 49984 -> 50048, the last norm 128.
by_hand() {
    local embed=18432 block=50048 final=128 whole shard slots state fetched
    whole=$((embed + 2 * block + final)) # 118656
    shard=$((whole / 2))
    tool plan --layers 2 --channels 64 --seq 32 --vocab 256 --ranks 2 --csv
    verdict $? "plan --csv failed: $(cat "$scratch/err")"
    # Three gradient slots in bf16; the reduction's pieces: half a block, to 256, twice.
    slots=$((2 * $(up $((2 * block))) + $(up $((2 * embed))) + $(up $((2 * 50176)))))
    slots=$((slots + $(up $((2 * whole))))) # and the parameters, whole
    equals 0,none device $(($(up $((4 * whole))) + $(up $((12 * whole))) + slots))
    equals 1,none device $(($(up $((4 * shard))) + $(up $((12 * shard))) + slots))
    equals 0,none nvme 0
    # One chunk holds all: three arrays of fp32 in whole pages. Each rank has a file.
    state=$((3 * $(up $((4 * whole)))))
    equals 0,nvme nvme $state
    equals 0,nvme node_nvme $((2 * state))
    state=$((3 * $(up $((4 * shard)))))
    equals 1,nvme nvme $state
    equals 1,nvme read $state
    equals 1,nvme written $state
    equals 2,nvme nvme $state
    equals 3,nvme nvme $((state + $(up $((2 * shard)))))
    equals 3,nvme read $state
    equals 3,nvme written $((state + $(up $((2 * shard)))))
    # Each unit's shard lies in the one chunk, and is read in whole pages.
    fetched=$(page_spans $((embed / 2)) $((block / 2)) $((block / 2)) $((final / 2)))
    equals 3,nvme param_read "$fetched"
    equals 3,cpu nvme 0
    local unchecked files
    unchecked=$(column 3,nvme host) files=$(column 3,nvme nvme)
    if "$zero" plan --help | grep -q '^  --verify-spill'; then
        tool plan --layers 2 --channels 64 --seq 32 --vocab 256 --ranks 2 --csv --verify-spill
        equals 3,nvme host $((unchecked + $(up $((files / 512)))))
        equals 3,cpu nvme 0
    fi
    equals 3,none node_device $((2 * $(column 3,none device)))
    equals 1,none gather $((2 * shard))
    equals 0,none gather 0
    tool plan --layers 2 --channels 64 --seq 32 --vocab 256 --ranks 2
    has '^ *3 nvme .* 812\.0 KiB .* 1\.6 MiB  *696\.0 KiB  *812\.0 KiB .*✓$' "plan, its table"
    has 'reads a further 128\.0 KiB per rank\.$' "plan, its table"
    has '^ *1 none .* -  *-  *[0-9.]* MiB  *-  *-  *-  *- .*✓$' "plan, its table"
    tool plan --params 512T --unit-size 16G
    has '^ *3 nvme .*✗ The model has more than 2\^48 elements' "plan of a model that is none"
    ! grep -q 'reads a further' "$scratch/out"
    verdict $? "plan of a model that is none tells of gathers"
}

# Which rows of bytes an option changes: every one that an engine takes changes some.
plan_options() {
    local rows common option changed base=(plan --params 8M --unit-size 1M --ranks 4 --csv)
    local all="0none 0cpu 0nvme 1none 1cpu 1nvme 2none 2cpu 2nvme 3none 3cpu 3nvme"
    bytes_of() { # options
        # shellcheck disable=SC2086 # words
        tool "${base[@]}" --chunk 64K --nvme-path "$scratch" $1
        cut -d, -f1-13 "$scratch/out"
    }
    while IFS='|' read -r common option rows; do
        bytes_of "$common" >"$scratch/usual"
        changed=$(bytes_of "$common $option" | diff "$scratch/usual" - |
            sed -n 's/^> \([0-3]\),\([a-z]*\),.*/\1\2/p' | tr '\n' ' ')
        [ "$changed" = "${rows//all/$all} " ]
        verdict $? "plan $common $option changes rows $changed, expected $rows"
    done <<'LIST'
|--dtype fp32|all
|--state split|all
|--grad-dtype bf16|all
--grad-dtype bf16|--accumulate 4|all
--accumulate 4|--accumulate-in local|0none 0cpu 0nvme 1none 1cpu 1nvme
|--slots 2|0cpu 0nvme 1cpu 1nvme 2cpu 2nvme 3nvme
|--gather-slots 1|3none 3cpu 3nvme
|--grad-slots 1|all
|--host-bytes 1M|0nvme 1nvme 2nvme 3nvme
|--ranks-per-node 2|all
LIST
    # A field in quotes has none of its own.
    tool plan --params 8M --nvme-path "$scratch/a\"b/c" --csv
    has "^3,nvme,.*\"[^\"]*a'b[^\"]*\"\$" "plan --csv with a quote in a folder's name"
    timeout 60 "$zero" info >/dev/full 2>"$scratch/err"
    [ $? = 1 ] && grep -q 'Standard output could not be written\.' "$scratch/err"
    verdict $? "zero info >/dev/full: $(cat "$scratch/err")"
}

fitting() {
    local bytes shape=(--params 1M --unit-size 64K --csv)
    tool plan "${shape[@]}"
    bytes=$(column 1,cpu device)
    equals 1,cpu fits 1
    tool ZERO_DEVICE_MEMORY="$bytes" plan "${shape[@]}"
    equals 1,cpu fits 1
    equals 0,none fits 0
    tool ZERO_DEVICE_MEMORY=$((bytes - 1)) plan "${shape[@]}"
    equals 1,cpu fits 0
    has "^1,cpu,.*device of a rank: $bytes B needed, $((bytes - 1)) B available" \
        "plan on a device that is a byte too small"
    tool plan --params 1G --unit-size 1M --device-memory 1M --ranks 1
    has '^ *3 nvme .*✗ device of a rank: [0-9.]* [KM]iB needed, 1.0 MiB available$' "plan"
    # What may stay in memory leaves the files, and slots have their sizes.
    local files small=(--params 4M --unit-size 1M --ranks 1 --csv)
    tool plan "${small[@]}"
    files=$(column 3,nvme nvme) bytes=$(column 1,none device)
    tool plan "${small[@]}" --host-bytes 12M
    equals 3,nvme nvme $((files - (12 << 20)))
    tool plan "${small[@]}" --grad-slots 1
    equals 1,none device $((bytes - 2 * (2 << 20)))
    # An engine on GPUs, whose units pass through host memory and whose update is its own.
    tool plan --params 1M --unit-size 64K --device-memory 1G --ranks 2
    has '^  device: a GPU of 1\.0 GiB for each rank$' "plan on GPUs"
    has "^ *1 none  *[0-9.]* MiB  *[0-9.]* [KM]iB .* GPU's  ✓\$" "plan on GPUs"
    has '^ *1 cpu .* s  ✓$' "plan on GPUs"
    tool plan --params 1M --unit-size 64K --device-memory 1G --ranks 2 --csv
    equals 1,none update_seconds ''
    tool plan --channels 1000 # no heads are asked about
    has '^ *3 nvme .*✓$' "plan of 1000 channels"
    tool plan --params 2048G --unit-size 1G --csv
    has '^3,nvme,.*,0,"memory: ' "plan of a model beyond any memory"
    tool plan --params 1
    awk '/ fits here$/ { at = index($0, "fits here") }
         /^ *[0-3] (none|cpu) / { rows++; wrong += index($0, "✓") != at }
         END { exit !(rows == 8 && !wrong) }' "$scratch/out"
    verdict $? "plan of one parameter, its columns: $(cat "$scratch/out")"
    have_two_ranks plan && {
        timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$zero" plan --csv >"$scratch/out" \
            2>&1 </dev/null
        verdict $? "plan on two ranks failed"
        [ "$(grep -c ^stage, "$scratch/out")" = 1 ]
        verdict $? "plan on two ranks: $(grep -c ^stage, "$scratch/out") of them spoke"
    }
    tool plan --params 1M --nvme-path "$scratch/nothing"
    has '^ *3 nvme .*✗ files: .*nothing: No such file' "plan with a folder that is not there"
    has '^ *3 cpu .*✓$' "plan with a folder that is not there"
    has 'files: .*nothing is not an existing folder; name' "plan with a folder that is not there"
    plan_small_folder
}

# Files are dealt out evenly, so that the smallest folder bounds them, whatever others have free.
plan_small_folder() {
    mkdir "$scratch/small"
    if ! unshare -m mount -t tmpfs tmpfs "$scratch/small" 2>/dev/null; then
        skip "plan with a folder that is too small, for want of the right to mount one" && return
    fi
    # shellcheck disable=SC2016 # for that shell
    timeout -k 5 "$limit" unshare -m sh -c \
        'mount -t tmpfs -o size=16m tmpfs "$2" && exec "$1" plan --params 20M --unit-size 1M \
            --ranks 1 --nvme-path "$3:$2"' sh "$zero" "$scratch/small" "$scratch" \
        >"$scratch/out" 2>"$scratch/err"
    verdict $? "plan with a folder that is too small failed: $(cat "$scratch/err")"
    has '^ *0 nvme .*✗ .*/small: 120\.0 MiB needed, 16\.0 MiB available$' "plan, a small folder"
    has '^ *3 cpu .*✓$' "plan with a small folder"
    # Two folders on one file system have its space once, and in memory it is memory: of files
    # that need twice of what there is, beside a quarter for the rest.
    local most
    most=$(awk '/^MemAvailable/ { print int($2 / 8) }' /proc/meminfo)
    # shellcheck disable=SC2016 # for that shell
    timeout -k 5 "$limit" unshare -m sh -c \
        'mount -t tmpfs -o size=16m tmpfs "$2" && mkdir "$2/a" "$2/b" &&
            "$1" plan --params 2M --unit-size 1M --ranks 1 --nvme-path "$2/a:$2/b" &&
            mount -t tmpfs -o size=1000g tmpfs "$2" &&
            exec "$1" plan --params "$3K" --unit-size 1M --ranks 1 --nvme-path "$2" \
            --grad-dtype bf16' sh "$zero" "$scratch/small" "$most" \
        >"$scratch/out" 2>"$scratch/err"
    verdict $? "plan with two folders on one drive failed: $(cat "$scratch/err")"
    has 'files: 16\.0 MiB free in .*small/a:.*small/b \(tmpfs, which is RAM' "plan with two folders"
    has '^ *0 nvme .*✗ .*/small/a: 24\.0 MiB needed, 16\.0 MiB available$' "plan with two folders"
    has '^ *3 nvme .*✗ memory: [0-9.]* [GT]iB needed' "plan with files in memory"
}

# Seconds of an update: of drives that nothing was measured of, then with the figures
# of a probe replaced by rates at which files take longer than any memory.
predicting() {
    local shape=(--params 4M --unit-size 1M --nvme-path "$scratch") file seconds
    local cache=XDG_CACHE_HOME=$scratch/cache
    tool "$cache" plan "${shape[@]}" --csv
    equals 3,nvme update_seconds ''
    [ ! -e "$scratch/cache" ]
    verdict $? "plan made a cache"
    tool "$cache" plan "${shape[@]}"
    has "no probe of $scratch is known; ZERO_PROBE=1 $zero bench step --quick --nvme-path \
$scratch measures it" "plan without a probe"
    has '^ *3 nvme .* \?  ✓$' "plan without a probe"
    mkdir "$scratch/c d"
    tool "$cache" plan --params 1M --nvme-path "$scratch/c d"
    has "step --quick --nvme-path '$scratch/c d' measures it" "plan without a probe of 'c d'"
    tool "$cache" bench step --quick --nvme-path "$scratch"
    has '^# nothing is predicted without a probe: ZERO_PROBE=1 ' "bench step without a probe"
    tool "$cache" ZERO_PROBE=1 bench step --quick --nvme-path "$scratch"
    if grep -q ' refuses O_DIRECT, so its drive cannot be measured' "$scratch/err"; then
        echo "skipped: predictions from a probe: $(cat "$scratch/err")"
        return
    fi
    has '^step_1M_predicted [0-9.e-]+ s$' "bench step with a probe"
    has '^step_1M_predicted_share [0-9.]+ \(aim 0\.75 to 1\.25\)$' "bench step with a probe"
    aims "step with a probe"
    for file in "$scratch"/cache/libzero/io-*; do
        [[ $file == *.lock ]] ||
            sed -i -E "s/ read [0-9]+ write .*/ read 2000000 write 1000000 both 1500000/" "$file"
    done
    tool "$cache" plan "${shape[@]}" --csv
    seconds=$(awk -v r="$(column 3,nvme read)" -v w="$(column 3,nvme written)" \
        'BEGIN { printf "%.6g", 2 * (2 * r / 1.5e6 + (w - r) / 1e6) }')
    equals 3,nvme update_seconds "$seconds"
    tool "$cache" plan "${shape[@]}"
    has "^ *3 nvme .* $(printf %.3g "$seconds") s  ✓\$" "plan with a probe"
    has '^  files: 1\.4 MiB/s read and written at once, by an earlier' "plan with a probe"
    tool "$cache" ZERO_PROBE=0 plan "${shape[@]}"
    has '^ *3 nvme .* \?  ✓$' "plan that is not to use its probe"
    has '^  files: ZERO_PROBE is 0, so no probe is used$' "plan that is not to use its probe"
    have_two_ranks "bench step with a probe" || return
    local together apart
    together=$(predicted "$cache")
    apart=$(predicted "$cache" OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0)
    awk -v a="$together" -v b="$apart" 'BEGIN { exit !(b > 0 && a / b > 1.99 && a / b < 2.01) }'
    verdict $? "bench step on two nodes: '$apart' s are predicted, '$together' on one"
}

# By two ranks with so much in their environment.
predicted() { # NAME=VALUE...
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 env "$@" "$zero" bench step --quick \
        --nvme-path "$scratch" 2>"$scratch/err" </dev/null |
        sed -n 's/^step_1M_predicted \(.*\) s$/\1/p'
}

# ----------------------------------------------------------------------- bench

# Each of the names has its three lines, and the share is the quotient.
three_lines() { # quotient: "ours/limit" or "limit/ours", name...
    local quotient=$1 name
    shift
    for name in "$@"; do
        awk -v name="$name" -v quotient="$quotient" '
            # One sample, or the median of several with their range, which holds it.
            function is_value(    range) {
                if (NF == 3) return $2 > 0
                split(substr($4, 2), range, "-")
                if ($4 ~ /[0-9]e-[0-9]/) return $0 ~ /, [0-9]+ rounds\)$/
                return NF == 6 && $2 >= range[1] + 0 && $2 <= range[2] + 0 && $6 == "rounds)"
            }
            $1 == name "_limit" && is_value() { limit = $2; unit = $3; next }
            $1 == name "_ours" && is_value() && $3 == unit { ours = $2; next }
            $1 == name "_share" && (NF == 2 || $3 == "(aim") { share = $2; found++; next }
            $1 ~ /_cpu$|_fio(_cpu)?(_ratio)?$|_predicted(_share)?$|_whole$/ { next }
            index($1, name "_") == 1 { extra++ }
            END {
                if (!limit || !ours) exit 1
                ratio = quotient == "ours/limit" ? ours / limit : limit / ours
                error = share / ratio - 1
                exit !(found == 1 && !extra && error < 0.01 && error > -0.01)
            }' "$scratch/out"
        verdict $? "bench: not the three lines of $name:
$(grep "^$name" "$scratch/out")"
    done
}

run_bench() { # name and options, quotient, names of lines
    local status name=$1 quotient=$2 words
    shift 2
    read -ra words <<<"$name"
    tool bench "${words[@]}" --quick
    status=$?
    # That a site refuses a faster way is said, and no failure.
    [ "$status" = 0 ] && ! grep -qv '^libzero: warning: ' "$scratch/err"
    verdict $? "bench $name --quick: status $status, $(cat "$scratch/err")"
    three_lines "$quotient" "$@"
}

# What was held against an aim is counted at the end, and what misses it said again.
aims() { # name of the bench
    awk '$2 ~ /^[0-9.]+$/ && $3 == "(aim" {
            held++
            if (/at most/) miss = $2 > $4 + 0
            else miss = $2 < $4 + 0 || (/ to / && $2 > $6 + 0)
            if (miss) missed[$0] = 1
        }
        /^# [0-9]+ of [0-9]+ reach their aims/ { reached = $2; of = $4 }
        /^#   .* \(aim / { again++; wrong += !(substr($0, 5) in missed) }
        END { for (i in missed) n++
              exit !(held && of == held && reached == held - n && again == n && !wrong) }' \
        "$scratch/out"
    verdict $? "bench $1: the count of aims: $(grep aim "$scratch/out")"
}

# On FUSE the library does not use io_uring, and the bench goes on without it.
refused_uring() {
    cat >"$scratch/fuse.c" <<'FUSE'
#include <sys/vfs.h>
int fstatfs(int fd, struct statfs *fs)
{
    (void)fd;
    *fs = (struct statfs){.f_type = 0x65735546};
    return 0;
}
FUSE
    if ! ${CC:-cc} -shared -fPIC -o "$scratch/fuse.so" "$scratch/fuse.c" 2>/dev/null; then
        skip "bench io on FUSE: nothing can be compiled to stand in for the kernel" && return
    fi
    tool LD_PRELOAD="$scratch/fuse.so" bench io --quick
    verdict $? "bench io on FUSE failed: $(cat "$scratch/err")"
    has '^io_mixed_posix_share [0-9.]+ \(aim 0\.9\)$' "bench io on FUSE"
    has '^# the lines of io_uring are left out\. ' "bench io on FUSE"
    ! grep -q '^io_.*_uring' "$scratch/out"
    verdict $? "bench io on FUSE uses io_uring: $(cat "$scratch/out")"
}

bench() {
    local largest rings=(io_read_posix io_write_posix io_mixed_posix)
    tool info
    ! grep -q '^  liburing  *liburing' "$scratch/out" || ! grep -q '^  io_uring  *works' \
        "$scratch/out" || rings+=(io_read_uring io_write_uring io_mixed_uring)
    run_bench adam ours/limit adam_64K_1t adam_bf16grad_64K_1t adam_fp32_64K_1t adam_split_64K_1t \
        adam_split_bf16grad_64K_1t
    aims adam
    run_bench io ours/limit "${rings[@]}"
    if command -v fio >/dev/null; then
        run_bench "io --fio" ours/limit "${rings[@]}"
        has '^io_mixed_posix_fio_ratio [0-9.]' "bench io --fio"
        has '^io_mixed_posix_fio_cpu_ratio [0-9.]' "bench io --fio"
        aims "io --fio"
    else
        echo "skipped: bench io beside the real fio, for want of it"
    fi
    printf '#!/bin/bash\necho "3;fio;read;0;0;1024;1000;0;1024;0"\n' >"$scratch/fio"
    chmod +x "$scratch/fio" # sees no processor time
    tool PATH="$scratch:$PATH" bench io --quick --fio
    verdict $? "bench io by a fio without CPU seconds failed: $(cat "$scratch/err")"
    has '^io_read_posix_fio 0\.001024 GB/s$' "bench io by a fio without CPU seconds"
    ! grep -E '[ -](inf|nan)' "$scratch/out"
    verdict $? "bench io by a fio without CPU seconds prints these"
    refused_uring
    run_bench comm ours/limit comm_gather_1M comm_reduce_1M
    run_bench memory limit/ours memory_1M
    tool bench memory --quick --params 100K
    has '^memory_100K_ours [0-9.e-]+ s$' "bench memory --params 100K"
    run_bench step limit/ours step_1M
    if "$zero" bench --help | grep -q '^  --verify-spill'; then
        run_bench "step --verify-spill" limit/ours step_1M step_checked_1M
    else
        failed "Install libxxhash-dev" bench step --quick --verify-spill
    fi
    run_bench "step --state split --host-share 30" limit/ours step_1M step_split_host30_1M
    tool bench step --quick --params 100K
    has '^step_100K_ours [0-9.e-]+ s$' "bench step --params 100K"
    run_bench "step --host-share 100" limit/ours step_1M step_host100_1M
    has 'whose bytes it moves 0\.00' "bench step --host-share 100"
    run_bench "step --state split --alone" limit/ours step_split_1M
    ! grep -q '^step_1M' "$scratch/out"
    verdict $? "bench step --alone: $(cat "$scratch/out")"
    run_bench fixed limit/ours fixed_stage0_4u fixed_stage0_32u fixed_stage3_4u fixed_stage3_32u
    failed "No such file" bench io --quick --nvme-path "$scratch/nothing"
    failed "No such file" bench step --quick --nvme-path "$scratch/nothing"
    largest=$(ulimit -S -f)
    for blocks in 1024 1001; do # at the end of a write, and within a page
        ulimit -S -f $blocks
        failed "File too large\. Raise the limit" bench io --quick
    done
    ulimit -S -f "$largest"
    have_two_ranks "bench comm" || return
    local bench
    local -A said=([comm]="2 ranks" [memory]="2 ranks, . threads? each" [fixed]="stage 3, 2 ranks")
    for bench in comm memory fixed; do
        timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$zero" bench "$bench" --quick \
            >"$scratch/out" 2>"$scratch/err" </dev/null
        verdict $? "bench $bench on two ranks failed: $(cat "$scratch/err")"
        has "^# ${said[$bench]}" "bench $bench on two ranks"
        case $bench in
        comm) three_lines ours/limit comm_gather_1M comm_reduce_1M ;;
        memory) three_lines limit/ours memory_1M ;;
        esac
    done
    # Large enough that what is read ahead of a step, and not counted, is a small part.
    timeout -k 5 "$limit" "${launcher[@]}" -n 2 "$zero" bench step --quick --params 32M \
        --host-share 50 >"$scratch/out" 2>"$scratch/err" </dev/null
    verdict $? "bench step on two ranks failed: $(cat "$scratch/err")"
    has 'whose bytes it moves 0\.[3-9]' "bench step --host-share 50 on two ranks"
    awk '$1 == "step_32M_ours" { ours = $2 } $1 == "step_32M_whole" { whole = $2 }
        END { exit !(ours > 0 && whole > ours && whole < 1.5 * ours) }' "$scratch/out"
    verdict $? "bench step on two ranks, with what was read ahead: $(cat "$scratch/out")"
}

# ------------------------------------------------------------------------ help

help() {
    local topic lines command name names
    for topic in stages offload memory slurm mpi law environment errors; do
        tool help "$topic"
        verdict $? "help $topic failed"
        lines=$(wc -l <"$scratch/out")
        [ "$lines" -ge 15 ] && [ "$lines" -le 50 ]
        verdict $? "help $topic: $lines lines are no page"
        awk '{ gsub(/[\200-\277]/, "") } length($0) > 80 { exit 1 }' "$scratch/out"
        verdict $? "help $topic: a line of more than 80 columns"
        tool help
        has "^  $topic " "help"
    done
    for command in info plan "bench adam" "bench"; do
        # shellcheck disable=SC2086 # two words are two arguments
        tool $command --help
        verdict $? "$command --help failed"
        has "^usage: zero ${command%% *}" "$command --help"
        has "^  --help" "$command --help"
    done
    names=$(grep -rhoE '(getenv\(|_VARIABLE +)"(ZERO|GPT2)_[A-Z]+(_[A-Z]+)*"' \
        src offload kernels examples |
        grep -oE '[A-Z0-9_]+"' | tr -d '"' | sort -u)
    [ -n "$names" ]
    verdict $? "no variable is found in the sources"
    for name in $names; do
        tool help environment
        has "^  $name " "help environment"
        tool "$name=" info
        has "^  $name( |\$)" "info with $name"
    done
    tool bench --help
    has '^  --quick' "bench --help"
    tool bench -h
    has '^  --quick' "bench -h"
    tool help -h
    has '^  environment ' "help -h"
    tool --help
    has '^  plan ' "--help"
    has '^  bench    adam, memory, io, comm, step, fixed ' "--help"
}

# ------------------------------------------------------------------- self-test

# kind | what stands in for the tool | whether that is wrong
broken() {
    cat <<'LIST'
refused|echo "zero: what, and why." >&2; exit 2|0
refused|echo "zero: what, and why." >&2; exit 1|1
refused|echo "zero: what, and why." >&2|1
refused|echo "what, and why." >&2; exit 2|1
refused|echo "zero: what, and how." >&2; exit 2|1
refused|echo "zero: what, and why." >&2; echo more >&2; exit 2|1
refused|echo "zero: what, and why." >&2; echo more; exit 2|1
refused|exit 2|1
refused|exec sleep 99|1
failed|echo "zero: what, and why." >&2; exit 1|0
failed|echo "zero: what, and why." >&2; exit 2|1
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.500\n"|0
bench|printf "x_limit 4 s\nx_ours 2 s\nx_cpu 1 s\nx_share 0.500\n"|0
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.600\n"|1
bench|printf "x_limit 4 s\nx_ours 2 m\nx_share 0.500\n"|1
bench|printf "x_limit 4 s\nx_ours 2 s\n"|1
bench|printf "x_limit nan s\nx_ours 2 s\nx_share 0.500\n"|1
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.500\nx_share 0.500\n"|1
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.500\nx_more 1\n"|1
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.500\n"; exit 1|1
bench|printf "x_limit 4 s\nx_ours 2 s\nx_share 0.500\n"; echo "zero: no." >&2|1
plan|printf "stage,offload,device\n3,cpu,7\n"|0
plan|printf "stage,offload,device\n3,cpu,8\n"|1
plan|printf "stage,offload,nvme\n3,cpu,7\n"|1
plan|printf "stage,offload,device\n2,cpu,7\n"|1
LIST
}

self_test() {
    local kind script wrong tested=0 missed=0 output
    zero=$scratch/zero
    while IFS='|' read -r kind script wrong; do
        printf '#!/bin/bash\n%s\n' "$script" >"$zero"
        chmod +x "$zero"
        limit=10 failures=0
        [[ $script != *99* ]] || limit=1
        case $kind in
        refused) refused "and why\." ;;
        failed) failed "and why\." ;;
        bench) run_bench x ours/limit x ;;
        plan)
            tool plan
            equals 3,cpu device 7
            ;;
        esac >"$scratch/said"
        output=$(cat "$scratch/said")
        tested=$((tested + 1))
        [ "$wrong" = $((failures > 0)) ] && continue
        missed=$((missed + 1))
        printf 'expected %s of: %s %s\n%s\n' "$wrong" "$kind" "$script" "$output"
    done < <(broken)
    checks=$tested failures=$missed
}

if [ "${1-}" = --self-test ]; then
    self_test
else
    zero=$(realpath "${1:?"give the tool: tests/tool_test.sh ZERO | --self-test"}")
    wrong_use
    info
    by_hand
    fitting
    plan_options
    predicting
    bench
    help
fi
closing
