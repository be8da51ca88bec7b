// SPDX-License-Identifier: Apache-2.0
/* There are no handlers: a thread waits for signals, and may do what a handler may not. */
#include "examples/common/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "examples/common/clock.h"

#define AGAIN_SECONDS 1.0 /* from the first signal to one that is meant as another */

/* By their votes' bits. */
static const struct {
    int number;
    const char *name;
} signals[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}};

enum { SIGNALS = sizeof(signals) / sizeof(*signals) };

static atomic_bool running; /* a run has begun, and its engine is there */
static atomic_int asked;
/* The engine is not destroyed while its deadline is set. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct zero *watched;
static bool agreed; /* by all ranks, which live and end */

/* As if nobody had waited for it. */
static void end_by(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void *take_signals(void *set)
{
    for (double first = 0;;) {
        int number;
        if (sigwait(set, &number))
            continue;
        double now = clock_now();
        if (!atomic_load(&running) || (first > 0 && now - first >= AGAIN_SECONDS))
            end_by(number);
        if (first > 0)
            continue;
        first = now;
        atomic_store(&asked, number);
        pthread_mutex_lock(&lock);
        if (!agreed)
            zero_set_deadline(watched, STOP_DEADLINE);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

void stop_begin(void)
{
    static sigset_t set;
    pthread_t thread;
    sigemptyset(&set);
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction found;
        if (!sigaction(signals[i].number, NULL, &found) && found.sa_handler != SIG_IGN)
            sigaddset(&set, signals[i].number); /* what nohup and the like ignore stays so */
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* here and in all threads to come */
    if (pthread_create(&thread, NULL, take_signals, &set))
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    else
        pthread_detach(thread);
}

void stop_watch(struct zero *z)
{
    pthread_mutex_lock(&lock);
    watched = z;
    pthread_mutex_unlock(&lock);
    if (z)
        atomic_store(&running, true);
}

int stop_asked(void)
{
    return atomic_load(&asked);
}

int stop_vote(struct zero *z)
{
    int number = stop_asked();
    for (int i = 0; i < SIGNALS; i++)
        if (number == signals[i].number)
            return zero_vote(z, i);
    return ZERO_OK;
}

int stop_voted(uint32_t votes)
{
    for (int i = 0; i < SIGNALS; i++)
        if (votes >> i & 1)
            return signals[i].number;
    return 0;
}

void stop_agreed(int deadline)
{
    pthread_mutex_lock(&lock);
    agreed = true;
    zero_set_deadline(watched, deadline);
    pthread_mutex_unlock(&lock);
}

const char *stop_name(int number)
{
    for (int i = 0; i < SIGNALS; i++)
        if (number == signals[i].number)
            return signals[i].name;
    return "no signal";
}
