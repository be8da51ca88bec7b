// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of offload/ring.h: one suite over both rings, one and several
 * files, and blocks and depths, on a real file system (/var/tmp); then what only
 * io_uring can be refused. tests/ring_core_test.c has the part without system
 * calls.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/arena.h"
#include "offload/memory.h"
#include "offload/ring.h"
#include "offload/spill.h"
#include "tests/support/allocations.h"
#include "tests/support/deny.h"
#include "tests/support/held.h"
#include "tests/support/must.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

#define MIB        ((int64_t)1 << 20)
#define FOLDER     "/var/tmp"
#define RANGES_MAX 512

enum { URING, POSIX, KINDS };

static const struct variant {
    int kind, files;
    double weight[3];
    int64_t stripe;
    int block, depth;
} variants[] = {
    {URING, 1, {0}, MIB, 0, 0}, /* these two come first: a kind is a variant */
    {POSIX, 1, {0}, MIB, 0, 0},
    {URING, 2, {1, 1}, MIB, 0, 0},
    {POSIX, 2, {1, 1}, MIB, 0, 0},
    {URING, 1, {0}, MIB, 64 << 10, 3},
    {POSIX, 1, {0}, MIB, 64 << 10, 3},
    {URING, 3, {5, 1, 2}, 96 << 10, 64 << 10, RING_DEPTH_MAX},
    {POSIX, 3, {5, 1, 2}, 96 << 10, 64 << 10, RING_DEPTH_MAX},
    {URING, 2, {1, 2}, 4 * MIB, RING_BLOCK_MAX, 1},
    {POSIX, 2, {1, 2}, 4 * MIB, RING_BLOCK_MAX, 1},
};
#define VARIANTS ((int)(sizeof(variants) / sizeof(variants[0])))

/* Files, memory, and a ring over both. */
struct bench {
    struct spill spill;
    struct arena arena;
    int event_fd;
    struct ring *ring;
};

static uint64_t pick_state;

static int64_t pick(int64_t below)
{
    return (int64_t)(random_bits(7, 7, pick_state++) % (uint64_t)below);
}

/* registered_bytes: the first of the memory. */
static int ring_make(struct bench *bench, int variant, const struct stripes *files,
                     int64_t registered_bytes, struct error *error)
{
    const struct variant *v = &variants[variant];
    const struct ring_options options = {.event_fd = bench->event_fd,
                                         .base = registered_bytes > 0 ? bench->arena.base : NULL,
                                         .bytes = registered_bytes,
                                         .files = files,
                                         .block = v->block,
                                         .depth = v->depth};
    return (v->kind == URING ? ring_uring_create : ring_posix_create)(&bench->ring, &options,
                                                                      error);
}

/* False, with the reason printed, where this machine has no such ring. */
static bool bench_open(struct bench *bench, int variant, int64_t file_bytes, int64_t memory_bytes,
                       int64_t registered_bytes)
{
    struct error error = {0};
    const struct variant *v = &variants[variant];
    struct spill_paths paths = {.count = v->files};
    for (int i = 0; i < v->files; i++) {
        strcpy(paths.path[i], FOLDER);
        paths.weight[i] = v->weight[i];
    }
    must(spill_create(&bench->spill, &paths, v->stripe, file_bytes, &error), &error);
    must(arena_create(&bench->arena, memory_bytes, 1, &error), &error);
    bench->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(bench->event_fd, 0);
    int status = ring_make(bench, variant, &bench->spill.stripes, registered_bytes, &error);
    if (status == ZERO_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", error.text);
        return false;
    }
    must(status, &error);
    ck_assert_str_eq(bench->ring->ops->name, v->kind == URING ? "uring" : "posix");
    ck_assert_int_eq(bench->ring->block, v->block ? v->block : RING_BLOCK);
    ck_assert_int_eq(bench->ring->depth, v->depth ? v->depth : RING_DEPTH);
    return true;
}

static void bench_free(struct bench *bench) /* but for the ring */
{
    spill_destroy(&bench->spill);
    arena_destroy(&bench->arena);
    close(bench->event_fd);
}

static void bench_close(struct bench *bench)
{
    bench->ring->ops->destroy(bench->ring);
    bench_free(bench);
}

