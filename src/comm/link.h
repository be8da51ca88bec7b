// SPDX-License-Identifier: Apache-2.0
/*
 * A socket between two ranks that carries frames, some with data behind them, and
 * never blocks. Knows nothing of what they mean. Ranks run the same build on machines
 * of one kind, which the bootstrap has checked, so a frame is sent as it is in memory.
 */
#ifndef SRC_COMM_LINK_H
#define SRC_COMM_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "include/zero.h"

enum frame_kind {
    FRAME_CALL = 1, /* to rank 0: the header of this rank's call number order */
    FRAME_GO,       /* from rank 0: all ranks have made that call */
    FRAME_DATA,     /* bytes of that call follow */
    FRAME_DIFFERS,  /* from rank 0: its header of that call, and the other one of rank */
    FRAME_FAILED,   /* rank completes no message from header.sequence on */
    FRAME_LOST,     /* likewise, for its connection was lost: cause, an errno or 0 */
    FRAME_WAITS,    /* from rank 0: at that call it still waits for rank */
};

struct frame {
    uint32_t kind;
    int32_t rank;
    uint64_t order; /* of a collective's start: 1, 2, ... */
    int64_t bytes;  /* behind it, with DATA */
    int64_t cause;
    struct zero_collective_header header, root; /* root: rank 0's */
};

/* Frames that wait to be sent, at most: two of each collective, and of the others one. */
#define LINK_FRAMES (2 * ZERO_COLLECTIVES + 5)

struct link {
    int fd, rank; /* -1: closed; who is at the other end */

    /* what comes in */
    struct frame in; /* the last one */
    int64_t got;     /* bytes of it */
    char *to;        /* where its data goes */
    int64_t left;    /* bytes of data */

    /* what goes out, in order */
    struct out {
        struct frame frame;
        const char *data; /* stays the sender's */
        int64_t sent;     /* bytes of frame and data */
        int *pending;     /* counts it until it is sent; or NULL */
    } out[LINK_FRAMES];
    int first, count;
    bool deaf; /* nothing can be sent any more */
    int error; /* why: an errno, or 0 */
};

enum link_news {
    LINK_IDLE,
    LINK_FRAME, /* link->in is a new frame: link_expect its data, if it has some */
    LINK_DATA,  /* that is complete */
    LINK_CLOSED /* by the other end; errno: why, 0: as it should be */
};

/* Appends a frame. */
void link_push(struct link *link, const struct frame *frame, const void *data, int *pending);

/* Sends what can be sent. */
void link_flush(struct link *link);

/* Receives until there is something to tell. */
enum link_news link_receive(struct link *link);

/* The data of the frame that has just come goes to to. */
void link_expect(struct link *link, void *to);

/* Takes back the data that is not under way. True when some is: it goes on from memory
 * of the caller until it is sent, or the link is closed. */
bool link_withdraw(struct link *link);

/* Ends the sending side; then drops what comes, and tells whether the other end has closed. */
void link_end(struct link *link);
bool link_drain(struct link *link);
void link_close(struct link *link);

#endif
