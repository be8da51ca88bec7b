// SPDX-License-Identifier: Apache-2.0
/*
 * I/O is the formula, on a real disk: what a step reads and writes is computed
 * here from tensor sizes and places alone (not from the plan), and must be what
 * the engine counts, exactly, and what the kernel accounts this process for,
 * within 64 KiB a step. The formula, in bytes an element: optimizer state that
 * is not in memory 12 read and 12 written (split: 10 and 10); parameters on NVMe
 * 2 written, 2 a gather, and with split state 2 more read; an fp32 model whose
 * master is the parameter 4 a gather and no more. Arrays of a chunk are padded
 * to 4 KiB.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "include/zero.h"
#include "tests/support/ranks.h"
#include "tests/support/suite.h"

#define UNITS   4
#define STEPS   6
#define SETTLED 2 /* the kernel's account is taken from here on */
#define CHUNK   131072
#define SLACK   65536 /* a step */

static const int64_t sizes[UNITS] = {300001, 1200000, 700, 500123};

struct row {
    struct zero_config config;
    int ranks;
};

static struct row row_of(int i)
{
    static const struct zero_config configs[] = {
        {.stage = 3, .offload = ZERO_NVME},
        {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16},
        {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
        {.stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16, .host_bytes = 4000000},
        {.stage = 3, .offload = ZERO_NVME, .host_bytes = 4000000},
        {.stage = 1, .offload = ZERO_NVME, .dtype = ZERO_BF16},
        {.stage = 0, .offload = ZERO_NVME, .dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
        {.stage = 3, .offload_param = ZERO_NVME, .dtype = ZERO_FP16},
        {.stage = 3, .offload_param = ZERO_NVME, .dtype = ZERO_BF16, .state = ZERO_STATE_SPLIT},
        {.stage = 3, .offload = ZERO_NVME, .offload_param = ZERO_HOST, .dtype = ZERO_BF16},
        {.stage = 2, .offload_optimizer = ZERO_NVME, .host_bytes = (int64_t)1 << 40},
    };
    struct row r = {configs[i / 2], 1 + i % 2};
    r.config.ring = i % 2 ? ZERO_RING_POSIX : ZERO_RING_AUTO;
    return r;
}
#define ROWS 22

/* ----------------------------------------------------------------- the formula */

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Elements of unit u that a rank holds at stages 1 to 3; at stage 0 it holds all
 * ranks'. */
static int64_t held(const struct row *r, int u)
{
    int64_t padded = up(sizes[u], 64 * r->ranks);
    return r->config.stage == 0 ? padded : padded / r->ranks;
}

static int64_t held_by_all(const struct row *r)
{
    int64_t n = 0;
    for (int u = 0; u < UNITS; u++)
        n += held(r, u);
    return n;
}

static bool state_in_file(const struct row *r)
{
    return r->config.offload == ZERO_NVME || r->config.offload_optimizer == ZERO_NVME;
}

static bool params_in_file(const struct row *r)
{
    enum zero_place own = r->config.offload_param;
    return r->config.stage == 3 && (own ? own == ZERO_NVME : r->config.offload == ZERO_NVME);
}

static bool split(const struct row *r)
{
    return r->config.state == ZERO_STATE_SPLIT;
}

/* The master in the file is the parameter. */
static bool shared(const struct row *r)
{
    return r->config.dtype == ZERO_FP32 && state_in_file(r) && params_in_file(r);
}

/* Whether a chunk's state stays in memory: as many do as fit, spread evenly from the first on. */
static bool in_memory(const struct row *r, int64_t chunk)
{
    int64_t bytes = split(r) ? 10 : 12, all = held_by_all(r);
    int64_t fit = r->config.host_bytes / (bytes * CHUNK), chunks = (all + CHUNK - 1) / CHUNK;
    if (r->config.host_bytes >= bytes * all || fit > chunks)
        return true;
    return up(chunk * fit, chunks) < up((chunk + 1) * fit, chunks);
}

/* Arrays of all chunks, or of those in the file, with so many bytes an element. */
static int64_t arrays(const struct row *r, bool every, int64_t bytes)
{
    int64_t sum = 0, all = held_by_all(r);
    for (int64_t at = 0; at < all; at += CHUNK)
        if (every || !in_memory(r, at / CHUNK))
            sum += up((all - at < CHUNK ? all - at : CHUNK) * bytes, 4096);
    return sum;
}

static int64_t state_bytes(const struct row *r)
{
    return state_in_file(r) ? arrays(r, false, split(r) ? 2 : 4) + 2 * arrays(r, false, 4) : 0;
}

/* What a gather of unit u reads: of each chunk it lies in the 4 KiB blocks. */
static int64_t gather_bytes(const struct row *r, int u)
{
    int64_t begin = 0, sum = 0, element = r->config.dtype == ZERO_FP32 ? 4 : 2;
    if (!params_in_file(r))
        return 0;
    for (int before = 0; before < u; before++)
        begin += held(r, before);
    int64_t end = begin + held(r, u);
    for (int64_t at = begin, to; at < end; at = to) {
        int64_t chunk = at / CHUNK;
        to = (chunk + 1) * CHUNK < end ? (chunk + 1) * CHUNK : end;
        if (shared(r) && in_memory(r, chunk))
            continue;
        int64_t first = (at - chunk * CHUNK) * element, last = (to - chunk * CHUNK) * element;
        sum += up(last, 4096) - first / 4096 * 4096;
    }
    return sum;
}

static struct zero_io formula(const struct row *r)
{
    int64_t state = state_bytes(r),
            params = params_in_file(r) && !shared(r) ? arrays(r, true, 2) : 0;
    struct zero_io io = {.state_read = state + (split(r) ? params : 0),
                         .state_written = state,
                         .param_written = params};
    /* One slot: forward gathers each unit, backward all but the last, which is there. */
    for (int u = 0; u < UNITS; u++)
        io.param_read += gather_bytes(r, u) * (u == UNITS - 1 ? 1 : 2);
    return io;
}

/* ---------------------------------------------------------------------- a run */

/* What the kernel has this process down for: bytes read and written. */
static void account(int64_t bytes[2])
{
    char text[1024] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *in = strstr(text, "\nread_bytes:"), *out = strstr(text, "\nwrite_bytes:");
    if (n <= 0 || !in || !out)
        ck_abort_msg("/proc/self/io: %s", text);
    bytes[0] = strtoll(in + 12, NULL, 10);
    bytes[1] = strtoll(out + 13, NULL, 10);
}

static bool same(const struct zero_io *a, const struct zero_io *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* The last step's transfers are all counted: half a minute is far more than they take. */
static struct zero_io last_step(struct zero *z, const struct zero_io *expected)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    struct zero_stats s;
    for (int i = 0; i < 3000; i++) {
        zero_stats(z, &s);
        if (same(&s.step_io[1], expected))
            break;
        nanosleep(&nap, NULL);
    }
    nanosleep(&nap, NULL); /* were there more, some would come now */
    zero_stats(z, &s);
    return s.step_io[1];
}

static int one_step(struct zero *z)
{
    int status = 0;
    for (int u = 0; !status && u < UNITS; u++)
        status = zero_acquire(z, u) || zero_release(z, u);
    for (int u = UNITS - 1; !status && u >= 0; u--) {
        status = zero_acquire(z, u);
        float *g = status ? NULL : zero_grad_data(z, u);
        if (g)
            *g = 1; /* whatever that is in two bytes */
        status = status || !g || zero_release(z, u) || zero_reduce(z, u);
    }
    return status || zero_step(z, NULL);
}

struct shared_run {
    const struct row *row;
    pthread_barrier_t barrier;
    int64_t begin[2], end[2]; /* the process's account */
    bool direct;
    char type[64];
};

static void take_account(struct shared_run *run, int rank, int64_t bytes[2])
{
    pthread_barrier_wait(&run->barrier);
    if (rank == 0)
        account(bytes);
    pthread_barrier_wait(&run->barrier);
}

static struct zero *create(const struct row *r, struct zero_comm *comm)
{
    static const struct zero_normal fill = {.seed = 5, .std = 1};
    const struct zero_adam adam = {.lr = .01, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    static const char *const names[UNITS] = {"a", "b", "c", "d"};
    struct zero_param params[UNITS];
    struct zero_config config = r->config;
    struct zero *z;
    for (int u = 0; u < UNITS; u++)
        params[u] = (struct zero_param){.name = names[u],
                                        .unit = u,
                                        .ndim = 1,
                                        .shape = {sizes[u]},
                                        .fill = zero_fill_normal,
                                        .fill_arg = (void *)(uintptr_t)&fill};
    config.size = sizeof(config);
    config.comm = comm;
    config.chunk = CHUNK;
    config.gather_slots = 1;
    if (zero_create(&z, params, UNITS, &config) || zero_set_adam(z, 0, &adam))
        ck_abort_msg("%s", zero_last_error(z));
    return z;
}

static void expect(const struct zero_io *io, const struct zero_io *f, int step)
{
    if (!same(io, f))
        ck_abort_msg("step %d read %lld of state, %lld of parameters and wrote %lld, %lld; by the "
                     "formula %lld, %lld, %lld, %lld",
                     step, (long long)io->state_read, (long long)io->param_read,
                     (long long)io->state_written, (long long)io->param_written,
                     (long long)f->state_read, (long long)f->param_read,
                     (long long)f->state_written, (long long)f->param_written);
}

static void body(int rank, struct zero_comm *comm, void *arg)
{
    struct shared_run *run = arg;
    struct zero *z = create(run->row, comm);
    struct zero_io f = formula(run->row);
    struct zero_stats stats;
    for (int step = 1; step <= STEPS; step++) {
        if (one_step(z))
            ck_abort_msg("%s", zero_last_error(z));
        struct zero_io io = last_step(z, &f);
        expect(&io, &f, step);
        if (step == SETTLED || step == STEPS)
            take_account(run, rank, step == STEPS ? run->end : run->begin);
    }
    zero_stats(z, &stats);
    if (rank == 0) {
        run->direct = stats.nvme_direct;
        snprintf(run->type, sizeof(run->type), "%s", stats.nvme_type);
    }
    zero_destroy(z);
}

/* Of all ranks, which hold equal shares. */
static void expect_account(const struct shared_run *run)
{
    struct zero_io f = formula(run->row);
    int64_t steps = (STEPS - SETTLED) * run->row->ranks;
    const int64_t expected[2] = {steps * (f.state_read + f.param_read),
                                 steps * (f.state_written + f.param_written)};
    for (int i = 0; i < 2; i++) {
        int64_t had = run->end[i] - run->begin[i];
        ck_assert_msg(llabs(had - expected[i]) <= (STEPS - SETTLED) * (int64_t)SLACK,
                      "the kernel has %lld bytes %s, the formula %lld", (long long)had,
                      i ? "written" : "read", (long long)expected[i]);
    }
}

START_TEST(steps_move_what_the_formula_says)
{
    struct row row = row_of(_i);
    struct shared_run run = {.row = &row};
    pthread_barrier_init(&run.barrier, NULL, (unsigned)row.ranks);
    ranks_run(row.ranks, body, &run);
    pthread_barrier_destroy(&run.barrier);
    if (!run.direct && run.type[0])
        printf("skipped: the kernel's account: %s is not read directly\n", run.type);
    else if (strcmp(run.type, "tmpfs") == 0)
        printf("skipped: the kernel's account: tmpfs is no disk\n");
    else
        expect_account(&run);
    fflush(stdout);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("disk");
    TCase *tests = tcase_create("formula");
    tcase_add_loop_test(tests, steps_move_what_the_formula_says, 0, ROWS);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