static void submit(struct bench *bench)
{
    struct error error = {0};
    must(bench->ring->ops->submit(bench->ring, &error), &error);
}

static void event_wait(const struct bench *bench)
{
    struct pollfd event = {bench->event_fd, POLLIN, 0};
    ck_assert_int_eq(poll(&event, 1, 20000), 1); /* 20 s: lost */
    uint64_t count;
    ck_assert_int_eq(read(bench->event_fd, &count, sizeof(count)), sizeof(count));
}

/* Waits for count requests, each of which may come once. */
static void reap(struct bench *bench, int count)
{
    static struct ring_request *seen[RING_REQUESTS_MAX];
    int total = 0;
    while (total < count) {
        event_wait(bench);
        int taken;
        do {
            taken = bench->ring->ops->reap(bench->ring, seen + total, 3);
            total += taken;
        } while (taken > 0 && total + 3 <= RING_REQUESTS_MAX);
    }
    ck_assert_int_eq(total, count);
    for (int i = 0; i < total; i++) {
        ck_assert_int_eq(seen[i]->inflight, 0);
        for (int j = 0; j < i; j++)
            ck_assert_ptr_ne(seen[i], seen[j]);
        if (seen[i]->error.status == ZERO_OK)
            ck_assert_int_eq(seen[i]->completed, seen[i]->bytes);
    }
    struct ring_request *more;
    ck_assert_int_eq(bench->ring->ops->reap(bench->ring, &more, 1), 0);
}

static struct ring_request request_of(bool write, char *buffer, int64_t bytes, int64_t offset)
{
    return (struct ring_request){
        .write = write, .buffer = buffer, .bytes = bytes, .offset = offset};
}

static void transfer(struct bench *bench, struct ring_request *request)
{
    bench->ring->ops->queue(bench->ring, request);
    submit(bench);
    reap(bench, 1);
}

/* ------------------------------------------------------------- every ring */

/* Cuts [0, bytes) at random multiples of 4 KiB, into requests in random order. */
static int ranges_cut(bool write, char *memory, int64_t bytes, struct ring_request *requests)
{
    int count = 0;
    for (int64_t at = 0; at < bytes; count++) {
        static const int64_t scales[] = {SPILL_ALIGN, 64 << 10, MIB, 3 * MIB};
        int64_t size = (1 + pick(scales[pick(4)] / SPILL_ALIGN)) * SPILL_ALIGN;
        if (size > bytes - at || count == RANGES_MAX - 1)
            size = bytes - at;
        requests[count] = request_of(write, memory + at, size, at);
        at += size;
    }
    for (int i = count - 1; i > 0; i--) {
        int other = (int)pick(i + 1);
        struct ring_request swap = requests[i];
        requests[i] = requests[other];
        requests[other] = swap;
    }
    return count;
}

static void ranges_move(struct bench *bench, struct ring_request *requests, int count)
{
    for (int i = 0; i < count; i++) {
        bench->ring->ops->queue(bench->ring, &requests[i]);
        if (pick(8) == 0)
            submit(bench);
    }
    submit(bench);
    reap(bench, count);
    for (int i = 0; i < count; i++)
        ck_assert_msg(requests[i].error.status == ZERO_OK, "%s", requests[i].error.text);
}

/* registered: percent of the memory. */
static void random_ranges(int variant, int registered)
{
    const int64_t bytes = 24 * MIB;
    struct bench bench;
    if (!bench_open(&bench, variant, bytes, 2 * bytes, 2 * bytes * registered / 100))
        return;
    ck_assert(registered > 0 || !bench.ring->registered);
    static struct ring_request requests[RANGES_MAX];
    char *out = bench.arena.base, *in = out + bytes;
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < bytes / 8; i++)
            ((uint64_t *)out)[i] = random_bits((uint64_t)round, 1, (uint64_t)i);
        memset(in, 0, (size_t)bytes);
        ranges_move(&bench, requests, ranges_cut(true, out, bytes, requests));
        ranges_move(&bench, requests, ranges_cut(false, in, bytes, requests));
        ck_assert_int_eq(memcmp(out, in, (size_t)bytes), 0);
    }
    bench_close(&bench);
}

START_TEST(ranges_registered)
{
    random_ranges(_i, 100);
}
END_TEST

