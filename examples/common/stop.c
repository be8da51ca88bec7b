// SPDX-License-Identifier: Apache-2.0
/* Handlers run on any thread, also on an engine's: all that they share is atomic. */
#include "examples/common/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#define AGAIN_MS 1000 /* from the first signal to one that is meant as another */

/* By their votes' bits. */
static const struct {
    int number;
    const char *name;
} signals[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}};

enum { SIGNALS = sizeof(signals) / sizeof(*signals) };

static _Atomic(struct zero *) watched;
static atomic_llong first_ms; /* 0: no signal has come */
static atomic_int asked;

static void take_note(int number)
{
    struct timespec t;
    long long none = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long now = (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
    if (atomic_compare_exchange_strong(&first_ms, &none, now)) {
        atomic_store(&asked, number);
        zero_set_deadline(atomic_load(&watched), STOP_DEADLINE);
    } else if (now - none >= AGAIN_MS) {
        signal(number, SIG_DFL);
        raise(number); /* comes when this handler returns */
    }
}

void stop_watch(struct zero *z)
{
    struct sigaction action = {.sa_handler = take_note, .sa_flags = SA_RESTART};
    atomic_store(&watched, z);
    sigemptyset(&action.sa_mask);
    for (int i = 0; z && i < SIGNALS; i++)
        sigaction(signals[i].number, &action, NULL);
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

const char *stop_name(int number)
{
    for (int i = 0; i < SIGNALS; i++)
        if (number == signals[i].number)
            return signals[i].name;
    return "no signal";
}
