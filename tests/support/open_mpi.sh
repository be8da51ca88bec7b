# SPDX-License-Identifier: Apache-2.0
# Sourced by what starts ranks: how Open MPI is to do it, by its names of these
# settings before series 5 (OMPI) and since (PRTE), which 6 calls deprecated. It runs nothing.
# shellcheck shell=bash
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# More ranks than cores, and threads that may move.
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
: "${PRTE_MCA_rmaps_default_mapping_policy:=:oversubscribe}"
export PRTE_MCA_rmaps_default_mapping_policy
export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none}
export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy:-none}
export PMIX_MCA_mca_base_suppress_deprecated_warning=1

# Ranks of one machine: without this series 5 says that none can be reached by TCP.
export OMPI_MCA_btl_tcp_if_include=${OMPI_MCA_btl_tcp_if_include:-lo}

# Nothing is said of a rank that fails: what the rank says is looked at.
export OMPI_MCA_orte_execute_quiet=1 PRTE_MCA_prte_execute_quiet=1
export UCX_HANDLE_ERRORS=none

# A job that is killed leaves files behind: then they are ours to remove.
open_mpi_files() { # of shared memory, of its processes
    export OMPI_MCA_btl_vader_backing_directory=$1
    [ -z "${2-}" ] || export OMPI_MCA_orte_tmpdir_base=$2 PRTE_MCA_prte_tmpdir_base=$2
}
