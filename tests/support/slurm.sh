# SPDX-License-Identifier: Apache-2.0
# A Slurm of one node for suites in shell, who source it: slurm_up starts it in a folder,
# slurm_down ends what it started. It needs neither root, munge nor a configured system, and
# touches no other Slurm: its files, ports and processes are its own.
# shellcheck shell=bash disable=SC2034
slurm_pids=()

slurm_config() { # folder
    local ctld=$((20000 + $$ * 2 % 20000)) memory
    memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
    mkdir -p "$1/state" "$1/spool" "$1/tmp"
    cat >"$1/slurm.conf" <<CONF
ClusterName=zero
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$ctld
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
TmpFS=$1/tmp
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=1
KillWait=20
GresTypes=gpu
NodeName=node NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((ctld + 1)) CPUs=16 \
RealMemory=$memory Gres=gpu:2
PartitionName=test Nodes=node Default=YES MaxTime=INFINITE State=UP
CONF
    # Two devices that every machine has stand for GPUs.
    printf 'AutoDetect=off\nNodeName=node Name=gpu File=/dev/%s\n' null >"$1/gres.conf"
    printf 'NodeName=node Name=gpu File=/dev/%s\n' zero >>"$1/gres.conf"
    export SLURM_CONF=$1/slurm.conf
}

# Why there is none is left in slurm_reason.
slurm_up() { # folder
    local program PATH=$PATH:/usr/sbin:/sbin # daemons are there, for users too
    for program in slurmctld slurmd sbatch srun; do
        command -v "$program" >/dev/null && continue
        slurm_reason="$program is not installed (apt: slurmctld slurmd slurm-client \
slurm-wlm-basic-plugins)"
        return 1
    done
    slurm_config "$1"
    slurmctld -D -f "$SLURM_CONF" >"$1/slurmctld.log" 2>&1 &
    slurm_pids+=($!)
    slurmd -D -N node -f "$SLURM_CONF" >"$1/slurmd.log" 2>&1 &
    slurm_pids+=($!)
    for _ in $(seq 150); do
        [ "$(sinfo -h -N -o %T 2>/dev/null)" = idle ] && return 0
        sleep 0.2
    done
    slurm_reason="its node does not come up: $(cat "$1"/slurm*.log | grep -i error | tail -n 1)"
    return 1
}

# Jobs end first: without their Slurm they would go on.
slurm_down() {
    [ ${#slurm_pids[@]} != 0 ] || return 0
    scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null
    for _ in $(seq 150); do
        [ -n "$(squeue -h 2>/dev/null)" ] || break
        sleep 0.2
    done
    kill "${slurm_pids[@]}" 2>/dev/null
    wait "${slurm_pids[@]}" 2>/dev/null
    slurm_pids=()
}
