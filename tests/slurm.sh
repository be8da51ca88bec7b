#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The job files, on a real Slurm: tests/slurm.sh BUILD
# It brings one up (tests/support/slurm.sh), submits what a user submits from a tree whose
# site.env is its own, and looks at what the jobs have left: the digest is that of a direct
# run, ranks have the CPUs and GPUs of the job, the site's settings hold, a job that is
# cancelled ends with its summary. Part of make check-all: make check-all ONLY=slurm.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:?"give the build folder: tests/slurm.sh BUILD"}") || exit 1
if [ ! -x "$build/tests/tcp_test" ]; then
    echo "There is no $build/tests/tcp_test. Run make check-all ONLY=slurm.sh, which builds it." >&2
    exit 1
fi
. tests/support/verdicts.sh
. tests/support/slurm.sh
trap 'slurm_down; rm -rf "$scratch"' EXIT
for name in $(compgen -e | grep -E '^(SLURM_|SBATCH_|SRUN_|PMI|OMPI_COMM_)'); do
    unset "$name"
done
unset ZERO_DEVICE_MEMORY ZERO_PROBE
export OMPI_MCA_mpi_yield_when_idle=1

tree=$scratch/tree
mkdir -p "$tree" "$scratch/slurm" "$scratch/nvme" "$scratch/show" "$scratch/bin"
cp -r jobs LICENSE "$tree"
ln -s "$build" "$tree/build"

site() { # sed's commands: another site.env
    sed -i -e "$1" "$tree/jobs/site.env"
}

# As a user does, in a shell of its own: the job's number is in "job", or empty.
submit() { # words: of sbatch, job file, options
    job=$(cd "$tree" && . jobs/site.env && sbatch --parsable "$@" 2>"$scratch/err")
    log=$scratch/err
}

# Waits for the job's end: its exit code is in "status", what it has said in the file "log".
ended() {
    status=none
    [ -n "$job" ] || return
    for _ in $(seq 600); do
        [ -n "$(squeue -h -j "$job" 2>>"$scratch/err")" ] || break
        sleep 0.2
    done
    status=$(of_job ExitCode)
    log=$(find "$tree" -name "*-$job.log")
}

run() { # as submit
    submit "$@"
    ended
}

of_job() { # field
    scontrol show job "$job" | sed -nE "s/.*\b$1=([^ ]*).*/\1/p"
}

tiny=(--model d4 --batch 1 --steps 2 --sample 0 --data LICENSE)

digests() {
    local direct
    direct=$("$build/gpt2" "${tiny[@]}" --accumulate 2 --quiet 2>/dev/null)
    run jobs/gpt2.sbatch "${tiny[@]}" --stage 3 --offload nvme
    [ "$status" = 0:0 ]
    verdict $? "gpt2.sbatch failed: $(cat "$scratch/err" "$log")"
    [[ $direct == digest* ]] && [ "$(tail -n 1 "$log")" = "$direct" ]
    verdict $? "gpt2.sbatch ended with $(tail -n 1 "$log"), a direct run with $direct"
    grep -q ': 2 ranks, ' "$log" && grep -q "^files: $scratch/nvme " "$log"
    verdict $? "gpt2.sbatch has other ranks or files: $(head -n 3 "$log")"
    run --gres=none --ntasks-per-node=3 --cpus-per-task=2 jobs/gpt2.sbatch "${tiny[@]}" --stage 2
    grep -q ': 3 ranks, ' "$log" && [ "$status" = 0:0 ]
    verdict $? "gpt2.sbatch without GPUs: $(cat "$scratch/err" "$log")"
    run jobs/gpt2.sbatch --stage 4
    [ "$status" = 2:0 ] && [ "$(grep -c '^rank [01]: --stage cannot be' "$log")" = 2 ]
    verdict $? "gpt2.sbatch of a wrong option: status $status, $(cat "$log")"
}

