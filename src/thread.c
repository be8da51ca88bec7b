// SPDX-License-Identifier: Apache-2.0
#include "src/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "src/clock.h"

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    /* The thread inherits mask and name, so there is no moment without them, and no file of
     * /proc is opened for it. */
    prctl(PR_SET_NAME, THREAD_NAME);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    prctl(PR_SET_NAME, name);
    return rc;
}

bool thread_join_by(pthread_t thread, double until)
{
    while (pthread_tryjoin_np(thread, NULL)) {
        if (seconds_now() >= until)
            return false;
        usleep(1000);
    }
    return true;
}

bool thread_join_or_leave(pthread_t thread, double until, atomic_bool *left)
{
    if (thread_join_by(thread, until))
        return true;
    if (!atomic_exchange(left, true)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    return true;
}

void event_write(int event_fd)
{
    uint64_t one = 1;
    /* The counter cannot overflow within a life time; only EINTR is left. */
    while (write(event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

int fd_not_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), reason = errno;
    close(fd);
    errno = reason;
    return other;
}
