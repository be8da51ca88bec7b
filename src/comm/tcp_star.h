// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the TCP backend: how collectives move through the star. src/comm/tcp.c is
 * the communicator around it.
 */
#ifndef SRC_COMM_TCP_STAR_H
#define SRC_COMM_TCP_STAR_H

#include <poll.h>

#include "src/comm/link.h"

enum op_state {
    OP_FREE,
    OP_CALLED, /* until all ranks have made this call */
    OP_MOVING, /* data comes in; on other ranks than 0 it also goes out */
    OP_GIVING, /* rank 0's: results go out */
    OP_DONE,   /* until test has told */
};

struct op {
    enum op_state state;
    uint64_t order; /* of its start: 1, 2, ... */
    struct zero_collective *c;
    struct zero_collective_header mine;
    char *came; /* (size) rank 0's: 1: that rank's header, 2: its data too */
    int in;     /* transfers that are still to come */
    int out;    /* frames that are still to be sent */
    double since;
    int told; /* to the others, that this rank is waited for; -1: none */
};

struct tcp {
    struct zero_comm comm; /* first: what callers hold */
    int count;             /* links: to all other ranks, or to rank 0 alone */
    struct link *links;    /* (count) link i of rank 0 leads to rank 1 + i */
    struct pollfd *polls;  /* (count) */
    struct op ops[ZERO_COLLECTIVES];
    struct op *busy[ZERO_COLLECTIVES]; /* in the order of their starts */
    int busy_count;
    int status; /* of the first failure */
    bool aborted, relayed;
    uint64_t order, sequence; /* of the last start */
    struct frame failed;      /* kind 0: none. The earliest message that cannot be completed */
    struct frame differs;     /* kind 0: none */
    struct frame waits;       /* the last of its kind */

    /* rank 0's */
    uint64_t gone; /* the last order that all ranks have called */
    struct caller {
        uint64_t called;                                        /* calls whose headers have come */
        struct zero_collective_header theirs[ZERO_COLLECTIVES]; /* by order */
        uint64_t *words;                                        /* ZERO_SUM_BYTES_MAX */
        int waits;                                              /* WAITS to be sent */
    } * callers;                                                /* (count) */
};

static inline bool is_root(const struct tcp *t)
{
    return t->comm.rank == 0;
}

/* Keeps the first failure's status, and returns it. */
int tcp_fail(struct tcp *t, int status);

/* A collective begins: op is the last of t->busy. */
void op_call(struct tcp *t, struct op *op);

/* Hears, moves and sends what can be heard, moved and sent. */
void star_progress(struct tcp *t);

/* The lowest rank, not below from, that an op waits for, or -1. Rank 0 also tells the others, who
 * ask no one, of the first. */
int op_missing(struct tcp *t, struct op *op, int from);

/* ZERO_OK, or the sentence of a rank that gave up, or is gone, before that message. */
int star_failed(struct tcp *t, uint64_t sequence);

/* A frame for all links that are open, but one (NULL: none). */
void star_tell(struct tcp *t, struct frame frame, const struct link *but);

/* Sends what can be sent. */
void star_flush(struct tcp *t);

#endif
