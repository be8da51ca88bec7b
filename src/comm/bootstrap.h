// SPDX-License-Identifier: Apache-2.0
/*
 * How the ranks of a job that MPI did not start find each other: rank 0 listens, the
 * others connect to it, and each connection begins with a hello, by which rank 0 knows
 * its own. Who is of another job, of another user or of no job at all is turned away.
 * That guards against mistakes, not against a user of the cluster who forges a hello.
 */
#ifndef SRC_COMM_BOOTSTRAP_H
#define SRC_COMM_BOOTSTRAP_H

#include <poll.h>
#include <stdint.h>

#include "src/comm/job.h"
#include "src/error.h"

/*
 * Connects rank 0 with each other rank: fds (job->size), on rank 0 one socket for each
 * rank but itself (-1), elsewhere fds[0] alone. Sockets do not block. Returns when
 * all ranks have come, at most seconds after this rank and rank 0 have (a little more to hear
 * why it failed).
 *   ZERO_ERR_DEADLINE  a rank did not come: the sentence says which, and where it
 *                      was waited for
 *   ZERO_ERR_MISMATCH  a process of this job is of another build, counts other
 *                      ranks, or is a rank that is there already; on all ranks
 *   ZERO_ERR_COMM      a rank ended meanwhile, no port is free, no connection
 */
int bootstrap_connect(const struct job *job, int seconds, int *fds, struct error *error);

/* ------------------------------------------------------ inside: what is said */

#define BOOTSTRAP_MAGIC    0x6f72657a62696c7eu
#define BOOTSTRAP_PROTOCOL 1

/* The first bytes of a connection, by who makes it. Those up to bytes stay as they
 * are in all versions. */
struct hello {
    uint64_t magic;
    uint32_t protocol, bytes;
    uint64_t user, process; /* process: drawn by chance, other in each */
    int32_t rank, size;
    char version[16], job[96];
};

enum answer_kind {
    ANSWER_WAIT = 1, /* you are one of us: the others are yet to come */
    ANSWER_GO,       /* all are there */
    ANSWER_OTHER,    /* this is another job: yours listens elsewhere */
    ANSWER_FAILED,   /* status, text: of all ranks */
};

struct answer {
    uint64_t magic;
    uint32_t protocol;
    int32_t kind, status, unused;
    char text[496];
};

struct hello hello_make(const struct job *job);

enum guest_kind {
    GUEST_STRANGER, /* not libzero: it gets no answer */
    GUEST_OTHER,    /* of another job or user, or of another version of this protocol */
    GUEST_WRONG,    /* of this job, but it cannot be one of its ranks: error says why */
    GUEST_RANK,
};

enum guest_kind hello_judge(const struct hello *hello, const struct job *job, struct error *error);

/* Whether an answer can be trusted to be one; its text is terminated then. */
bool answer_check(struct answer *answer);
/* why: with ANSWER_FAILED, else NULL. */
bool answer_send(int fd, enum answer_kind kind, const struct error *why);

/* -------------------------------------------------------- inside: its halves */

/* Waits for events of some descriptors, at most until a time; how many have some. */
int bootstrap_wait(struct pollfd *polls, nfds_t count, double until);

/* Rank 0's, as bootstrap_connect: src/comm/door.c. */
int door_receive(const struct job *job, int seconds, int *fds, struct error *error);

#endif