memory() {
    local table
    run jobs/memscale.sbatch --model d4 --stage 0 3 --offload none nvme --steps 1
    [ "$status" = 0:0 ]
    verdict $? "memscale.sbatch failed: $(cat "$scratch/err" "$log")"
    table=$(awk '/^ +[03] (none|nvme) / { print $1 "," $2 "," $3 }' "$log")
    [ "$(cut -d, -f 1-3 "$tree/memscale-$job.csv" | tail -n +2)" = "$table" ] &&
        [ "$(wc -l <<<"$table")" = 4 ] && grep -q '^</svg>$' "$tree/memscale-$job.svg"
    verdict $? "memscale.sbatch left other rows: $(cat "$log" "$tree/memscale-$job.csv")"
}

# A program that tells what it was given stands in for gpt2.
given() {
    local rank
    cat >"$scratch/show/gpt2" <<'SHOW'
#!/bin/bash
echo "$SLURM_PROCID/$SLURM_NTASKS cpus $SLURM_CPUS_PER_TASK gpus $CUDA_VISIBLE_DEVICES: $*"
SHOW
    chmod +x "$scratch/show/gpt2"
    ZERO_BUILD=$scratch/show run jobs/gpt2.sbatch --log "a b"
    for rank in 0 1; do
        grep -qxF "$rank/2 cpus 8 gpus 0,1: --nvme-path $scratch/nvme --log a b" "$log"
        verdict $? "rank $rank has others: $(cat "$log")"
    done
    grep -qxF "$scratch/show/gpt2 --log a b" "$log" && grep -q ' no --device cuda: it comp' "$log"
    verdict $? "the log does not tell what ran, and where: $(cat "$log")"
    ZERO_BUILD=$scratch/show run jobs/gpt2.sbatch --device cuda
    ! grep -q ' no --device cuda' "$log"
    verdict $? "a job on GPUs is told that it is none: $(cat "$log")"
    ZERO_BUILD=$scratch/show run --gres=gpu:1 --cpus-per-task=5 jobs/gpt2.sbatch
    grep -qxF "0/1 cpus 10 gpus 0: --nvme-path $scratch/nvme" "$log"
    verdict $? "the rank of one GPU has others: $(cat "$log")"
    ZERO_BUILD=$scratch/show run --gres=none --gpus-per-task=1 jobs/gpt2.sbatch
    grep -q "^1/2 cpus 8 gpus 0,1: " "$log"
    verdict $? "a rank is bound to a GPU: $(cat "$log")"
    # A whole node has more GPUs than were asked for: a rank for each, and all are theirs.
    ZERO_BUILD=$scratch/show run --exclusive --gres=gpu:1 jobs/gpt2.sbatch
    grep -q "^1/2 cpus 8 gpus 0,1: " "$log"
    verdict $? "ranks of a whole node have others: $(cat "$log")"
    ZERO_BUILD=$scratch/none run jobs/gpt2.sbatch
    [ "$status" = 2:0 ] && grep -q "none/gpt2 is not there\. Build it" "$log"
    verdict $? "a program that is not built: status $status, $(cat "$log")"
}

# What a site sets, holds: modules in order, partition, no GPUs.
settings() {
    # shellcheck disable=SC2016 # the program's words
    printf '#!/bin/bash\necho "$@" >>"%s"\n' "$scratch/modules" >"$scratch/bin/module"
    chmod +x "$scratch/bin/module"
    site 's/^ZERO_MODULES=.*/ZERO_MODULES="gcc openmpi"/; s/=gpu:2/=none/'
    PATH=$scratch/bin:$PATH ZERO_BUILD=$scratch/show run jobs/gpt2.sbatch
    [ "$(cat "$scratch/modules")" = $'load gcc\nload openmpi' ]
    verdict $? "modules that were loaded: $(cat "$scratch/modules" "$log")"
    grep -q '^0/2 cpus 8 gpus :' "$log" && [[ $(of_job TresPerNode) != *gpu* ]]
    verdict $? "without GPUs: $(cat "$log")"
    site 's/^ZERO_MODULES=.*/ZERO_MODULES=""/; s/^#\(.*PARTITION=\).*/\1elsewhere/'
    submit jobs/gpt2.sbatch
    [ -z "$job" ] && grep -q 'invalid partition' "$scratch/err"
    verdict $? "the partition was not asked for: $(cat "$scratch/err")"
    site 's/elsewhere/test/; s/^\(export SBATCH_GRES=\).*/\1gpu:2/'
}

