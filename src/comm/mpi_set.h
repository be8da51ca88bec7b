// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the MPI backend: one collective under way, from the exchange of its
 * headers to its last piece. src/comm/mpi.c is the communicator around it.
 */
#ifndef SRC_COMM_MPI_SET_H
#define SRC_COMM_MPI_SET_H

#include <pthread.h>

#include "include/zero_mpi.h"

#define OUTWARD 8 /* pieces on offer at once, which a peer in the node takes by itself */
#define INWARD  2 /* what a reduction has room for, and what any kind receives at once */

/* The kinds of message of one collective and peer, one request each. Pieces of
 * one direction take turns. */
enum track {
    TRACK_HEADER_OUT,
    TRACK_HEADER_IN,
    TRACK_OUT,
    TRACK_IN = TRACK_OUT + OUTWARD,
    TRACKS = TRACK_IN + INWARD,
};

enum set_state {
    SET_FREE,
    SET_HEADERS, /* until all ranks have made this call */
    SET_MOVING,
    SET_DONE, /* until test has told */
};

struct set {
    enum set_state state;
    struct zero_collective *c;
    struct zero_collective_header mine, *theirs; /* (peers) */
    int headers_missing;
    bool passes_on; /* a gather, of which a node takes each part from another node once */
    int64_t piece_bytes, pieces; /* of each transfer */
    int64_t summed;              /* pieces */
    int arrived[INWARD];         /* how many peers' parts of the piece in each track */
    int64_t *posted;             /* (2, peers) pieces in, pieces out */
    MPI_Request *requests;       /* (TRACKS, peers), then the all-reduce */
    int pending;                 /* requests under way */
    uint64_t *sum;               /* ZERO_SUM_BYTES_MAX */
};

struct mpi {
    struct zero_comm comm; /* first: what callers hold */
    MPI_Comm world;
    int peers;
    int places;         /* ranks of a node, where all nodes have as many; else 1 */
    int *seat, *who;    /* (size) of a rank: node * places + place; and whose a seat is */
    int64_t direct_max; /* parts no larger than that are not passed on */
    int64_t transfer_max;
    int status;        /* of the first failure */
    uint64_t sequence; /* of the last start */
    struct set sets[ZERO_COLLECTIVES];
    struct set *busy[ZERO_COLLECTIVES]; /* in the order of their starts */
    int busy_count;
    const void **parts;   /* (size) of one sum */
    int *completed;       /* (requests of a set) for MPI_Testsome */
    MPI_Status *statuses; /* likewise */

    /* Notices of failure: one receive from any rank, open until destroy. */
    struct zero_collective_header notice_in, notice_out;
    struct zero_collective_header failed; /* of those that came the one of the earliest message */
    int failed_rank;                      /* who gave up first, as that says; -1: none has come */
    MPI_Request notice_receive, *notice_sends; /* (peers) */
    bool *takes_nothing;                       /* (size) of pieces, any more: it gave up */
    bool left;                                 /* MPI still holds memory of ours */

    pthread_mutex_t lock; /* the process's end waits for calls: there are none after it */
    bool finalized;       /* or about to be destroyed: there is nothing to say to others */
    int key;              /* of the attribute by which it tells */
};

/* Tags of one pair of ranks. Headers arrive in the order of the starts. At most
 * ZERO_COLLECTIVES collectives are under way between two ranks, so tags of
 * pieces need not differ much further back. Of what is passed on they differ by the node that
 * it comes from, too: so many tags for each. */
enum { TAG_HEADER, TAG_FAILED, TAG_PIECES, TAGS_OF_PIECES = 1024 };

/* Keeps the first failure's status. */
void mpi_fail(struct mpi *m, int status);

/* MPI itself has failed, or may write to memory that is freed: the process ends without
 * MPI_Finalize. */
void mpi_never_finalize(void);

/* Everything a set needs, for ever. false: no memory; free what there is. */
bool set_alloc(struct mpi *m, struct set *s);
void set_free(struct set *s);

/* Requests of one set. */
int set_requests(const struct mpi *m);

/* The rank at the other end of track's request i, 0 <= i < peers: rotated, so
 * that not all ranks send to the same one. A gather's part may come by way of another
 * (mpi_set.c: route). */
int mpi_other_end(const struct mpi *m, enum track track, int i);

/* Sends the header of c and listens for those of all peers. */
int set_start(struct mpi *m, struct set *s, struct zero_collective *c);

/* Moves what can be moved. The set is in m->busy, in the order of the starts;
 * all sets before it have been asked first. m->status in return. */
int set_progress(struct mpi *m, struct set *s);

/* The lowest rank, not below from, that the set waits for, or -1: of what is passed on that is
 * who passes it and whose it is. */
int set_missing(const struct mpi *m, const struct set *s, int from);

/* Takes back the receives that have not begun; whether some of pieces are left; ends the set, by
 * force. */
void set_cancel(struct mpi *m, struct set *s);
bool set_receives(const struct mpi *m, const struct set *s);
void set_end(struct mpi *m, struct set *s);

/* Of src/comm/mpi.c. */
extern const struct zero_comm_ops mpi_ops;

/* Tests requests until none is active, at most until a time; how many still are. */
int requests_drain(struct mpi *m, MPI_Request *requests, int n, double until);
void requests_clear(MPI_Request *requests, int n);

#endif