START_TEST(ranges_partly_registered)
{
    random_ranges(_i, 30);
}
END_TEST

START_TEST(ranges_unregistered)
{
    random_ranges(_i, 0);
}
END_TEST

/* More blocks than the depth, beside a small request that must not wait for
 * another submit. */
START_TEST(more_than_depth)
{
    const int64_t bytes = (2 * RING_DEPTH + 3) * MIB + SPILL_ALIGN;
    struct bench bench;
    if (!bench_open(&bench, _i, bytes + SPILL_ALIGN, 2 * bytes, 2 * bytes))
        return;
    memset(bench.arena.base, 0x5a, (size_t)bytes);
    struct ring_request big = request_of(true, bench.arena.base, bytes, 0);
    struct ring_request small = request_of(true, bench.arena.base, SPILL_ALIGN, bytes);
    bench.ring->ops->queue(bench.ring, &big);
    bench.ring->ops->queue(bench.ring, &small);
    submit(&bench);
    reap(&bench, 2);
    ck_assert_int_eq(big.error.status, ZERO_OK);
    ck_assert_int_eq(small.error.status, ZERO_OK);
    big = request_of(false, bench.arena.base + bytes, bytes, SPILL_ALIGN);
    transfer(&bench, &big);
    ck_assert_msg(big.error.status == ZERO_OK, "%s", big.error.text);
    ck_assert_int_eq(memcmp(bench.arena.base, bench.arena.base + bytes, (size_t)bytes), 0);
    bench_close(&bench);
}
END_TEST

/* The sentence names the request and the place where the file ends, also when
 * that is off the alignment. */
START_TEST(end_of_file)
{
    struct bench bench;
    if (!bench_open(&bench, _i, 4 * MIB, 4 * MIB, 4 * MIB))
        return;
    static const int64_t ends[] = {3 * MIB - SPILL_ALIGN, 3 * MIB - SPILL_ALIGN - 1000, MIB};
    static const char *const stops[] = {"stopped at offset 3141632: the file ends there",
                                        "stopped at offset 3140632: the file ends there",
                                        "stopped at offset 2097152: the file ends there"};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ftruncate(bench.spill.stripes.fd[0], ends[i]), 0);
        struct ring_request r = request_of(false, bench.arena.base, MIB, 2 * MIB);
        transfer(&bench, &r);
        ck_assert_int_eq(r.error.status, ZERO_ERR_IO);
        ck_assert_ptr_nonnull(strstr(r.error.text, "read of 1048576 bytes at offset 2097152"));
        ck_assert_msg(strstr(r.error.text, stops[i]) != NULL, "%s", r.error.text);
    }
    bench_close(&bench);
}
END_TEST

/* The same in one of several files: the request names which, and where in it. */
START_TEST(end_of_one_file)
{
    struct bench bench;
    if (!bench_open(&bench, _i, 16 * MIB, 16 * MIB, 16 * MIB))
        return;
    const struct stripes *s = &bench.spill.stripes;
    for (int file = 0; file < s->files; file++) {
        int64_t bytes = stripes_file_bytes(s, file, 16 * MIB), end = bytes - SPILL_ALIGN;
        struct ring_request r = request_of(false, bench.arena.base, 16 * MIB, 0);
        transfer(&bench, &r);
        ck_assert_msg(r.error.status == ZERO_OK, "%s", r.error.text);
        ck_assert_int_eq(ftruncate(s->fd[file], end), 0);
        transfer(&bench, &r);
        ck_assert_int_eq(r.error.status, ZERO_ERR_IO);
        ck_assert_int_eq(r.error_file, file);
        char stop[64];
        snprintf(stop, sizeof(stop), "(%lld of its file): the file ends there", (long long)end);
        ck_assert_msg(s->files == 1 || strstr(r.error.text, stop) != NULL, "%s", r.error.text);
        ck_assert_int_eq(ftruncate(s->fd[file], bytes), 0);
    }
    bench_close(&bench);
}
END_TEST

