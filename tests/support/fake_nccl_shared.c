// SPDX-License-Identifier: Apache-2.0
/*
 * Where the ranks of a clique meet: memory that they share, a file without a name of the
 * process that made the id, which says where it is. The kernel frees it with the last process
 * that has it. It is kept by functions that TSan does not look into, under locks that it does
 * not know.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/fake_cuda_parts.h"
#include "tests/support/fake_nccl_parts.h"

#define CLIQUES_MAX 16 /* that have ranks in this process */
#define IDS_MAX     64 /* of this process, that ranks may still come to */

static atomic_int ids;
static volatile int locked; /* what this process has alone */

FAKE_UNSEEN void fake_lock(volatile int *l)
{
    const int self = getpid();
    for (int holder = 0; !__atomic_compare_exchange_n(l, &holder, self, false, __ATOMIC_ACQUIRE,
                                                      __ATOMIC_RELAXED);) {
        sched_yield();
        if (holder == self || !(kill(holder, 0) && errno == ESRCH))
            holder = 0;
    }
}

FAKE_UNSEEN void fake_unlock(volatile int *l)
{
    __atomic_store_n(l, 0, __ATOMIC_RELEASE);
}

FAKE_UNSEEN static bool same_id(const ncclUniqueId *a, const ncclUniqueId *b)
{
    for (size_t i = 0; i < sizeof(a->internal); i++)
        if (a->internal[i] != b->internal[i])
            return false;
    return true;
}

/* What several ranks use is not from malloc, nor from the C library's mmap, which TSan takes
 * for writes: files are mapped over this by the kernel's own calls. */
static struct clique cliques[CLIQUES_MAX];
static struct {
    ncclUniqueId id;
    int ranks; /* of this process, that have not ended; 0: free */
} joined[CLIQUES_MAX];
static int files[IDS_MAX]; /* of ids, plus 1 */
static int last_file;
static int last_joined;

FAKE_UNSEEN static bool clique_map(struct clique *q, int fd)
{
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    return (void *)syscall(SYS_mmap, q, sizeof(*q), PROT_READ | PROT_WRITE, flags, fd, 0) == q;
}

/* Memory for the ranks of a new id, which tells where it is. */
FAKE_UNSEEN bool fake_id_make(ncclUniqueId *id)
{
    int fd = (int)syscall(SYS_memfd_create, "fake NCCL", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    if (syscall(SYS_ftruncate, fd, sizeof(struct clique)))
        abort();
    fake_lock(&locked);
    last_file = (last_file + 1) % IDS_MAX;
    if (files[last_file])
        syscall(SYS_close, files[last_file] - 1);
    files[last_file] = fd + 1;
    fake_unlock(&locked);
    snprintf(id->internal, sizeof(id->internal), "/proc/%d/fd/%d of %d", (int)getpid(), fd,
             atomic_fetch_add(&ids, 1));
    return true;
}

/* The clique of an id, with one more rank of this process; NULL: its maker is gone. */
FAKE_UNSEEN static struct clique *clique_open(const ncclUniqueId *id)
{
    char path[sizeof(id->internal)];
    int i = 0;
    while (i < CLIQUES_MAX && !(joined[i].ranks && same_id(&joined[i].id, id)))
        i++;
    if (i == CLIQUES_MAX) {
        for (i = 0; i < CLIQUES_MAX && joined[last_joined].ranks; i++)
            last_joined = (last_joined + 1) % CLIQUES_MAX;
        if (i == CLIQUES_MAX)
            abort();
        i = last_joined;
        last_joined = (last_joined + 1) % CLIQUES_MAX;
        path[strcspn(memcpy(path, id->internal, sizeof(path)), " ")] = '\0';
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
        bool mapped = fd >= 0 && clique_map(&cliques[i], fd);
        if (fd >= 0)
            syscall(SYS_close, fd);
        if (!mapped)
            return NULL;
        joined[i].id = *id;
    }
    joined[i].ranks++;
    return &cliques[i];
}

/* A rank of this process has left it. What is mapped stays, for what still looks at it. */
FAKE_UNSEEN void fake_clique_leave(const struct clique *q)
{
    fake_lock(&locked);
    joined[q - cliques].ranks--;
    fake_unlock(&locked);
}

FAKE_UNSEEN struct clique *fake_clique_join(const ncclUniqueId *id, int size, int rank, int gpu,
                                            bool *gone)
{
    fake_lock(&locked);
    struct clique *q = clique_open(id);
    fake_unlock(&locked);
    *gone = !q;
    if (!q)
        return NULL;
    fake_lock(&q->locked);
    q->size = q->size ? q->size : size;
    bool fits = q->size == size && !q->gpu[rank];
    for (int r = 0; r < q->size; r++)
        fits = fits && q->gpu[r] != gpu + 1;
    if (fits)
        q->process[rank] = getpid();
    if (fits)
        q->gpu[rank] = gpu + 1;
    fake_unlock(&q->locked);
    if (!fits)
        fake_clique_leave(q);
    return fits ? q : NULL;
}

FAKE_UNSEEN static void copy_unseen(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = from[i];
}

/* One that nobody uses. */
FAKE_UNSEEN static int slot_new(struct clique *q, int number)
{
    int i = q->free;
    if (i)
        q->free = q->slots[i - 1].next;
    else if (q->used < SLOTS_MAX)
        i = ++q->used;
    else
        abort();
    struct slot *s = &q->slots[i - 1];
    s->next = s->done = 0;
    s->number = number;
    s->call[0][0] = s->call[1][0] = '\0';
    *(volatile int *)&s->state = SLOT_EMPTY;
    return i;
}

FAKE_UNSEEN struct slot *fake_slot_meet(struct clique *q, int *channel, int n, bool send,
                                        const char *call, size_t bytes, char other[CALL_MAX],
                                        size_t *theirs)
{
    fake_lock(&q->locked);
    int *link = channel;
    while (*link && q->slots[*link - 1].number != n)
        link = &q->slots[*link - 1].next;
    if (!*link)
        *link = slot_new(q, n);
    struct slot *s = &q->slots[*link - 1];
    copy_unseen(s->call[!send], call, strlen(call) + 1);
    s->bytes[!send] = bytes;
    copy_unseen(other, s->call[send], CALL_MAX);
    *theirs = s->bytes[send];
    fake_unlock(&q->locked);
    return s;
}

FAKE_UNSEEN void fake_slot_offer(struct slot *s, const void *from)
{
    s->from = from;
    s->owner = getpid();
}

FAKE_UNSEEN const void *fake_slot_from(const struct slot *s, pid_t *owner)
{
    *owner = s->owner;
    return s->from;
}

FAKE_UNSEEN void fake_slot_done(struct clique *q, int *channel, struct slot *s)
{
    fake_lock(&q->locked);
    int *link = channel, i = (int)(s - q->slots) + 1;
    if (++s->done == 2) {
        while (*link && *link != i)
            link = &q->slots[*link - 1].next;
        *link = s->next;
        s->next = q->free;
        q->free = i;
    }
    fake_unlock(&q->locked);
}

/* Nobody uses anything any more. */
FAKE_UNSEEN void fake_cliques_clear(void)
{
    for (int i = 0; i < CLIQUES_MAX; i++) {
        if (joined[i].id.internal[0] && !clique_map(&cliques[i], -1))
            abort();
        joined[i].id.internal[0] = 0;
        joined[i].ranks = 0;
    }
    for (int i = 0; i < IDS_MAX; i++)
        if (files[i])
            syscall(SYS_close, files[i] - 1);
    for (int i = 0; i < IDS_MAX; i++)
        files[i] = 0;
    last_joined = 0;
}
