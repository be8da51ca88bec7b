// SPDX-License-Identifier: Apache-2.0
/*
 * What is said, and the half of it of every rank but 0, which has one connection at a
 * time: it knocks at rank 0's ports in order, round after round, until one answers
 * that it is the right one (WAIT). There it stays and hears GO when all are there, or
 * why that failed. A port that does not answer soon is left, for another server may
 * have it; so the same process may come twice. src/comm/door.c is rank 0's half.
 */
#include "src/comm/bootstrap.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/clock.h"
#include "src/thread.h"

#define WAIT_SECONDS      60   /* of one wait: there is no deadline too far for an int */
#define KNOCK_SECONDS     1.0  /* until a port that does not answer is left */
#define ROUND_SECONDS     0.02 /* between the first two rounds of knocking, doubled up to */
#define ROUND_SECONDS_MAX 0.5
#define HEAR_SECONDS      1.0 /* behind the deadline, for rank 0's sentence */
#define NAME_SECONDS      30  /* to find the address of a name that is not known yet */

int bootstrap_wait(struct pollfd *polls, nfds_t count, double until)
{
    double left = until - seconds_now();
    if (left > WAIT_SECONDS)
        left = WAIT_SECONDS;
    int rc = poll(polls, count, left > 0 ? (int)(left * 1000) + 1 : 0);
    return rc < 0 ? 0 : rc; /* a signal: as if nothing had happened */
}

/* -------------------------------------------------------- what is said */

struct hello hello_make(const struct job *job)
{
    struct hello hello = {.magic = BOOTSTRAP_MAGIC,
                          .protocol = BOOTSTRAP_PROTOCOL,
                          .bytes = sizeof(hello),
                          .user = geteuid(),
                          .process = (uint64_t)getpid(),
                          .rank = job->rank,
                          .size = job->size,
                          .version = ZERO_VERSION};
    static_assert(sizeof(hello.job) == sizeof(job->name), "a job's name fits");
    static_assert(sizeof(hello) == 152, "no padding is sent");
    memcpy(hello.job, job->name, sizeof(hello.job));
    /* Without random numbers a process is its number, which is other on this host. */
    if (getrandom(&hello.process, sizeof(hello.process), GRND_NONBLOCK) < 0)
        hello.process ^= (uint64_t)(seconds_now() * 1e9) << 20;
    return hello;
}

enum guest_kind hello_judge(const struct hello *h, const struct job *job, struct error *error)
{
    if (h->magic != BOOTSTRAP_MAGIC)
        return GUEST_STRANGER;
    if (h->protocol != BOOTSTRAP_PROTOCOL || h->bytes != sizeof(*h) || h->user != geteuid() ||
        strncmp(h->job, job->name, sizeof(h->job)))
        return GUEST_OTHER;
    if (strncmp(h->version, ZERO_VERSION, sizeof(h->version)))
        error_set(error, ZERO_ERR_MISMATCH,
                  "Rank %d runs libzero %.16s and rank 0 runs %s. Start the same build on all "
                  "nodes.",
                  h->rank, h->version, ZERO_VERSION);
    else if (h->size != job->size)
        error_set(error, ZERO_ERR_MISMATCH,
                  "Rank %d was started as one of %d ranks, but rank 0 as one of %d. Start all "
                  "ranks with the same number.",
                  h->rank, h->size, job->size);
    else if (h->rank < 1 || h->rank >= job->size)
        error_set(error, ZERO_ERR_MISMATCH,
                  "A second process of this job says that it is rank %d of %d. Start each rank "
                  "once, numbered from 0.",
                  h->rank, h->size);
    else
        return GUEST_RANK;
    return GUEST_WRONG;
}

bool answer_check(struct answer *answer)
{
    answer->text[sizeof(answer->text) - 1] = '\0';
    if (answer->magic != BOOTSTRAP_MAGIC || answer->protocol != BOOTSTRAP_PROTOCOL)
        return false;
    if (answer->kind == ANSWER_FAILED)
        return answer->text[0] && answer->status > ZERO_OK && answer->status <= ZERO_ERR_DEVICE;
    return answer->kind >= ANSWER_WAIT && answer->kind < ANSWER_FAILED;
}

/* It goes into a socket's empty buffer whole, or the other end is gone. */
bool answer_send(int fd, enum answer_kind kind, const struct error *why)
{
    struct answer answer = {
        .magic = BOOTSTRAP_MAGIC, .protocol = BOOTSTRAP_PROTOCOL, .kind = (int32_t)kind};
    static_assert(sizeof(answer.text) == sizeof(why->text), "a sentence fits");
    if (why) {
        answer.status = why->status;
        memcpy(answer.text, why->text, sizeof(answer.text));
    }
    return send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(answer);
}

