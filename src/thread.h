// SPDX-License-Identifier: Apache-2.0
/* How the library starts its threads, how they say something is done, and descriptors. */
#ifndef SRC_THREAD_H
#define SRC_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREAD_NAME "libzero" /* of all of them, in top -H and /proc/self/task */

/* pthread_create with all signals but the synchronous faults blocked, so that
 * the program's handlers run in the program's own threads. Returns an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Joins a thread that ends by then, of seconds_now, a millisecond late at most: clocks that are
 * set do not matter. False: it goes on. */
bool thread_join_by(pthread_t thread, double until);

/* The same; false: it is left to itself. The thread sets *left at its end too: of the two whoever
 * finds it set owns what both use. */
bool thread_join_or_leave(pthread_t thread, double until, atomic_bool *left);

/* Adds 1 to an eventfd. */
void event_write(int event_fd);

/* A descriptor just made, or -1 with errno as before. Where a program was started without
 * standard output or error it gets another number, as what is printed would go there. */
int fd_not_standard(int fd);

#endif
