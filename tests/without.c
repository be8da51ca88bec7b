// SPDX-License-Identifier: Apache-2.0
/* Runs a program without some system calls, as a site's rules or a poor file
 * system would: without CALL[,CALL...] PROGRAM [ARGUMENT...]. CALL is one of the
 * names below. Status 126: the kernel has no seccomp. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/deny.h"

static const struct {
    const char *name;
    long number;
    int argument;
    uint32_t mask; /* of the argument, all set: denied. 0: always */
    int errnum;
} calls[] = {
    {"io_uring", SYS_io_uring_setup, 0, 0, EPERM},
    {"fallocate", SYS_fallocate, 0, 0, EOPNOTSUPP},
#ifdef SYS_arch_prctl
    {"amx", SYS_arch_prctl, 0, 0x1023, EINVAL}, /* the question for its registers */
#endif
    {"tmpfile", SYS_openat, 2, O_TMPFILE, EOPNOTSUPP},
};

static int deny(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0)
            return deny_call(calls[i].number, calls[i].argument, calls[i].mask, calls[i].mask,
                             calls[i].errnum)
                       ? 0
                       : 126;
    fprintf(stderr, "without: there is no call %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "without CALL[,CALL...] PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    for (char *name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
        int status = deny(name);
        if (status != 0)
            return status;
    }
    execvp(argv[2], argv + 2);
    perror("without");
    return 127;
}