/* ------------------------------------------------------- where rank 0 is */

/* A look-up of a name, in a thread of its own: who waits for it owns it as long as it
 * does, since it may take longer than anyone waits. */
struct lookup {
    char host[256];
    struct addrinfo *found;
    int rc;
    atomic_bool left; /* one of the two is done with it: the other owns it */
};

static const struct addrinfo stream = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

static void lookup_free(struct lookup *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    free(l);
}

static void *lookup_main(void *arg)
{
    struct lookup *l = arg;
    l->rc = getaddrinfo(l->host, NULL, &stream, &l->found);
    if (atomic_exchange(&l->left, true))
        lookup_free(l);
    return NULL;
}

/* The addresses of a name, or NULL with the reason in why. */
static struct addrinfo *lookup(const char *host, double until, const char **why)
{
    struct lookup *l = calloc(1, sizeof(*l));
    pthread_t thread;
    *why = "no memory or thread to look it up";
    if (!l)
        return NULL;
    snprintf(l->host, sizeof(l->host), "%s", host);
    double least = seconds_now() + 1;
    if (thread_start(&thread, lookup_main, l)) {
        lookup_free(l);
        return NULL;
    }
    if (!thread_join_or_leave(thread, until > least ? until : least, &l->left)) {
        *why = "no answer";
        return NULL;
    }
    struct addrinfo *found = l->rc ? NULL : l->found;
    *why = l->rc == EAI_SYSTEM ? "the look-up failed" : gai_strerror(l->rc);
    if (found)
        l->found = NULL;
    lookup_free(l);
    return found;
}

/* Names may become known later than the ranks start. */
static struct addrinfo *host_find(const struct job *job, int seconds, struct error *error)
{
    struct addrinfo *found = NULL, numeric = stream;
    numeric.ai_flags = AI_NUMERICHOST;
    if (!getaddrinfo(job->host, NULL, &numeric, &found))
        return found;
    const char *why;
    int most = seconds < NAME_SECONDS ? seconds : NAME_SECONDS;
    double until = seconds_now() + most;
    while (!(found = lookup(job->host, until, &why)) && seconds_now() < until)
        bootstrap_wait(NULL, 0, seconds_now() + ROUND_SECONDS_MAX);
    if (!found)
        error_set(error, ZERO_ERR_COMM,
                  "The address of rank 0's host '%.200s' was not found within %d s: %s. Set "
                  "MASTER_ADDR to that address on all ranks.",
                  job->host, most, why);
    return found;
}

/* ---------------------------------------------------------- another rank */

struct visit {
    const struct job *job;
    struct hello hello;
    double until;
    int port;     /* that is tried */
    char why[96]; /* the last of them did not do */
};

/* One answer, whole. false: none came, why not in errno (0: the connection ended). */
static bool answer_hear(int fd, struct answer *answer, double until)
{
    size_t got = 0;
    while (got < sizeof(*answer)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = recv(fd, (char *)answer + got, sizeof(*answer) - got, MSG_DONTWAIT);
        bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
        if (n == 0)
            errno = 0;
        if (n == 0 || (n < 0 && !later))
            return false;
        got += later ? 0 : (size_t)n;
        if (later && seconds_now() > until) {
            errno = ETIMEDOUT;
            return false;
        }
        if (later)
            bootstrap_wait(&p, 1, until);
    }
    errno = EPROTO;
    return answer_check(answer);
}

static bool connected(int fd, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int rc = ETIMEDOUT;
    socklen_t length = sizeof(rc);
    do
        bootstrap_wait(&p, 1, until);
    while (!p.revents && seconds_now() < until);
    if (p.revents)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &length);
    errno = rc;
    return rc == 0;
}

static int socket_open(const struct addrinfo *a, int port, double until)
{
    struct sockaddr_storage at;
    memcpy(&at, a->ai_addr, a->ai_addrlen);
    if (a->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)port);
    int fd = fd_not_standard(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -1;
    if (!connect(fd, (const struct sockaddr *)&at, a->ai_addrlen) ||
        (errno == EINPROGRESS && connected(fd, until)))
        return fd;
    int rc = errno;
    close(fd);
    errno = rc;
    return -1;
}

/* Knocks at a port: a socket where rank 0 of this job has said WAIT, else -1 with the
 * reason in why, or in error where it holds for all. */
