// SPDX-License-Identifier: Apache-2.0
/*
 * Rank 0's half of the bootstrap: it listens, and gives each rank that comes its seat.
 *
 * Who owns what: the guests, strangers until their hello is complete, are places in a
 * table; a seat is one of them. What order is guaranteed: none, ranks come as they
 * like; one that lost patience comes again, and is known by its process. What the end
 * does: listener and guests without a seat are closed in any case, seats too where it
 * failed. Before that all ranks that have come, or still come within TELL_SECONDS,
 * hear the sentence.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/comm/bootstrap.h"
#include "src/thread.h"

#define STRANGERS    32  /* who said nothing yet, at once: then the oldest is shown out */
#define LOOK_SECONDS 0.1 /* between two looks at the clock */
#define LEFT_SECONDS 3.0 /* until a rank that left is not expected back: more than a knock */
#define TELL_SECONDS 1.0 /* to tell those who come why it failed */

static double sooner(double a, double b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------- rank 0: its guests */

struct guest {
    int fd;          /* -1: this place is free */
    bool seated;     /* its hello is complete, and it is a rank */
    uint64_t number; /* in the order of their coming */
    size_t got;      /* bytes of hello */
    struct hello hello;
    nfds_t poll; /* its place in this look's polls; 0: none */
};

struct seat {
    struct guest *guest; /* NULL: empty */
    double left;         /* when its guest went away; 0: it never did */
};

struct door {
    const struct job *job;
    struct error *error;
    int listener, port;
    struct guest *guests; /* (places) */
    struct pollfd *polls; /* (places + 1) the listener first */
    struct seat *seats;   /* (size) */
    int places, seated, turned_away;
    uint64_t number;
};

static void guest_close(struct guest *g)
{
    close(g->fd);
    *g = (struct guest){.fd = -1};
}

static void turn_away(struct door *d, struct guest *g)
{
    d->turned_away++;
    guest_close(g);
}

/* Of a place for whom comes: who said nothing for the longest time leaves it. There are
 * more places than seats. */
static struct guest *place_find(struct door *d)
{
    struct guest *oldest = NULL;
    for (struct guest *g = d->guests; g < d->guests + d->places; g++) {
        if (g->fd < 0)
            return g;
        if (!g->seated && (!oldest || g->number < oldest->number))
            oldest = g;
    }
    assert(oldest);
    turn_away(d, oldest);
    return oldest;
}

/* Whether errno says that no more files may be open. */
static bool files_lacking(void)
{
    return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

static int no_files(struct door *d)
{
    return error_set(d->error, ZERO_ERR_COMM,
                     "Rank 0 cannot take the connections of %d ranks: %s. Raise the limit on files "
                     "(ulimit -n).",
                     d->job->size - 1, strerror(errno));
}

static void guest_take(struct door *d)
{
    int fd = fd_not_standard(accept4(d->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0) {
        struct guest *g = place_find(d);
        *g = (struct guest){.fd = fd, .number = ++d->number};
    } else if (files_lacking()) {
        no_files(d);
    }
}

static void guest_seat(struct door *d, struct guest *g)
{
    struct seat *seat = &d->seats[g->hello.rank];
    struct guest *before = seat->guest;
    if (before && before->hello.process != g->hello.process) {
        error_set(d->error, ZERO_ERR_MISMATCH,
                  "Two processes of this job say that they are rank %d of %d. Start each rank "
                  "once.",
                  g->hello.rank, d->job->size);
        answer_send(g->fd, ANSWER_FAILED, d->error);
        guest_close(g);
        return;
    }
    if (before)
        guest_close(before);
    else
        d->seated++;
    seat->guest = g;
    g->seated = true;
    answer_send(g->fd, ANSWER_WAIT, NULL); /* who is gone is seen at the next look */
}

/* A hello is complete. */
static void guest_judge(struct door *d, struct guest *g)
{
    struct error wrong = {0};
    enum guest_kind kind = hello_judge(&g->hello, d->job, &wrong);
    if (kind == GUEST_STRANGER || kind == GUEST_OTHER) {
        if (kind == GUEST_OTHER)
            answer_send(g->fd, ANSWER_OTHER, NULL);
        turn_away(d, g);
        return;
    }
    if (kind == GUEST_WRONG)
        error_set(d->error, wrong.status, "%s", wrong.text);
    if (!d->error->status) {
        guest_seat(d, g);
        return;
    }
    answer_send(g->fd, ANSWER_FAILED, d->error);
    guest_close(g);
}

/* One with a seat has nothing to say before GO: what comes is its end. */
static void guest_leaves(struct door *d, struct guest *g)
{
    struct seat *seat = &d->seats[g->hello.rank];
    seat->guest = NULL;
    seat->left = seconds_now();
    d->seated--;
    guest_close(g);
}

static void guest_hear(struct door *d, struct guest *g)
{
    char *to = (char *)&g->hello + g->got;
    char beyond;
    ssize_t n =
        g->seated ? recv(g->fd, &beyond, 1, 0) : recv(g->fd, to, sizeof(g->hello) - g->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (g->seated) {
        guest_leaves(d, g);
        return;
    }
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->got >= sizeof(g->hello.magic) && g->hello.magic != BOOTSTRAP_MAGIC))
        turn_away(d, g);
    else if (g->got == sizeof(g->hello))
        guest_judge(d, g);
}

/* Lets in who knocks and hears who speaks, at most until a time. */
static void door_look(struct door *d, double until)
{
    struct guest *end = d->guests + d->places;
    nfds_t count = 1; /* of what is open alone: poll takes no more than files may be */
    d->polls[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
    for (struct guest *g = d->guests; g < end; g++) {
        g->poll = g->fd < 0 ? 0 : count++;
        if (g->poll)
            d->polls[g->poll] = (struct pollfd){.fd = g->fd, .events = POLLIN};
    }
    if (bootstrap_wait(d->polls, count, sooner(until, seconds_now() + LOOK_SECONDS)) == 0)
        return;
    for (struct guest *g = d->guests; g < end; g++)
        if (g->poll && d->polls[g->poll].revents)
            guest_hear(d, g);
    if (d->polls[0].revents)
        guest_take(d);
}

/* ------------------------------------------------------ rank 0: its door */

static void door_overdue(struct door *d, int seconds)
{
    char absent[128], others[64] = "";
    int ranks[ERROR_RANKS], count = 0;
    for (int r = 1; r < d->job->size; r++)
        if (!d->seats[r].guest && count++ < ERROR_RANKS)
            ranks[count - 1] = r;
    error_ranks(absent, sizeof(absent), ranks, count);
    if (d->turned_away)
        snprintf(others, sizeof(others), " (%d other connections were turned away)",
                 d->turned_away);
    error_set(d->error, ZERO_ERR_DEADLINE,
              "Of %d ranks these did not connect to rank 0 at %.200s, port %d, within %d s: %s%s. "
              "Look for what stopped them, or raise the deadline (--deadline, .deadline_seconds).",
              d->job->size, d->job->host, d->port, seconds, absent, others);
}

static void door_lost(struct door *d)
{
    for (int r = 1; r < d->job->size; r++)
        if (!d->seats[r].guest && d->seats[r].left > 0 &&
            seconds_now() > d->seats[r].left + LEFT_SECONDS)
            error_set(d->error, ZERO_ERR_COMM,
                      "Rank %d ended while the ranks of this job were connecting. Look for its own "
                      "error, or for what ended it.",
                      r);
}

/* All ranks hear the sentence: those that are here, and those that come soon. */
static void door_tell(struct door *d, double until)
{
    for (int r = 1; r < d->job->size; r++) {
        struct seat *seat = &d->seats[r];
        if (!seat->guest)
            continue;
        answer_send(seat->guest->fd, ANSWER_FAILED, d->error);
        guest_close(seat->guest);
        seat->guest = NULL;
    }
    until = sooner(until, seconds_now() + TELL_SECONDS);
    while (d->listener >= 0 && seconds_now() < until)
        door_look(d, until);
}

/* Listens at one port on all interfaces, for IPv4 and IPv6 where there is both. */
static int listen_at(int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, off = 0, type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = fd_not_standard(socket(AF_INET6, type, 0));
    bool both = fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (!both) {
        if (fd >= 0)
            close(fd);
        fd = fd_not_standard(socket(AF_INET, type, 0));
    }
    if (fd < 0)
        return -1;
    const struct sockaddr *at =
        both ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* after a job that has ended */
    if (!bind(fd, at, both ? sizeof(six) : sizeof(four)) && !listen(fd, SOMAXCONN))
        return fd;
    int rc = errno;
    close(fd);
    errno = rc;
    return -1;
}

static int door_open(struct door *d)
{
    const struct job *job = d->job;
    d->places = job->size - 1 + STRANGERS;
    d->guests = calloc((size_t)d->places, sizeof(*d->guests));
    d->polls = calloc((size_t)d->places + 1, sizeof(*d->polls));
    d->seats = calloc((size_t)job->size, sizeof(*d->seats));
    if (!d->guests || !d->polls || !d->seats) {
        d->places = 0;
        return error_set(d->error, ZERO_ERR_MEMORY,
                         "No memory for messages of %d ranks." ERROR_FREE_MEMORY, job->size);
    }
    for (int i = 0; i < d->places; i++)
        d->guests[i].fd = -1;
    for (int i = 0; i < JOB_PORTS && d->listener < 0; i++)
        d->listener = listen_at(d->port = job->port + i);
    if (d->listener < 0 && files_lacking())
        return no_files(d);
    if (d->listener < 0)
        return error_set(d->error, ZERO_ERR_COMM,
                         "Rank 0 cannot listen at the ports %d to %d: %s. Set MASTER_PORT to a "
                         "free one, the same on all ranks.",
                         job->port, d->port, strerror(errno));
    return ZERO_OK;
}

static void door_close(struct door *d)
{
    for (int i = 0; i < d->places; i++)
        if (d->guests[i].fd >= 0)
            guest_close(&d->guests[i]);
    if (d->listener >= 0)
        close(d->listener);
    free(d->guests);
    free(d->polls);
    free(d->seats);
}

/* Whether every seat is taken, by ranks that are still there: one that lost patience comes
 * again. */
static bool all_wait(struct door *d)
{
    const int all = d->job->size - 1;
    for (int r = 1; r <= all && d->seated == all; r++)
        guest_hear(d, d->seats[r].guest);
    return d->seated == all;
}

/* All wait: from here on the sockets are the caller's. */
static void door_go(struct door *d, int *fds)
{
    for (int r = 1; r < d->job->size; r++) {
        struct guest *g = d->seats[r].guest;
        answer_send(g->fd, ANSWER_GO, NULL); /* who is gone is missed by the first collective */
        fds[r] = g->fd;
        *g = (struct guest){.fd = -1};
    }
}

int door_receive(const struct job *job, int seconds, int *fds, struct error *error)
{
    struct door door = {.job = job, .error = error, .listener = -1};
    double until = seconds_now() + seconds;
    if (!door_open(&door)) {
        while (!error->status && !all_wait(&door)) {
            door_look(&door, until);
            door_lost(&door);
            if (seconds_now() > until && door.seated < job->size - 1)
                door_overdue(&door, seconds);
        }
        if (error->status)
            door_tell(&door, until);
        else
            door_go(&door, fds);
    }
    door_close(&door);
    return error->status;
}