# Without Slurm, and from another folder, each job file says what it is for.
misused() {
    local name
    for name in gpt2 memscale mps; do
        (cd "$tree" && bash "jobs/$name.sbatch") >"$scratch/out" 2>&1
        [ $? = 2 ] && [ "$(cat "$scratch/out")" = "jobs/$name.sbatch is a job for Slurm, and \
SLURM_JOB_ID is not set. Submit it: sbatch jobs/$name.sbatch" ]
        verdict $? "$name.sbatch by itself: $(cat "$scratch/out")"
        (cd "$scratch" && SLURM_JOB_ID=1 bash "$tree/jobs/$name.sbatch") >"$scratch/out" 2>&1
        [ $? = 2 ] && [ "$(tail -n 1 "$scratch/out")" = "Submit it from the tree's root." ]
        verdict $? "$name.sbatch from another folder: $(cat "$scratch/out")"
    done
    told mps "" "Name a program: sbatch jobs/mps\.sbatch memscale "
    told mps SLURM_JOB_NUM_NODES=2 "The job has 2 nodes, and .* Submit it without --nodes\." gpt2
    told mps SLURM_GPUS_ON_NODE= "ZERO_RANKS_PER_GPU is 2, and the job has no GPUs\." gpt2
    told mps "" ".*/build/nothing is not there\. Build it" nothing
    told gpt2 SLURM_CPUS_ON_NODE= "jobs/gpt2\.sbatch is a job for Slurm, .* of salloc\. Submit"
    told gpt2 SLURM_GPUS=h100:3 "The job has 3 GPUs on 1 nodes, 2 of them on the first one, "
    told gpt2 SLURM_GPUS_PER_NODE=h100:4 \
        "sbatch was asked for 4 GPUs of a node by --gpus-per-node, and the job has 2, "
    told mps SLURM_GPUS_PER_NODE=h100:1,a100:1 "nvidia-cuda-mps-control does not start\. " gpt2
    told mps SLURM_GPUS=h100:1,a100:1 "nvidia-cuda-mps-control does not start\. " gpt2
    told gpt2 ZERO_RANKS_PER_GPU=0 "ZERO_RANKS_PER_GPU is '0'\. Set it to 1 or more\."
    told gpt2 ZERO_RANKS_PER_GPU=two "ZERO_RANKS_PER_GPU is 'two'\. Set it to 1 or more\."
    told memscale ZERO_RANKS_PER_GPU=3 "6 ranks need a CPU each, and the job has 4 on a node\."
}

# What a job with two GPUs and four CPUs of a node says before it starts a rank.
told() { # job file, NAME=VALUE or nothing, sentence, options
    local status
    (cd "$tree" && env SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=1 SLURM_GPUS_ON_NODE=2 \
        SLURM_CPUS_ON_NODE=4 SLURM_TASKS_PER_NODE=2 ${2:+"$2"} bash "jobs/$1.sbatch" "${@:4}" \
        >"$scratch/out" 2>&1)
    status=$?
    [ $status = 2 ] && grep -q "^$3" "$scratch/out" && [ "$(wc -l <"$scratch/out")" = 1 ]
    verdict $? "$1.sbatch with '$2': status $status, $(cat "$scratch/out")"
}

# What is wrong in site.env or was asked for in vain ends the job: nothing goes on without it.
refused() {
    unset -f module # of a machine that has one
    site 's/^ZERO_MODULES=.*/ZERO_MODULES=gcc openmpi/'
    ended_in_vain 's/^ZERO_MODULES=.*/ZERO_MODULES=""/' "jobs/site\.env is not right: " 2
    site 's/^ZERO_MPI=.*/ZERO_MPI= pmix/'
    ended_in_vain 's/^ZERO_MPI=.*/ZERO_MPI=pmix/' "jobs/site\.env is not right: " 2
    site 's/^ZERO_MODULES=.*/ZERO_MODULES=gcc/'
    ended_in_vain 's/^ZERO_MODULES=.*/ZERO_MODULES=""/' \
        "ZERO_MODULES is 'gcc', and this node's shell has no command module\." 1
    ended_in_vain "" "sbatch was asked for 1 GPUs of a node by --gpus-per-node, .* has 2, " 1 \
        --gpus-per-node=1
    ended_in_vain "" "1 ranks were asked for, and 1 nodes with 2 each have 2\." 1 --gres=none \
        --ntasks=1
}

