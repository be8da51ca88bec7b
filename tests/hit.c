// SPDX-License-Identifier: Apache-2.0
/* Preloaded into gpt2, a rank sends itself a signal at a call of its own, which a
 * shell that polls could not do: HIT='RANK FUNCTION N SIGNAL', at its Nth call.
 * The functions are those that are defined here. With SLOW='RANK FUNCTION N MILLISECONDS' all its
 * calls of pread or pwrite from the Nth on take so long. tests/dying.sh uses it. */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Before the call: a process that is stopped here has not made it. */
static void come_to(const char *function)
{
    static atomic_int calls;
    char wanted[32];
    int rank, n, number;
    const char *hit = getenv("HIT"), *mine = getenv("OMPI_COMM_WORLD_RANK");
    if (!hit || !mine || sscanf(hit, "%d %31s %d %d", &rank, wanted, &n, &number) != 4)
        return;
    if (rank == atoi(mine) && !strcmp(wanted, function) && atomic_fetch_add(&calls, 1) + 1 == n)
        kill(getpid(), number);
}

/* A disk that is slow from then on. */
static void be_slow(const char *function)
{
    static atomic_int calls;
    char wanted[32];
    int rank, n, milliseconds;
    const char *slow = getenv("SLOW"), *mine = getenv("OMPI_COMM_WORLD_RANK");
    if (!slow || !mine || sscanf(slow, "%d %31s %d %d", &rank, wanted, &n, &milliseconds) != 4)
        return;
    if (rank == atoi(mine) && !strcmp(wanted, function) && atomic_fetch_add(&calls, 1) + 1 >= n)
        usleep((useconds_t)milliseconds * 1000);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    come_to("MPI_Init_thread");
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    come_to("MPI_Comm_dup");
    return PMPI_Comm_dup(comm, copy);
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    come_to("MPI_Isend");
    return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

/* The verdict, means and the digest. */
int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    come_to("MPI_Iallreduce");
    return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    come_to("MPI_Comm_free");
    return PMPI_Comm_free(comm);
}

int MPI_Finalize(void)
{
    come_to("MPI_Finalize");
    return PMPI_Finalize();
}

/* Of token files, and of the ring posix: updates. */
__attribute__((visibility("default"))) ssize_t pread(int fd, void *buffer, size_t bytes,
                                                     off_t offset)
{
    ssize_t (*next)(int, void *, size_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "pread");
    come_to("pread");
    be_slow("pread");
    return next(fd, buffer, bytes, offset);
}

/* Of the ring posix: initial values, then updates. */
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *buffer, size_t bytes,
                                                      off_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "pwrite");
    come_to("pwrite");
    be_slow("pwrite");
    return next(fd, buffer, bytes, offset);
}
