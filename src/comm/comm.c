// SPDX-License-Identifier: Apache-2.0
/*
 * What all backends share: the comparison of two ranks' calls, and the choice
 * of a backend when the program brings none. Sends nothing.
 */
#include "src/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(int32_t kind)
{
    switch (kind) {
    case ZERO_COLLECTIVE_GATHER: return "gather";
    case ZERO_COLLECTIVE_REDUCE: return "reduce";
    case ZERO_COLLECTIVE_SUM: return "sum";
    case ZERO_COLLECTIVE_BROADCAST: return "broadcast";
    default: return "something unknown";
    }
}

/* "reduce of unit 3", or only "verdict". */
static void call_print(char out[64], const char *name, int32_t unit)
{
    if (unit >= 0)
        snprintf(out, 64, "%s of unit %d", name, unit);
    else
        snprintf(out, 64, "%s", name);
}

static const char *call_name(const struct zero_collective_header *h)
{
    return h->name[0] ? h->name : kind_name(h->kind);
}

static bool same_call(const struct zero_collective_header *a,
                      const struct zero_collective_header *b)
{
    return a->kind == b->kind && a->unit == b->unit && !strncmp(a->name, b->name, sizeof(a->name));
}

static int mismatch(struct zero_comm *comm, const struct zero_collective *mine, int peer,
                    const struct zero_collective_header *theirs)
{
    const struct zero_collective_header *h = &mine->header;
    unsigned long long message = h->sequence, other = theirs->sequence;
    char here[64], there[64];
    call_print(here, call_name(h), h->unit);
    call_print(there, call_name(theirs), theirs->unit);
    if (message != other)
        return error_comm(comm, ZERO_ERR_MISMATCH,
                          "Rank %d called %s as message %llu where this rank (%d) called %s as "
                          "message %llu. Make the same calls in the same order on all ranks.",
                          peer, there, other, comm->rank, here, message);
    if (!same_call(h, theirs))
        return error_comm(comm, ZERO_ERR_MISMATCH,
                          "Rank %d called %s where this rank (%d) called %s (message %llu). Make "
                          "the same calls in the same order on all ranks.",
                          peer, there, comm->rank, here, message);
    if (h->bytes != theirs->bytes)
        return error_comm(comm, ZERO_ERR_MISMATCH,
                          "Rank %d called %s with %lld bytes where this rank (%d) called it with "
                          "%lld (message %llu). Make the same calls in the same order on all "
                          "ranks.",
                          peer, here, (long long)theirs->bytes, comm->rank, (long long)h->bytes,
                          message);
    return error_comm(comm, ZERO_ERR_MISMATCH,
                      "Rank %d called %s with other arguments than this rank (%d), or made other "
                      "calls before it (message %llu). Make the same calls with equal arguments "
                      "on all ranks.",
                      peer, here, comm->rank, message);
}

int comm_header_compare(struct zero_comm *comm, const struct zero_collective *mine, int peer,
                        const struct zero_collective_header *theirs)
{
    const struct zero_collective_header *h = &mine->header;
    if (theirs->kind == ZERO_COLLECTIVE_FAILED)
        return error_comm(comm, ZERO_ERR_COMM,
                          "Rank %d gave up before message %llu. Look for its own error, which says "
                          "why.",
                          peer, (unsigned long long)theirs->sequence);
    if (h->sequence == theirs->sequence && same_call(h, theirs) && h->bytes == theirs->bytes &&
        h->arguments == theirs->arguments)
        return ZERO_OK;
    return mismatch(comm, mine, peer, theirs);
}

/* ------------------------------------------------------ choice of backend */

/* What the launchers leave in the environment of each rank, with the number of
 * ranks where they tell it: Open MPI, PMIx under Slurm, MPICH and its kin, MVAPICH. */
static const struct launcher {
    const char *mark, *size;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
    {"PMI_SIZE", "PMI_SIZE"},
    {"PMI_RANK", "SLURM_STEP_NUM_TASKS"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"},
};

static const struct launcher *launcher_find(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
        if (getenv(launchers[i].mark))
            return &launchers[i];
    return NULL;
}

#ifdef HAVE_MPI

/* A launcher of another kind than this MPI starts ranks that are each alone. */
static int check_size(struct zero_comm **comm, const struct launcher *launcher, struct error *error)
{
    const char *size = getenv(launcher->size);
    int told = size ? atoi(size) : 0;
    if ((*comm)->size > 1 || told <= 1)
        return ZERO_OK;
    (*comm)->ops->destroy(*comm);
    *comm = NULL;
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "This job has %d ranks (%s is set), and to the MPI of this build this rank is "
                     "alone. Start it with that MPI's own mpirun (srun: --mpi=pmix), or unset %s "
                     "for one rank.",
                     told, launcher->size, launcher->mark);
}

int comm_default_create(struct zero_comm **comm, struct error *error)
{
    const struct launcher *launcher = launcher_find(); /* before MPI, which leaves marks too */
    *comm = NULL;
    if (!launcher && !comm_mpi_started())
        return comm_self_create(comm, error);
    if (comm_mpi_default(comm, error))
        return error->status;
    return launcher ? check_size(comm, launcher, error) : ZERO_OK;
}

void comm_default_deadline(int seconds)
{
    comm_mpi_deadline(seconds);
}

#else

int comm_default_create(struct zero_comm **comm, struct error *error)
{
    *comm = NULL;
    const struct launcher *launcher = launcher_find();
    const char *size = launcher ? getenv(launcher->size) : "1";
    /* A launched rank that cannot tell how many there are is not taken to be alone. */
    if (!size || atoi(size) != 1)
        return error_set(error, ZERO_ERR_UNSUPPORTED,
                         "This job has %s ranks (%s is set) and this build has no MPI. Build with "
                         "Open MPI installed (libopenmpi-dev), or start one process.",
                         size ? size : "several", launcher->mark);
    return comm_self_create(comm, error);
}

void comm_default_deadline(int seconds)
{
    (void)seconds;
}

#endif