ended_in_vain() { # sed's commands that mend site.env, sentence, lines, words of sbatch
    ZERO_BUILD=$scratch/show run "${@:4}" jobs/gpt2.sbatch
    [ "$status" = 2:0 ] && grep -q "^$2" "$log" && [ "$(wc -l <"$log")" = "$3" ]
    verdict $? "expected '$2': status $status, $(cat "$scratch/err" "$log")"
    [ -z "$1" ] || site "$1"
}

# Ranks that srun starts without PMIx find each other, and are told how to start with MPI; what
# is not a step of several is alone.
without_pmix() {
    local rank
    srun -n 3 --mpi=none "$build/tests/tcp_test" launched >"$scratch/ranks" 2>&1
    verdict $? "ranks without PMIx failed: $(cat "$scratch/ranks")"
    for rank in 0 1 2; do
        grep -qx "rank $rank of 3, $rank of 3 on its node: 127.0.0.1, 3" "$scratch/ranks"
        verdict $? "rank $rank without PMIx: $(cat "$scratch/ranks")"
    done
    srun -Q -n 1 --mpi=none "$build/tests/tcp_test" launched >"$scratch/ranks" 2>&1
    salloc -Q -n 3 "$build/tests/tcp_test" launched >>"$scratch/ranks" 2>&1
    (cd "$tree" && run -n 3 -o alone-%j.log --wrap "'$build/tests/tcp_test' launched")
    cat "$tree"/alone-*.log >>"$scratch/ranks"
    [ "$(cat "$scratch/ranks")" = $'alone\nalone\nalone' ]
    verdict $? "one rank in an allocation of several: $(cat "$scratch/ranks")"
    srun -n 2 --mpi=none "$build/gpt2" "${tiny[@]}" >"$scratch/ranks" 2>&1
    grep -q 'SLURM_STEP_NUM_TASKS is set.* Start them with srun --mpi=pmix -n 2, ' "$scratch/ranks"
    verdict $? "gpt2 without PMIx: $(cat "$scratch/ranks")"
}

# Ranks share GPUs; what stands in for the service notes how it is called, and what it finds.
service() {
    local calls=$scratch/calls
    # shellcheck disable=SC2016 # the program's words
    printf '#!/bin/bash\n[ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] &&
        echo "${*:-$(cat)} ${CUDA_MPS_PIPE_DIRECTORY%%/mps.*}" >>"%s"\n' "$calls" \
        >"$scratch/bin/nvidia-cuda-mps-control"
    chmod +x "$scratch/bin/nvidia-cuda-mps-control"
    PATH=$scratch/bin:$PATH ZERO_RANKS_PER_GPU=3 SLURM_TMPDIR=$scratch/nvme \
        run --gres=gpu:1 jobs/mps.sbatch gpt2 "${tiny[@]}" --stage 2
    [ "$status" = 0:0 ] && grep -q ': 3 ranks, ' "$log" && [[ $(tail -n 1 "$log") == digest* ]]
    verdict $? "mps.sbatch: status $status, $(cat "$scratch/err" "$log")"
    PATH=$scratch/bin:$PATH SLURM_TMPDIR=$scratch/nvme run jobs/mps.sbatch gpt2 --stage 4
    [ "$status" = 2:0 ] && [ "$(grep -c '^rank [0-3]: --stage cannot be' "$log")" = 4 ]
    verdict $? "mps.sbatch of a wrong option: status $status, $(cat "$log")"
    PATH=$scratch/bin:$PATH SLURM_TMPDIR=$scratch/nvme ZERO_BUILD=$scratch/show \
        run jobs/mps.sbatch gpt2
    [ "$status" = 0:0 ] && [ "$(grep -c '^[0-3]/4 cpus 4 gpus : ' "$log")" = 4 ]
    verdict $? "GPUs that ranks of the service are told: status $status, $(cat "$log")"
    [ "$(sort "$calls" | uniq -c | xargs)" = "3 -d $scratch/nvme 3 quit $scratch/nvme" ]
    verdict $? "mps.sbatch has called the service so: $(cat "$calls")"
    rm "$scratch/bin/nvidia-cuda-mps-control"
    ! command -v nvidia-cuda-mps-control >/dev/null || return
    SLURM_TMPDIR=$scratch/nvme run jobs/mps.sbatch gpt2 "${tiny[@]}"
    [ "$status" = 2:0 ] && grep -q '^nvidia-cuda-mps-control does not start\. ' "$log" &&
        ! grep -q ^digest "$log"
    verdict $? "mps.sbatch without the service: status $status, $(cat "$log")"
}

