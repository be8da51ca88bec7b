// SPDX-License-Identifier: Apache-2.0
/* Versions of what the build was made with, and whether the kernel lets this
 * process have an io_uring: tried, because no setting tells it all. */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif
#ifdef HAVE_XXHASH
#include <xxhash.h>
#endif

#include "examples/zero/info.h"
#include "include/zero.h"

static void mpi_print(void)
{
#ifdef HAVE_MPI
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) /* allowed before MPI_Init */
        snprintf(text, sizeof(text), "there, but it does not tell its version");
    text[strcspn(text, "\n,")] = 0;
    info_fact("MPI", "%s", text);
#else
    info_fact("MPI", "not in this build (libopenmpi-dev): several ranks need a GPU each");
#endif
}

/* The file that the running program has mapped tells the version; older
 * libraries have no call for it. */
static void liburing_print(void)
{
#ifdef HAVE_URING
    char line[1024], *name = NULL;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && !name && fgets(line, sizeof(line), f))
        name = strstr(line, "/liburing.so");
    if (f)
        fclose(f);
    if (name)
        name[strcspn(name, "\n")] = 0;
    info_fact("liburing", "%s", name ? name + 1 : "linked statically");
#else
    info_fact("liburing", "not in this build: files go through pread and pwrite (liburing-dev)");
#endif
}

static void xxhash_print(void)
{
#ifdef HAVE_XXHASH
    info_fact("xxHash", "%d.%d.%d", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
#else
    info_fact("xxHash", "not in this build: what is read from files is not checked "
                        "(libxxhash-dev)");
#endif
}

static void io_uring_print(void)
{
    static const char *const meanings[] = {"allowed to all", "refused to unprivileged processes",
                                           "refused to all"};
    char line[64];
    if (!info_line("/proc/sys/kernel/io_uring_disabled", line, sizeof(line)))
        info_fact("io_uring_disabled", "this kernel has no such setting");
    else if (line[0] >= '0' && line[0] <= '2' && !line[1])
        info_fact("io_uring_disabled", "%s: io_uring is %s", line, meanings[line[0] - '0']);
    else
        info_fact("io_uring_disabled", "%s", line);
    struct io_uring_params params = {0};
    long fd = syscall(SYS_io_uring_setup, 8, &params);
    if (fd < 0) {
        info_fact("io_uring", "refused: %s; the ring posix is used", strerror(errno));
        return;
    }
    info_fact("io_uring", "works (a ring was set up; features 0x%x)", (unsigned)params.features);
    close((int)fd);
}

void info_versions(void)
{
    struct utsname name;
    puts("build");
    info_fact("libzero", "%s", ZERO_VERSION);
#ifdef __clang__
    info_fact("compiler", "%s", __VERSION__);
#else
    info_fact("compiler", "gcc %s", __VERSION__);
#endif
    mpi_print();
    liburing_print();
    xxhash_print();
    puts("kernel");
    if (uname(&name) == 0) {
        info_fact("host", "%s", name.nodename);
        info_fact("kernel", "%s %s %s", name.sysname, name.release, name.machine);
    }
    io_uring_print();
}