/* One request fails, its neighbours do not, and the ring goes on. */
START_TEST(read_only_file)
{
    struct bench bench;
    if (!bench_open(&bench, _i, 16 * MIB, 16 * MIB, 16 * MIB))
        return;
    struct error error = {0};
    struct stripes read_only = bench.spill.stripes;
    for (int i = 0; i < read_only.files; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", bench.spill.stripes.fd[i]);
        read_only.fd[i] = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(read_only.fd[i], 0);
    }
    bench.ring->ops->destroy(bench.ring);
    must(ring_make(&bench, _i, &read_only, 16 * MIB, &error), &error);
    struct ring_request bad = request_of(true, bench.arena.base, 12 * MIB, 4 * MIB);
    struct ring_request good = request_of(false, bench.arena.base, 2 * MIB, 0);
    bench.ring->ops->queue(bench.ring, &bad);
    bench.ring->ops->queue(bench.ring, &good);
    submit(&bench);
    reap(&bench, 2);
    ck_assert_int_eq(bad.error.status, ZERO_ERR_IO);
    ck_assert_ptr_nonnull(strstr(bad.error.text, "write of 12582912 bytes at offset 4194304"));
    ck_assert_ptr_nonnull(strstr(bad.error.text, strerror(EBADF)));
    ck_assert_int_eq(bad.completed, 0);
    ck_assert_msg(good.error.status == ZERO_OK, "%s", good.error.text);
    transfer(&bench, &good);
    ck_assert_int_eq(good.error.status, ZERO_OK);
    bench_close(&bench);
    for (int i = 0; i < read_only.files; i++)
        close(read_only.fd[i]);
}
END_TEST

/* The limit lies within a block, and off the alignment, where files say that
 * nothing was written or EINVAL: a short write, then EFBIG. The pool's threads
 * keep SIGXFSZ from the program, whose default for it is death. */
