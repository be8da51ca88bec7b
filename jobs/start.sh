# SPDX-License-Identifier: Apache-2.0
# What the job files share, who source it from the tree's root: site.env, and how ranks
# are started on what Slurm has given.
# shellcheck shell=bash

refuse() { # sentences
    echo "$*" >&2
    exit 2
}

# Bash would say what is wrong there, and go on without it.
{ cat jobs/site.env && printf '\n:\n' || echo exit 1; } | bash -e >/dev/null ||
    refuse "jobs/site.env is not right: see the line above. Put values with spaces in quotes."
# shellcheck source=jobs/site.env
. jobs/site.env

[ -n "${SLURM_JOB_ID-}" ] ||
    refuse "$0 is a job for Slurm, and SLURM_JOB_ID is not set. Submit it: sbatch $0"
[ -n "${SLURM_CPUS_ON_NODE-}" ] ||
    refuse "$0 is a job for Slurm, and SLURM_CPUS_ON_NODE is not set, as in the shell of salloc." \
        "Submit it: sbatch $0"

before=() # words before the program, where a job file needs some
gres=()   # of srun: else a step has the GPUs that were asked for, of a whole node perhaps some

# CPUs of the job on the node that has the fewest of them: "16(x2),8".
fewest_cpus() {
    local part least=$SLURM_CPUS_ON_NODE
    for part in ${SLURM_JOB_CPUS_PER_NODE//,/ }; do
        part=${part%%(*}
        [ "$part" -ge "$least" ] || least=$part
    done
    echo "$least"
}

# Of 4, h100:4 or a100:2,v100:2: how many GPUs an option of sbatch asked for.
gpus_asked() {
    local part total=0
    for part in ${1//,/ }; do
        total=$((total + ${part##*:}))
    done
    echo "$total"
}

# One rank for each GPU, or ZERO_RANKS_PER_GPU; without GPUs as many as sbatch was told. Sets
# "ranks", of a node.
count_ranks() {
    local gpus=${SLURM_GPUS_ON_NODE:-0} each=${ZERO_RANKS_PER_GPU:-1} total
    [[ $each =~ ^[1-9][0-9]{0,3}$ ]] ||
        refuse "ZERO_RANKS_PER_GPU is '$each'. Set it to 1 or more."
    ranks=$((gpus * each))
    total=$(gpus_asked "${SLURM_GPUS_PER_NODE-}")
    [ "$total" = 0 ] || [ "$total" = "$gpus" ] ||
        refuse "sbatch was asked for $total GPUs of a node by --gpus-per-node, and the job has" \
            "$gpus, because --gres of jobs/site.env or of the job file takes precedence. Give" \
            "sbatch --gres=gpu:$total instead."
    if [ "$gpus" -gt 0 ]; then
        gres=(--gres=gpu:"$gpus")
        total=$(gpus_asked "${SLURM_GPUS-}")
        [ "$total" = 0 ] || [ "$total" = $((gpus * SLURM_JOB_NUM_NODES)) ] ||
            refuse "The job has $total GPUs on $SLURM_JOB_NUM_NODES nodes, $gpus of them on" \
                "the first one, and nodes must have equally many. Give sbatch --gres=gpu:N" \
                "instead of --gpus."
        return
    fi
    [ "$each" = 1 ] ||
        refuse "ZERO_RANKS_PER_GPU is $each, and the job has no GPUs. Ask for some (--gres)," \
            "or leave it out and give --ntasks-per-node."
    ranks=${SLURM_TASKS_PER_NODE%%[!0-9]*}
    [ "${SLURM_NTASKS:-$((ranks * SLURM_JOB_NUM_NODES))}" = $((ranks * SLURM_JOB_NUM_NODES)) ] ||
        refuse "$SLURM_NTASKS ranks were asked for, and $SLURM_JOB_NUM_NODES nodes with $ranks" \
            "each have $((ranks * SLURM_JOB_NUM_NODES)). Give sbatch --ntasks-per-node instead" \
            "of --ntasks."
}

# Sets "program".
find_program() { # gpt2 or memscale
    program=${ZERO_BUILD:-build}/$1
    [ -x "$program" ] ||
        refuse "$PWD/$program is not there. Build it with make, where the modules of" \
            "jobs/site.env are loaded."
}

load_modules() {
    local module
    [ -z "$ZERO_MODULES" ] || command -v module >/dev/null ||
        refuse "ZERO_MODULES is '$ZERO_MODULES', and this node's shell has no command module." \
            "Empty it in jobs/site.env, or submit without --export=NONE."
    for module in $ZERO_MODULES; do
        module load "$module" || exit 2
    done
}

# All ranks of a node see all of the job's GPUs there, as those that exchange data must: none is
# bound to one, whatever sbatch was told (srun --gpu-bind=none would not do: it hides which GPUs are
# the job's). The CPUs are shared among the ranks, whole cores where there are enough: srun is told,
# as some take what sbatch was told and some do not (22.05 to 24.05). It waits ten minutes at most,
# for nodes that are still starting: untold it would wait without end for what a job cannot have.
# Ranks end together: one that has ended a minute before the others could not tell them why.
start() { # program, options
    local program ranks cpus each threads
    find_program "$1"
    count_ranks
    cpus=$(fewest_cpus)
    [ "$ranks" -le "$cpus" ] ||
        refuse "$ranks ranks need a CPU each, and the job has $cpus on a node. Give" \
            "sbatch a larger --cpus-per-task, or start fewer ranks."
    load_modules
    echo "$program ${*:2}"
    [ "${#gres[@]}" = 0 ] || [[ " ${*:2} " == *" --device"[\ =]* ]] ||
        echo "The job has GPUs, and its options no --device cuda: it computes on the CPU." >&2
    each=$((cpus / ranks))
    threads=$(LC_ALL=C lscpu 2>/dev/null | sed -n '/Thread(s) per core:/{s/.*: *//p;q}')
    [ "$each" -lt "${threads:-1}" ] || each=$((each - each % ${threads:-1}))
    unset SLURM_CPUS_PER_TASK SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_GPU_BIND SLURM_TRES_BIND
    unset SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET # srun would add them to its --gres
    export SRUN_CPUS_PER_TASK=$each
    export SLURM_EXPORT_ENV=ALL # the modules', also after sbatch --export=NONE
    trap : TERM                 # the ranks have it too: with this shell srun would go
    srun --immediate=600 --wait=60 --mpi="$ZERO_MPI" --cpus-per-task="$each" \
        --ntasks-per-node="$ranks" --ntasks=$((ranks * SLURM_JOB_NUM_NODES)) "${gres[@]}" \
        "${before[@]}" "$program" ${ZERO_NVME_PATH:+--nvme-path "$ZERO_NVME_PATH"} "${@:2}"
}
