# SPDX-License-Identifier: Apache-2.0
# What the job files share, who source it from the tree's root: site.env, and how ranks
# are started on what Slurm has given.
# shellcheck shell=bash
# shellcheck source=jobs/site.env
. jobs/site.env

if [ -z "${SLURM_JOB_ID-}" ]; then
    echo "$0 is a job for Slurm, and SLURM_JOB_ID is not set. Submit it: sbatch $0" >&2
    exit 2
fi

# One rank for each GPU, or ZERO_RANKS_PER_GPU. All ranks of a node see all of the job's GPUs
# there, as those that exchange data must: none is bound to one, whatever sbatch was told (srun
# --gpu-bind=none would not do: it hides which GPUs are the job's). The CPUs are shared among the
# ranks: srun is told, as some take what sbatch was told and some do not (22.05 to 24.05).
start() { # program, options
    local ranks=${SLURM_GPUS_ON_NODE:-0} each=${ZERO_RANKS_PER_GPU:-1} module
    local program=${ZERO_BUILD:-build}/$1
    if [ ! -x "$program" ]; then
        echo "$PWD/$program is not there. Build it with make, where the modules of" \
            "jobs/site.env are loaded." >&2
        exit 2
    fi
    if [[ ! $each =~ ^[1-9][0-9]{0,3}$ ]]; then
        echo "ZERO_RANKS_PER_GPU is '$each'. Set it to 1 or more." >&2
        exit 2
    fi
    ranks=$((ranks * each))
    [ "$ranks" -gt 0 ] || ranks=${SLURM_TASKS_PER_NODE%%[!0-9]*}
    if [ "$ranks" -gt "$SLURM_CPUS_ON_NODE" ]; then
        echo "$ranks ranks need a CPU each, and the job has $SLURM_CPUS_ON_NODE of a node. Give" \
            "sbatch a larger --cpus-per-task, or start fewer ranks." >&2
        exit 2
    fi
    for module in $ZERO_MODULES; do
        module load "$module" || exit 2
    done
    unset SLURM_CPUS_PER_TASK SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_GPU_BIND SLURM_TRES_BIND
    export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / ranks))
    export SLURM_EXPORT_ENV=ALL # the modules', also after sbatch --export=NONE
    srun --mpi="$ZERO_MPI" --cpus-per-task="$SRUN_CPUS_PER_TASK" --ntasks-per-node="$ranks" \
        --ntasks=$((ranks * SLURM_JOB_NUM_NODES)) "$program" \
        ${ZERO_NVME_PATH:+--nvme-path "$ZERO_NVME_PATH"} "${@:2}"
}