START_TEST(file_size_limit)
{
    static const rlim_t off[] = {0, 1024, 1};
    struct bench bench;
    if (!bench_open(&bench, _i % KINDS, 4 * MIB, 4 * MIB, 4 * MIB))
        return;
    if (_i % KINDS == URING) /* kernels before 6.17 raise it in the submitting thread */
        signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {3 * MIB / 2 + off[_i / KINDS], RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct ring_request r = request_of(true, bench.arena.base, MIB, MIB);
    transfer(&bench, &r);
    ck_assert_int_eq(r.error.status, ZERO_ERR_IO);
    bool odd = limit.rlim_cur % 512 != 0; /* then nothing below it is written either */
    ck_assert_msg(strstr(r.error.text, odd ? "at offset 1048576:" : "at offset 157") != NULL, "%s",
                  r.error.text);
    ck_assert_msg(strstr(r.error.text, strerror(EFBIG)) != NULL, "%s", r.error.text);
    ck_assert_int_eq(r.completed, odd ? 0 : MIB / 2);
    r = request_of(true, bench.arena.base, MIB, 0);
    transfer(&bench, &r);
    ck_assert_int_eq(r.error.status, ZERO_OK);
    bench_close(&bench);
}
END_TEST

static struct ring_request whole[64];

static void queue_whole(struct bench *bench, bool write)
{
    for (int i = 0; i < 64; i++) {
        whole[i] = request_of(write, bench->arena.base + i * MIB, MIB, i * MIB);
        bench->ring->ops->queue(bench->ring, &whole[i]);
    }
}

/* Nothing writes to the memory after destroy, which may be another's then. */
START_TEST(destroy_with_work)
{
    for (int submitted = 0; submitted < 2; submitted++) {
        struct bench bench;
        if (!bench_open(&bench, _i, 64 * MIB, 64 * MIB, 64 * MIB))
            return;
        queue_whole(&bench, true); /* zeros: what was never written is read in no time */
        submit(&bench);
        reap(&bench, 64);
        queue_whole(&bench, false);
        if (submitted)
            submit(&bench);
        bench.ring->ops->destroy(bench.ring);
        memset(bench.arena.base, 0x5a, 64 * MIB);
        usleep(50000);
        ck_assert_int_eq(*bench.arena.base, 0x5a);
        ck_assert_int_eq(memcmp(bench.arena.base, bench.arena.base + 1, 64 * MIB - 1), 0);
        bench_free(&bench);
    }
}
END_TEST

/* KiB that are locked for devices. */
static int locked(void)
{
    char line[128];
    int kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        sscanf(line, "VmPin: %d", &kib);
    fclose(file);
    return kib;
}

/* What a ring has held is free when it is destroyed, not some time later: here a pipe, whose
 * reader learns of it. */
START_TEST(destroy_lets_go)
{
    struct bench bench;
    if (!bench_open(&bench, _i, MIB, 4 * MIB, 4 * MIB))
        return;
    int ends[2], before = locked() - (bench.ring->registered ? (int)(4 * MIB >> 10) : 0);
    bench_close(&bench);
    ck_assert_int_eq(locked(), before);
    ck_assert_int_eq(pipe(ends), 0);
    struct stripes files = {.files = 1, .fd = {ends[1]}};
    struct error error = {0};
    struct ring *ring;
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct ring_options options = {.event_fd = event_fd, .files = &files};
    must((_i == URING ? ring_uring_create : ring_posix_create)(&ring, &options, &error), &error);
    ring->ops->destroy(ring);
    close(ends[1]);
    struct pollfd closed = {.fd = ends[0]};
    ck_assert_int_eq(poll(&closed, 1, 0), 1);
    ck_assert_int_eq(closed.revents, POLLHUP);
    close(ends[0]);
    close(event_fd);
}
END_TEST

START_TEST(nothing_to_do)
{
    struct bench bench;
    if (!bench_open(&bench, _i, MIB, MIB, MIB))
        return;
    struct ring_request *done;
    ck_assert_int_eq(bench.ring->ops->reap(bench.ring, &done, 1), 0);
    submit(&bench);
    ck_assert_int_eq(bench.ring->ops->reap(bench.ring, &done, 1), 0);
    struct ring_request r = request_of(false, bench.arena.base, MIB, 0);
    bench.ring->ops->queue(bench.ring, &r); /* not before submit */
    ck_assert_int_eq(r.submitted, 0);
    bench_close(&bench);
}
END_TEST

/* The pool needs nobody between submit and the end of a request: one event, and
 * then all of its blocks are moved. */
START_TEST(posix_works_alone)
{
    const int64_t bytes = (3 * RING_DEPTH + 1) * MIB;
    struct bench bench;
    if (!bench_open(&bench, POSIX, bytes, bytes, 0))
        return;
    struct ring_request r = request_of(true, bench.arena.base, bytes, 0), *done = NULL;
    bench.ring->ops->queue(bench.ring, &r);
    submit(&bench);
    event_wait(&bench);
    ck_assert_int_eq(bench.ring->ops->reap(bench.ring, &done, 1), 1);
    ck_assert_ptr_eq(done, &r);
    ck_assert_int_eq(r.completed, bytes);
    bench_close(&bench);
}
END_TEST

/* ------------------------------------------------ refusals of io_uring alone */

/* The ring itself, and the eventfd that it is to tell: nothing stays behind. */
START_TEST(uring_refused)
{
    enum { EVENTFD = 4 }; /* IORING_REGISTER_EVENTFD */
    ck_assert(_i ? deny_call(SYS_io_uring_register, 1, ~0u, EVENTFD, EPERM)
                 : deny_call(SYS_io_uring_setup, 0, 0, 0, EPERM));
    const struct stripes files = {.files = 1, .fd = {1}};
    const struct ring_options options = {.event_fd = 1, .files = &files};
    struct error error = {0};
    struct ring *ring;
    struct held before = held_now();
    ck_assert_int_eq(ring_uring_create(&ring, &options, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_ptr_null(ring);
    held_expect(&before, "a ring that was refused");
#ifdef HAVE_URING
    ck_assert_ptr_nonnull(strstr(error.text, strerror(EPERM)));
#endif
}
END_TEST

#ifdef HAVE_URING
/* CAP_IPC_LOCK, of which the kernel asks in the first namespace of users; others have
 * RLIMIT_MEMLOCK. */
static bool locks_what_it_wants(void)
{
    unsigned long long effective = 0, first = 1, outside = 1, count = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "re"), *map = fopen("/proc/self/uid_map", "re");
    while (status && fgets(line, sizeof(line), status))
        sscanf(line, "CapEff: %llx", &effective);
    if (map && fgets(line, sizeof(line), map))
        sscanf(line, "%llu %llu %llu", &first, &outside, &count);
    if (status)
        fclose(status);
    if (map)
        fclose(map);
    return effective >> 14 & 1 && first == 0 && outside == 0 && count == UINT32_MAX;
}

START_TEST(uring_registers)
{
    struct bench bench;
    if (!bench_open(&bench, URING, 4 * MIB, 4 * MIB, 4 * MIB))
        return;
    if (locks_what_it_wants())
        ck_assert(bench.ring->registered);
    else
        puts("skipped: that buffers are registered: this user may not lock memory");
    bench_close(&bench);
}
END_TEST

START_TEST(uring_registration_refused)
{
    ck_assert(deny_call(SYS_io_uring_register, 1, ~0u, 0, ENOMEM)); /* IORING_REGISTER_BUFFERS */
    struct bench bench;
    if (!bench_open(&bench, URING, 4 * MIB, 4 * MIB, 4 * MIB))
        return;
    ck_assert(!bench.ring->registered);
    bench_close(&bench);
    random_ranges(URING, 100);
}
END_TEST

/* Linux before 5.6, which does not say either what else it can. */
START_TEST(uring_registration_needed)
{
    ck_assert(deny_call(SYS_io_uring_register, 1, ~0u, 0, ENOMEM)); /* IORING_REGISTER_BUFFERS */
    ck_assert(deny_call(SYS_io_uring_register, 1, ~0u, 8, EINVAL)); /* IORING_REGISTER_PROBE */
    struct error error = {0};
    struct ring *ring;
    struct arena arena;
    must(arena_create(&arena, 4 * MIB, 1, &error), &error);
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct stripes files = {.files = 1, .fd = {1}};
    const struct ring_options options = {
        .event_fd = event_fd, .base = arena.base, .bytes = 4 * MIB, .files = &files};
    ck_assert_int_eq(ring_uring_create(&ring, &options, &error), ZERO_ERR_UNSUPPORTED);
    ck_assert_ptr_null(ring);
    close(event_fd);
    arena_destroy(&arena);
    if (!strstr(error.text, "refuses io_uring"))
        ck_assert_ptr_nonnull(strstr(error.text, " needs 4194304 bytes of locked memory. "));
}
END_TEST

/* The kernel registers at most 1 GiB at once: a buffer over that edge moves too. */
START_TEST(uring_piece_edge)
{
    const int64_t edge = 1024 * MIB;
    char source[64];
    if (memory_available("", source, sizeof(source)) < 3 * edge) {
        printf("skipped: less than 3 GiB of memory are available\n");
        return;
    }
    struct bench bench;
    if (!bench_open(&bench, URING, 8 * MIB, edge + 4 * MIB, edge + 4 * MIB))
        return;
    char *out = bench.arena.base + edge - SPILL_ALIGN, *in = bench.arena.base;
    for (int i = 0; i < 4 * MIB; i++)
        out[i] = (char)(i % 251);
    struct ring_request r = request_of(true, out, 4 * MIB, 0);
    transfer(&bench, &r);
    ck_assert_msg(r.error.status == ZERO_OK, "%s", r.error.text);
    r = request_of(false, in, 4 * MIB, 0);
    transfer(&bench, &r);
    ck_assert_int_eq(memcmp(out, in, 4 * MIB), 0);
    bench_close(&bench);
}
END_TEST

/* Linux before 5.6 has registered more than it takes as one piece. */
START_TEST(uring_pieces_need_reads_of_any_memory)
{
    const int64_t bytes = 1024 * MIB + 4 * MIB;
    char source[64];
    if (memory_available("", source, sizeof(source)) < 3 * bytes) {
        printf("skipped: less than 3 GiB of memory are available\n");
        return;
    }
    ck_assert(deny_call(SYS_io_uring_register, 1, ~0u, 8, EINVAL)); /* IORING_REGISTER_PROBE */
    struct error error = {0};
    struct ring *ring;
    struct arena arena;
    must(arena_create(&arena, bytes, 1, &error), &error);
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct stripes files = {.files = 1, .fd = {1}};
    const struct ring_options options = {
        .event_fd = event_fd, .base = arena.base, .bytes = bytes, .files = &files};
    ck_assert_int_eq(ring_uring_create(&ring, &options, &error), ZERO_ERR_UNSUPPORTED);
    close(event_fd);
    arena_destroy(&arena);
    if (!strstr(error.text, "refuses io_uring") && !strstr(error.text, "of locked memory"))
        ck_assert_ptr_nonnull(strstr(error.text,
                                     "io_uring moves 1 GiB of memory at most, and slots "
                                     "take 1077936128 bytes. "));
}
END_TEST

/* The kernel takes some, or none, then nothing any more: all requests come back,
 * the later ones with its reason. */
START_TEST(uring_breaks)
{
    struct bench bench;
    if (!bench_open(&bench, URING, 64 * MIB, 64 * MIB, 64 * MIB))
        return;
    static struct ring_request requests[40];
    for (int i = 0; i < 40; i++)
        requests[i] = request_of(true, bench.arena.base + i * MIB, MIB, i * MIB);
    for (int i = 0; i < _i; i++)
        bench.ring->ops->queue(bench.ring, &requests[i]);
    submit(&bench);
    ck_assert(deny_call(SYS_io_uring_enter, 0, 0, 0, ENXIO));
    for (int i = _i; i < 40; i++)
        bench.ring->ops->queue(bench.ring, &requests[i]);
    struct error error = {0};
    ck_assert_int_eq(bench.ring->ops->submit(bench.ring, &error), ZERO_ERR_IO);
    ck_assert_ptr_nonnull(strstr(error.text, strerror(ENXIO)));
    reap(&bench, 40);
    for (int i = 0; i < _i; i++)
        ck_assert_int_eq(requests[i].error.status, ZERO_OK);
    for (int i = _i; i < 40; i++)
        ck_assert_ptr_nonnull(strstr(requests[i].error.text, strerror(ENXIO)));
    bench_close(&bench);
}
END_TEST

/* EAGAIN with nothing under way: the event asks the caller to come back. */
START_TEST(uring_busy)
{
    struct bench bench;
    if (!bench_open(&bench, URING, 4 * MIB, 4 * MIB, 4 * MIB))
        return;
    ck_assert(deny_call(SYS_io_uring_enter, 0, 0, 0, EAGAIN));
    struct ring_request r = request_of(true, bench.arena.base, MIB, 0);
    bench.ring->ops->queue(bench.ring, &r);
    submit(&bench);
    for (int i = 0; i < 3; i++) {
        event_wait(&bench);
        struct ring_request *done;
        ck_assert_int_eq(bench.ring->ops->reap(bench.ring, &done, 1), 0);
    }
    bench_close(&bench);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("ring");
    TCase *rings = tcase_create("rings");
    tcase_set_timeout(rings, 120);
    tcase_add_loop_test(rings, ranges_registered, 0, VARIANTS);
    tcase_add_loop_test(rings, ranges_partly_registered, 0, VARIANTS);
    tcase_add_loop_test(rings, ranges_unregistered, 0, VARIANTS);
    tcase_add_loop_test(rings, more_than_depth, 0, VARIANTS);
    tcase_add_loop_test(rings, end_of_file, 0, KINDS);
    tcase_add_loop_test(rings, end_of_one_file, 0, VARIANTS);
    tcase_add_loop_test(rings, read_only_file, 0, VARIANTS);
    tcase_add_loop_test(rings, file_size_limit, 0, 3 * KINDS);
    tcase_add_loop_test(rings, destroy_with_work, 0, VARIANTS);
    tcase_add_loop_test(rings, destroy_lets_go, 0, KINDS);
    tcase_add_loop_test(rings, nothing_to_do, 0, VARIANTS);
    tcase_add_test(rings, posix_works_alone);
    suite_add_tcase(suite, rings);

    TCase *uring = tcase_create("uring");
    tcase_set_timeout(uring, 120);
    tcase_add_loop_test(uring, uring_refused, 0, 2);
#ifdef HAVE_URING
    tcase_add_test(uring, uring_registers);
    tcase_add_test(uring, uring_registration_refused);
    tcase_add_test(uring, uring_registration_needed);
    tcase_add_test(uring, uring_pieces_need_reads_of_any_memory);
    tcase_add_test(uring, uring_piece_edge);
    tcase_add_loop_test(uring, uring_breaks, 0, 2);
    tcase_add_test(uring, uring_busy);
#endif
    suite_add_tcase(suite, uring);
    return suite_run_all(suite);
}