static int knock(struct visit *v, const struct addrinfo *a, struct error *error)
{
    struct answer answer = {0};
    double until = seconds_now() + KNOCK_SECONDS;
    int fd = socket_open(a, v->port, until < v->until ? until : v->until);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        error_set(error, ZERO_ERR_COMM,
                  "Rank %d cannot reach rank 0: %s. Raise the limit on files (ulimit -n).",
                  v->job->rank, strerror(errno));
        return -1;
    }
    bool heard = fd >= 0 &&
                 send(fd, &v->hello, sizeof(v->hello), MSG_NOSIGNAL) == sizeof(v->hello) &&
                 answer_hear(fd, &answer, until < v->until ? until : v->until);
    if (heard && answer.kind == ANSWER_WAIT)
        return fd;
    if (heard && answer.kind == ANSWER_FAILED)
        error_set(error, answer.status, "%s", answer.text);
    else if (heard)
        snprintf(v->why, sizeof(v->why), "another job is at port %d", v->port);
    else
        snprintf(v->why, sizeof(v->why), "port %d: %.64s", v->port,
                 errno ? strerror(errno) : "the connection was closed");
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Round after round, until the door is found. */
static int door_find(struct visit *v, const struct addrinfo *found, int seconds,
                     struct error *error)
{
    for (double pause = ROUND_SECONDS;; pause *= 2) {
        for (v->port = v->job->port; v->port < v->job->port + JOB_PORTS; v->port++)
            for (const struct addrinfo *a = found; a; a = a->ai_next) {
                int fd = knock(v, a, error);
                if (fd >= 0 || error->status)
                    return fd;
                if (seconds_now() > v->until) {
                    error_set(error, ZERO_ERR_DEADLINE,
                              "Rank 0 did not answer rank %d at %.200s, ports %d to %d, within "
                              "%d s (%s). Look for what stopped it or keeps connections from it, "
                              "or raise the deadline (--deadline, .deadline_seconds).",
                              v->job->rank, v->job->host, v->job->port,
                              v->job->port + JOB_PORTS - 1, seconds, v->why);
                    return -1;
                }
            }
        pause = pause < ROUND_SECONDS_MAX ? pause : ROUND_SECONDS_MAX;
        bootstrap_wait(NULL, 0, seconds_now() + pause);
    }
}

/* In a seat, from now on: rank 0, which may have come behind this one, has the same deadline,
 * began no later, and says more. It is given time for that. */
static void go_hear(const struct visit *v, int fd, int seconds, struct error *error)
{
    struct answer answer;
    if (!answer_hear(fd, &answer, seconds_now() + seconds + HEAR_SECONDS))
        error_set(error, errno == ETIMEDOUT ? ZERO_ERR_DEADLINE : ZERO_ERR_COMM,
                  "Rank 0 at %.200s, port %d, %s before all ranks had connected (rank %d was "
                  "connected for %d s at most). Look for its own error, or for what stopped it.",
                  v->job->host, v->port,
                  errno == ETIMEDOUT ? "was silent" : "closed the connection", v->job->rank,
                  seconds);
    else if (answer.kind == ANSWER_FAILED)
        error_set(error, answer.status, "%s", answer.text);
}

static int visit(const struct job *job, int seconds, int *fds, struct error *error)
{
    struct visit v = {.job = job, .hello = hello_make(job), .until = seconds_now() + seconds};
    struct addrinfo *found = host_find(job, seconds, error);
    if (!found)
        return error->status;
    int fd = door_find(&v, found, seconds, error);
    freeaddrinfo(found);
    if (fd < 0)
        return error->status;
    go_hear(&v, fd, seconds, error);
    if (error->status)
        close(fd);
    else
        fds[0] = fd;
    return error->status;
}

/* Small messages go at once; and a node that is gone is noticed where nothing is sent, too, as
 * while NCCL waits for it: within 90 s. */
static void connection_set(int fd)
{
    static const int options[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                     {SOL_SOCKET, SO_KEEPALIVE, 1},
                                     {IPPROTO_TCP, TCP_KEEPIDLE, 30},
                                     {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                                     {IPPROTO_TCP, TCP_KEEPCNT, 6}};
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
}

int bootstrap_connect(const struct job *job, int seconds, int *fds, struct error *error)
{
    assert(job->size > 1 && job->rank >= 0 && job->rank < job->size);
    for (int r = 0; r < job->size; r++)
        fds[r] = -1;
    if (job->rank == 0 ? door_receive(job, seconds, fds, error) : visit(job, seconds, fds, error))
        return error->status;
    for (int r = 0; r < job->size; r++)
        if (fds[r] >= 0)
            connection_set(fds[r]);
    return ZERO_OK;
}
