// SPDX-License-Identifier: Apache-2.0
/* What all backends share, also those in plugins: the comparison of two ranks' calls. */
#include <stdio.h>
#include <string.h>

#include "src/comm/comm.h"

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

/* "reduce of unit 3", or only "zero_step". */
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
    if (!same_call(h, theirs) && !strncmp(theirs->name, "zero_destroy", sizeof(theirs->name)))
        return error_comm(comm, ZERO_ERR_MISMATCH,
                          "Rank %d called zero_destroy where this rank (%d) called %s (message "
                          "%llu). Look for that rank's own error, or destroy engines after the "
                          "same calls on all ranks.",
                          peer, comm->rank, here, message);
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
                      "on all ranks: look at zero_acquire, zero_release, zero_set_*, zero_read, "
                      "zero_write, zero_phase and zero_discard.",
                      peer, here, comm->rank, message);
}

int comm_header_compare(struct zero_comm *comm, const struct zero_collective *mine, int peer,
                        const struct zero_collective_header *theirs)
{
    const struct zero_collective_header *h = &mine->header;
    if (theirs->kind == ZERO_COLLECTIVE_FAILED)
        return error_comm(comm, ZERO_ERR_COMM,
                          "Rank %d gave up before message %llu. Look for its own error, or for "
                          "what ended it.",
                          peer, (unsigned long long)theirs->sequence);
    if (h->sequence == theirs->sequence && same_call(h, theirs) && h->bytes == theirs->bytes &&
        h->arguments == theirs->arguments)
        return ZERO_OK;
    return mismatch(comm, mine, peer, theirs);
}

void comm_given_up(struct zero_comm *comm, uint64_t sequence)
{
    error_comm(comm, ZERO_ERR_COMM,
               "This rank (%d) gave up before message %llu: its engine failed, or the process "
               "ends. Look for its first error, and make a new communicator.",
               comm->rank, (unsigned long long)sequence);
}