# A rank that cannot begin tells nobody: the others would wait for all of the deadline.
cannot_begin() {
    mkdir "$scratch/lame"
    # shellcheck disable=SC2016 # the program's words
    printf '#!/bin/bash\n[ "$SLURM_PROCID" = 0 ] || exit 1\nexec "%s" "$@"\n' "$build/gpt2" \
        >"$scratch/lame/gpt2"
    chmod +x "$scratch/lame/gpt2"
    local begun=$SECONDS
    ZERO_BUILD=$scratch/lame run jobs/gpt2.sbatch "${tiny[@]}"
    [ "${status%%:*}" != 0 ] && [ $((SECONDS - begun)) -lt 110 ]
    verdict $? "a rank that cannot begin: $status in $((SECONDS - begun)) s, $(cat "$log")"
    [ "$status" != 0:0 ] || scancel "$job"
}

# Ended by scancel, once it steps. It has its checkpoint by then.
cancelled() { # state, exit code, words of scancel
    rm -f "$scratch/checkpoint"
    submit jobs/gpt2.sbatch "${tiny[@]}" --stage 3 --offload nvme --steps 1000000 \
        --checkpoint "$scratch/checkpoint"
    for _ in $(seq 600); do
        grep -qs '^step [0-9]' "$tree/gpt2-$job.log" && break
        sleep 0.1
    done
    # Where Slurm follows processes by control groups, this shell has the signal, and srun not.
    scancel --batch --signal=TERM "$job"
    sleep 0.5
    [ "$(of_job JobState)" = RUNNING ]
    verdict $? "the batch shell's SIGTERM: the job is $(of_job JobState)"
    scancel "${@:3}" "$job"
    ended
    [ "$(of_job JobState)" = "$1" ] && [ "$status" = "$2" ]
    verdict $? "scancel ${*:3}: it ended $(of_job JobState), $status"
    grep -qE '^[0-9]+ of 1000000 steps in ' "$log" && grep -q '^  rank 1, memory ' "$log" &&
        grep -q '^rank 0: SIGTERM stopped all ranks after step ' "$log" && ! grep -q ^digest "$log"
    verdict $? "scancel ${*:3}: no summary: $(tail -n 5 "$log")"
    local step
    step=$(sed -n 's/^rank 0: SIGTERM stopped all ranks after step \([0-9]*\) of .*/\1/p' "$log")
    run jobs/gpt2.sbatch "${tiny[@]}" --steps $((step + 2)) --checkpoint "$scratch/checkpoint"
    [ "$status" = 0:0 ] && grep -q "^checkpoint: step ${step:-none} is read\$" "$log" &&
        [[ $(tail -n 1 "$log") == digest* ]]
    verdict $? "submitted again after scancel ${*:3}: status $status, $(cat "$log")"
}

misused
if [ ${#launcher[@]} = 0 ] || ! nm -D "$build/gpt2" | grep -q MPI_Init; then
    echo "skipped: the job files: needs a build with MPI"
elif ! slurm_up "$scratch/slurm"; then
    echo "skipped: the job files: $slurm_reason"
elif ! srun --mpi=list 2>&1 | grep -qw pmix; then
    echo "skipped: the job files: this srun has no pmix, which starts Open MPI's ranks"
else
    site "s|^ZERO_NVME_PATH=.*|ZERO_NVME_PATH=$scratch/nvme|"
    digests
    memory
    given
    service
    settings
    refused
    without_pmix
    cannot_begin
    cancelled CANCELLED 143:0
    cancelled FAILED 143:0 --signal=TERM
    [ -z "$(ls -A "$scratch/nvme")" ]
    verdict $? "files are left: $(ls -A "$scratch/nvme")"
fi
closing
