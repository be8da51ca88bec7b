// SPDX-License-Identifier: Apache-2.0
/*
 * No wrong number comes silently from the disk. With .verify_spill a read that
 * brings other bytes than were written is an error in the step that reads them,
 * whatever happened to them; a transfer that fails is tried again, and the run
 * ends as if it had not.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/clock.h"
#include "tests/support/ranks.h"
#include "tests/support/spoil.h"
#include "tests/support/suite.h"
#include "tests/support/toy.h"
#include "tests/support/tree.h"

#define RANKS 2
#define STEPS 3
#define KEPT  400 /* warnings that a rank's log keeps, their beginnings */

/* What became of a rank. */
struct outcome {
    int status, warnings, others;
    int64_t retried;
    char text[512], warning[KEPT][384];
    struct zero_digest digest;
    struct zero_stats stats;
};

struct job {
    struct zero_config config;
    bool rare;
    int ranks, steps;
    struct spoil spoil[RANKS];
    void (*between)(struct zero *z, int step, void *arg); /* may be NULL */
    void *arg;
    struct outcome out[RANKS];
};

static void keep(void *arg, enum zero_log_level level, const char *line)
{
    struct outcome *o = arg;
    if (level != ZERO_LOG_WARNING || !strstr(line, "again"))
        o->others++;
    else if (o->warnings < KEPT)
        snprintf(o->warning[o->warnings++], sizeof(o->warning[0]), "%s", line);
}

static int train(struct zero *z, const struct job *j, int rank)
{
    const struct zero_adam adam = {.lr = 0.05, .beta1 = .9, .beta2 = .95, .eps = 1e-8};
    double loss = 0;
    int status = zero_set_adam(z, 0, &adam);
    if (!status)
        status = zero_set_adam(z, 1, &adam);
    for (int step = 0; !status && step < j->steps; step++) {
        if (j->between)
            j->between(z, step, j->arg);
        status = toy_micro_step(z, step * j->ranks + rank, false, &loss);
        if (!status)
            status = zero_step(z, NULL);
    }
    return status;
}

static void body(int rank, struct zero_comm *comm, void *arg)
{
    struct job *j = arg;
    struct outcome *o = &j->out[rank];
    struct zero_param params[TOY_TENSORS_ALL];
    struct zero_config config = j->config;
    struct zero *z;
    config.size = sizeof(config);
    config.comm = comm;
    config.threads = 1;
    config.chunk = config.chunk ? config.chunk : 256;
    if (config.log_level == ZERO_LOG_WARNING && !config.log_arg) {
        config.log = keep;
        config.log_arg = o;
    }
    toy_describe_all(params);
    o->status = engine_create(&z, params, j->rare ? TOY_TENSORS_ALL : TOY_TENSORS, &config,
                              spoil_seams(&j->spoil[rank]));
    if (!o->status)
        o->status = train(z, j, rank);
    if (!o->status)
        o->status = zero_digest(z, &o->digest);
    snprintf(o->text, sizeof(o->text), "%s", zero_last_error(z));
    zero_stats(z, &o->stats);
    o->retried = counted(&z->retries.noted) + counted(&z->retries.lost);
    if (o->status) /* and it stays so */
        ck_assert(zero_step(z, NULL) != ZERO_OK);
    zero_destroy(z);
}

static struct job run(const struct job *like, enum spoil_kind kind, int rank, int at, int times)
{
    struct job j = *like;
    memset(j.out, 0, sizeof(j.out));
    memset(j.spoil, 0, sizeof(j.spoil));
    j.spoil[rank].kind = kind;
    j.spoil[rank].at = at;
    j.spoil[rank].times = times;
    ranks_run(j.ranks, body, &j);
    return j;
}

static bool same(const struct job *a, const struct job *b, int rank)
{
    return !memcmp(&a->out[rank].digest, &b->out[rank].digest, sizeof(a->out[rank].digest));
}

/* ------------------------------------------------------------- what is spoiled */

static char folders[2 * TREE_ROOT + 1];

static struct job setting(int row)
{
    struct job j = {.ranks = RANKS,
                    .steps = STEPS,
                    .config = {.stage = 3, .offload = ZERO_NVME, .verify_spill = true}};
    struct zero_config *c = &j.config;
    switch (row) {
    case 0: break; /* the fp32 master in the file is the parameter */
    case 1: c->dtype = ZERO_BF16; break;
    case 2:
        c->dtype = ZERO_BF16;
        c->state = ZERO_STATE_SPLIT;
        break;
    case 3: /* two folders, in stripes of 1 MiB: of these small chunks each array takes 4 KiB */
        c->dtype = ZERO_BF16;
        c->nvme_path = folders;
        c->chunk = 64;
        j.ranks = 1;
        j.rare = true;
        break;
    case 4: /* parameters alone */
        c->offload = ZERO_AUTO;
        c->offload_param = ZERO_NVME;
        break;
    case 5: /* state alone, some of it in memory */
        c->stage = 1;
        c->host_bytes = 15000;
        break;
    case 6:
        c->dtype = ZERO_BF16;
        j.rare = true;
        break;
    }
    return j;
}
#define SETTINGS 7

static struct {
    int found, gather, update, state;
} seen;

/* One rank's transfer was spoiled: it says so, and the others end too. Damage that
 * nobody looked at any more has done nothing. */
static void expect_found(const struct job *j, const struct job *good, int rank, bool early)
{
    const struct outcome *o = &j->out[rank];
    const struct spoil *s = &j->spoil[rank];
    if ((s->hits == 0 || !early) && o->status == ZERO_OK) {
        ck_assert_msg(same(j, good, 0), "kind %d at %d: other bits", (int)s->kind, s->at);
        return;
    }
    ck_assert_msg(s->hits > 0 || s->kind == SPOIL_ASIDE, "nothing was spoiled: %s", o->text);
    ck_assert_msg(o->status == ZERO_ERR_IO, "kind %d at %d of rank %d: status %d, %s", (int)s->kind,
                  s->at, rank, o->status, o->text);
    ck_assert_msg(strstr(o->text, " is not what was written there") &&
                      strstr(o->text, "Reading ") && strstr(o->text, " of the file in /") &&
                      strstr(o->text, "the page at offset "),
                  "%s", o->text);
    for (int r = 0; r < j->ranks; r++)
        ck_assert_msg(j->out[r].status == ZERO_ERR_IO || j->out[r].status == ZERO_ERR_COMM,
                      "rank %d: %d", r, j->out[r].status);
    ck_assert_int_eq(o->stats.io_retried, 0);
    seen.found++;
    seen.gather += strstr(o->text, "Reading parameters, chunk ") != NULL;
    seen.update += strstr(o->text, "Reading parameters for an update, chunk ") != NULL;
    seen.state += strstr(o->text, "Reading optimizer state, chunk ") != NULL;
}

static bool unsupported(void)
{
    struct error error = {0};
    if (!verify_supported(&error))
        return false;
    printf("skipped: %s\n", error.text);
    return true;
}

/* Each kind of damage at several transfers of either rank. */
START_TEST(damage_is_found)
{
    if (unsupported())
        return;
    struct job like = setting(_i);
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    ck_assert_msg(!good.out[0].status, "%s", good.out[0].text);
    memset(&seen, 0, sizeof(seen));
    for (int kind = SPOIL_BIT; kind <= SPOIL_ASIDE; kind++)
        for (int part = 0; part <= 5; part++) {
            int rank = part % like.ranks;
            const struct spoil *s = &good.spoil[rank];
            int all = kind <= SPOIL_SWAP ? s->reads : s->writes, at = 1 + (all - 1) * part / 5;
            struct job j = run(&like, (enum spoil_kind)kind, rank, at, 0);
            expect_found(&j, &good, rank, part <= 2);
        }
    ck_assert_int_ge(seen.found, 15);
    ck_assert(_i == 4 || seen.state > 0);
    ck_assert(_i == 5 || seen.gather > 0);
    ck_assert(_i != 2 || seen.update > 0);
}
END_TEST

/* Without it nothing is noticed but by who knows the digest; and it changes none. */
START_TEST(damage_is_silent_unasked)
{
    struct job like = setting(1);
    like.config.verify_spill = false;
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    ck_assert_int_eq(good.out[0].stats.plan.host.checks, 0);
    for (int kind = SPOIL_BIT; kind <= SPOIL_ASIDE; kind++) {
        int other = 0; /* damage may be to what rounding loses, or is written before it is read */
        for (int at = 15; at < 60 && !other; at++) {
            struct job j = run(&like, (enum spoil_kind)kind, 0, at, 0);
            ck_assert_msg(j.out[0].status == ZERO_OK, "%s", j.out[0].text);
            other += j.spoil[0].hits == 1 && !same(&j, &good, 0);
        }
        ck_assert_msg(other > 0, "kind %d", kind);
    }
    if (unsupported())
        return;
    like.config.verify_spill = true;
    struct job checked = run(&like, SPOIL_NOTHING, 0, 0, 0);
    ck_assert_msg(!checked.out[0].status && same(&checked, &good, 0), "%s", checked.out[0].text);
    const struct zero_plan *with = &checked.out[0].stats.plan, *without = &good.out[0].stats.plan;
    ck_assert_int_eq(with->host.checks, (with->nvme.total / 512 + 4095) / 4096 * 4096);
    ck_assert_int_eq(with->host.total - without->host.total, with->host.checks);
}
END_TEST

/* Each file's pages are told by their offset in it, and the folder is the file's. */
START_TEST(the_page_is_named)
{
    if (unsupported())
        return;
    struct job like = setting(3);
    int second = 0;
    const char *colon = strchr(folders, ':');
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    for (int at = 1; at <= good.spoil[0].reads / 2; at += good.spoil[0].reads / 40) {
        struct job j = run(&like, SPOIL_BIT, 0, at, 0);
        char *in = strstr(j.out[0].text, "the file in ");
        ck_assert_msg(in, "read %d: %s", at, j.out[0].text);
        in += strlen("the file in ");
        bool other = !strncmp(in, colon + 1, strlen(colon + 1));
        ck_assert_msg(other || !strncmp(in, folders, (size_t)(colon - folders)), "%s", in);
        long long offset = atoll(strstr(j.out[0].text, "at offset ") + strlen("at offset "));
        ck_assert_msg(offset >= 0 && offset % SPILL_ALIGN == 0, "%s", j.out[0].text);
        ck_assert_ptr_nonnull(strstr(j.out[0].text, "(wrong: 1 of the "));
        second += other;
    }
    ck_assert_int_gt(second, 3);
}
END_TEST

START_TEST(no_checksums_in_this_build)
{
    struct error error = {0};
    if (!verify_supported(&error)) {
        printf("skipped: this build has checksums\n");
        return;
    }
    struct job like = setting(1), j = run(&like, SPOIL_NOTHING, 0, 0, 0);
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(j.out[r].status == ZERO_ERR_UNSUPPORTED &&
                          strstr(j.out[r].text, ".verify_spill"),
                      "%d: %s", j.out[r].status, j.out[r].text);
}
END_TEST

/* ------------------------------------------------------- the files themselves */

/* Overwrites a byte of each page, or cuts, every file without a name that this
 * process holds open and that is as long as the engine's. */
struct vandal {
    pthread_barrier_t barrier;
    bool cut;
    int files;
};

static void vandalise_file(struct vandal *v, int fd, int64_t bytes)
{
    v->files++;
    if (v->cut) {
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        return;
    }
    for (int64_t at = 0; at < bytes; at += SPILL_ALIGN) {
        unsigned char byte;
        ck_assert_int_eq(pread(fd, &byte, 1, at + 77), 1);
        byte ^= 1;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at + 77), 1);
    }
    ck_assert_int_eq(fsync(fd), 0);
}

static void vandalise(struct zero *z, int step, void *arg)
{
    struct vandal *v = arg;
    struct zero_digest digest;
    struct zero_stats stats;
    if (step != 1)
        return;
    ck_assert_msg(!zero_digest(z, &digest), "%s", zero_last_error(z)); /* all is written */
    zero_stats(z, &stats);
    pthread_barrier_wait(&v->barrier);
    DIR *d = zero_rank(z) == 0 ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[300];
        struct stat st;
        snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
        if (stat(name, &st) || !S_ISREG(st.st_mode) || st.st_nlink ||
            st.st_size != stats.plan.nvme.total)
            continue;
        int fd = open(name, O_RDWR | O_CLOEXEC); /* not directly */
        ck_assert_int_ge(fd, 0);
        vandalise_file(v, fd, st.st_size);
        close(fd);
    }
    if (d)
        closedir(d);
    pthread_barrier_wait(&v->barrier);
}

static struct job vandalised(const struct job *like, bool cut)
{
    struct vandal v = {.cut = cut};
    struct job j = *like;
    pthread_barrier_init(&v.barrier, NULL, (unsigned)j.ranks);
    j.between = vandalise;
    j.arg = &v;
    ranks_run(j.ranks, body, &j);
    pthread_barrier_destroy(&v.barrier);
    ck_assert_int_eq(v.files, j.ranks);
    return j;
}

START_TEST(files_of_a_live_engine)
{
    if (unsupported())
        return;
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int row = 0; row < 3; row++) {
            struct job like = setting(row);
            int told = 0;
            like.ranks = ranks;
            struct job j = vandalised(&like, false);
            for (int r = 0; r < ranks; r++) {
                const char *text = j.out[r].text;
                bool own = strstr(text, " is not what was written there") != NULL;
                ck_assert_msg(own ? j.out[r].status == ZERO_ERR_IO
                                  : j.out[r].status == ZERO_ERR_COMM && strstr(text, "gave up"),
                              "rank %d: %s", r, text);
                told += own;
            }
            ck_assert_int_ge(told, 1);
        }
}
END_TEST

/* Gone for good: it is not tried again. */
START_TEST(files_that_are_cut)
{
    struct job like = setting(1);
    like.ranks = 1;
    like.config.verify_spill = false;
    struct job j = vandalised(&like, true);
    ck_assert_int_eq(j.out[0].status, ZERO_ERR_IO);
    ck_assert_msg(strstr(j.out[0].text, " was truncated while in use, and what lay there is lost."),
                  "%s", j.out[0].text);
    ck_assert_int_eq(j.out[0].stats.io_retried, 0);
}
END_TEST

/* ------------------------------------------------------------- once more */

static void expect_recovered(const struct job *j, const struct job *good, int rank, int times)
{
    for (int r = 0; r < j->ranks; r++) {
        const struct outcome *o = &j->out[r];
        int expected = r == rank ? times : 0;
        ck_assert_msg(!o->status && same(j, good, r), "transfer %d: %s", j->spoil[rank].at,
                      o->text);
        ck_assert_int_eq(o->stats.io_retried, expected);
        ck_assert_int_eq(o->warnings, expected);
        ck_assert_int_eq(o->others, 0);
        ck_assert_int_eq(o->stats.io.state_written, good->out[r].stats.io.state_written);
        ck_assert_int_eq(o->stats.io.param_written, good->out[r].stats.io.param_written);
        ck_assert_int_eq(o->stats.io.state_read, good->out[r].stats.io.state_read);
        ck_assert_int_eq(o->stats.io.param_read, good->out[r].stats.io.param_read);
    }
    for (int i = 0; i < times; i++) {
        char again[32], who[32];
        snprintf(again, sizeof(again), "trying again (%d of 3): ", i + 2);
        snprintf(who, sizeof(who), "rank %d: ", rank);
        const char *warning = j->out[rank].warning[i];
        ck_assert_msg(!strncmp(warning, who, strlen(who)) && strstr(warning, again) &&
                          strstr(warning, "spoiled. File in /") && strstr(warning, ", chunk "),
                      "%s", warning);
    }
}

/* Whichever transfer fails once or twice, the run is what it would have been. */
START_TEST(each_transfer_fails)
{
    struct job like = setting(_i ? 2 : 0);
    like.config.verify_spill = false;
    like.config.chunk = 512;
    like.steps = 2;
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    ck_assert_msg(!good.out[0].status, "%s", good.out[0].text);
    int rank = 1 - _i, all = good.spoil[rank].reads + good.spoil[rank].writes;
    ck_assert_int_gt(all, 40);
    int tried = 0;
    for (int at = 1; at <= all; at += suite_short() ? 6 : 1, tried++) {
        int times = 1 + at % 11 / 10; /* of two the second attempt waits a second */
        struct job j = run(&like, SPOIL_FAIL, rank, at, times);
        ck_assert_int_eq(j.spoil[rank].hits, times);
        expect_recovered(&j, &good, rank, times);
    }
    printf("%d of %d transfers of rank %d, each failed\n", tried, all, rank);
}
END_TEST

/* All of them, with checksums: the log is not flooded between two calls. */
START_TEST(every_transfer_fails)
{
    struct job like = setting(1);
    like.config.verify_spill = !unsupported();
    like.config.chunk = 64; /* many are written before zero_create waits for the last */
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    struct job j = run(&like, SPOIL_FAIL, 1, 0, 1);
    const struct outcome *o = &j.out[1];
    ck_assert_msg(!o->status && same(&j, &good, 1), "%s", o->text);
    ck_assert_int_eq(o->stats.io_retried, j.spoil[1].hits);
    ck_assert_int_eq(j.spoil[1].hits, good.spoil[1].reads + good.spoil[1].writes);
    int64_t more = 0, one = 0;
    for (int i = 0; i < o->warnings; i++) {
        const char *at = strstr(o->warning[i], " more transfers failed and were tried again.");
        one += at == NULL;
        more += at ? atoll(o->warning[i] + strlen("rank 1: ")) : 0;
    }
    ck_assert(one > 0 && more > 0 && o->warnings < KEPT);
    ck_assert_int_eq(one + more, o->stats.io_retried);
}
END_TEST

/* A ring that is handed one request, and ends or fails it. */
struct refusing {
    struct ring ring; /* first */
    struct ring_request *queued;
    int times, looked;
    bool ends, at_end;
};

static void refusing_queue(struct ring *ring, struct ring_request *r)
{
    struct refusing *f = (struct refusing *)ring;
    f->queued = r;
    f->times++;
}

static int refusing_submit(struct ring *ring, struct error *error)
{
    (void)ring;
    return error->status;
}

static int refusing_reap(struct ring *ring, struct ring_request **done, int max)
{
    struct refusing *f = (struct refusing *)ring;
    f->looked++;
    if (!f->queued || max < 1)
        return 0;
    f->queued->error_end = f->at_end;
    f->queued->error = (struct error){.status = ZERO_OK};
    if (!f->ends)
        f->queued->error = (struct error){.status = ZERO_ERR_IO, .text = "refused."};
    *done = f->queued;
    f->queued = NULL;
    return 1;
}

static const struct ring_ops refusing_ops = {
    .queue = refusing_queue, .submit = refusing_submit, .reap = refusing_reap};

/* The ring is looked after while a long transfer's pages are summed up, and all of
 * them count. */
START_TEST(long_transfers)
{
    enum { BYTES = 5 * RING_BLOCK / 2 };
    static char memory[BYTES] __attribute__((aligned(SPILL_ALIGN)));
    static uint64_t sums[2 * BYTES / SPILL_ALIGN];
    struct refusing ring = {.ring = {.ops = &refusing_ops}, .ends = true};
    struct spill spill = {.bytes = sizeof(sums) / 8 * SPILL_ALIGN};
    struct pipeline p = {.ring = &ring.ring, .spill = &spill, .sums = sums, .outstanding = 1};
    struct ring_request r = {.write = true, .buffer = memory, .bytes = BYTES, .offset = BYTES};
    struct transfer t;
    struct error error = {0};
    bool done;
    if (unsupported())
        return;
    stripes_deal(&spill.stripes, 1, &(double){1}, RING_BLOCK);
    for (int i = 0; i < BYTES; i++)
        memory[i] = (char)(i / 77);
    ck_assert_int_eq(pipeline_transfer(&p, &t, &r, &error), ZERO_OK);
    ck_assert_int_eq(ring.looked, 3);
    pipeline_poll(&p);
    ck_assert(!pipeline_done(&p, &t, &done, "x", 1, &error) && done);
    for (int spoiled = 0; spoiled < 2; spoiled++) {
        r.write = false;
        memory[RING_BLOCK + 5 * SPILL_ALIGN] ^= (char)spoiled;
        memory[BYTES - 1] ^= (char)spoiled;
        ck_assert_int_eq(pipeline_transfer(&p, &t, &r, &error), ZERO_OK);
        pipeline_poll(&p);
        ring.looked = 0;
        ck_assert_int_eq(pipeline_done(&p, &t, &done, "x", 1, &error) != ZERO_OK, spoiled);
        ck_assert_int_eq(done, !spoiled);
        ck_assert_int_eq(ring.looked, 3);
    }
    ck_assert_msg(
        strstr(error.text, "x 1: the page at offset 3690496 of ") && /* 2.5 MiB + 1 MiB + 5 pages */
            strstr(error.text, "(wrong: 2 of the 640 pages read)"),
        "%s", error.text);
}
END_TEST

/* What is compared in pieces: of all pages the first is named, at offset 0 too. */
START_TEST(the_first_page_is_named)
{
    static char pages[2 * SPILL_ALIGN];
    uint64_t sums[2];
    int64_t first = -1;
    if (unsupported())
        return;
    verify_take(sums, pages, 0, sizeof(pages));
    pages[0] = pages[SPILL_ALIGN] = 1;
    ck_assert_int_eq(verify_compare(sums, pages, 0, SPILL_ALIGN, &first), 1);
    ck_assert_int_eq(verify_compare(sums, pages + SPILL_ALIGN, SPILL_ALIGN, SPILL_ALIGN, &first),
                     1);
    ck_assert_int_eq(first, 0);
}
END_TEST

/* Asks for a transfer that has failed until the ring has it again; returns the seconds. */
static double given_again(struct pipeline *p, struct transfer *t, const struct refusing *ring)
{
    struct error error = {0};
    double start = seconds_now();
    bool done;
    for (int before = ring->times; ring->times == before;)
        ck_assert(!pipeline_done(p, t, &done, "x", 1, &error) && !done);
    return seconds_now() - start;
}

/* A ring that is full is not given the transfer again before it has room, nor a second time at
 * once: what has failed may need a while. */
START_TEST(a_full_ring_comes_first)
{
    static char memory[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    struct refusing ring = {.ring = {.ops = &refusing_ops}};
    struct spill spill = {.bytes = SPILL_ALIGN};
    struct pipeline p = {.ring = &ring.ring, .spill = &spill};
    struct transfer t;
    struct error error = {0};
    bool done;
    const struct ring_request read = {.buffer = memory, .bytes = SPILL_ALIGN};
    ck_assert_int_eq(pipeline_transfer(&p, &t, &read, &error), ZERO_OK);
    pipeline_poll(&p);
    p.outstanding = RING_REQUESTS_MAX;
    ck_assert(!pipeline_done(&p, &t, &done, "x", 1, &error) && !done && ring.times == 1);
    p.outstanding = RING_REQUESTS_MAX - 1;
    ck_assert(!pipeline_done(&p, &t, &done, "x", 1, &error) && !done && ring.times == 2);
    ck_assert_int_eq(p.outstanding, RING_REQUESTS_MAX);
    pipeline_poll(&p);
    ck_assert_double_ge(given_again(&p, &t, &ring), 0.9);
    pipeline_poll(&p);
    ck_assert_int_eq(pipeline_done(&p, &t, &done, "x", 1, &error), ZERO_ERR_IO);
    ck_assert(!done && ring.times == 3);
    ck_assert_str_eq(error.text, "x 1: refused. File in  (). It was tried 3 times.");
}
END_TEST

static bool statx_refused; /* as by the rules of a container */

int __real_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st);

int __wrap_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st)
{
    errno = EPERM;
    return statx_refused ? -1 : __real_statx(folder, path, flags, mask, st);
}

/* A read that met the end of its file is tried again of a whole file. One that was cut is an
 * error, even where it has been made as long again, and a write to it is another. */
START_TEST(a_file_was_cut)
{
    statx_refused = _i;
    enum { PAGES = 3, BYTES = PAGES * SPILL_ALIGN };
    static char memory[SPILL_ALIGN] __attribute__((aligned(SPILL_ALIGN)));
    for (int i = 0; i < 3 * (PAGES + 1); i++) {
        bool write = i % 3 == 0, longer = i % 3 == 1, whole = i / 3 == PAGES;
        struct ring_request request = {.write = write, .buffer = memory, .bytes = SPILL_ALIGN};
        struct refusing ring = {.ring = {.ops = &refusing_ops}, .at_end = !write, .ends = write};
        struct spill spill = {.bytes = BYTES, .file = {{.bytes = BYTES, .path = "/f"}}};
        struct pipeline p = {.ring = &ring.ring, .spill = &spill};
        struct error error = {0};
        struct transfer t;
        bool done;
        int fd = memfd_create("spill", MFD_CLOEXEC);
        stripes_deal(&spill.stripes, 1, &(double){1}, RING_BLOCK);
        spill.stripes.fd[0] = fd;
        ck_assert(fd >= 0 && !posix_fallocate(fd, 0, BYTES));
        ck_assert(!ftruncate(fd, i / 3 * SPILL_ALIGN));
        ck_assert(!longer || !ftruncate(fd, BYTES));
        ck_assert(!pipeline_transfer(&p, &t, &request, &error));
        pipeline_poll(&p);
        ck_assert_int_eq(pipeline_done(&p, &t, &done, "x", 1, &error),
                         whole ? ZERO_OK : ZERO_ERR_IO);
        ck_assert(whole || strstr(error.text, "x 1: the file in /f (), of 12288 bytes, was trunc"));
        ck_assert_int_eq(done, whole && write);
        ck_assert_int_eq(ring.times, !whole ? !write : write ? 1 : 2);
        close(fd);
    }
    statx_refused = false;
}
END_TEST

/* Three times in a row: that is the end, on all ranks. */
START_TEST(a_transfer_fails_for_good)
{
    struct job like = setting(_i % 2 ? 2 : 0);
    like.config.verify_spill = false;
    struct job good = run(&like, SPOIL_NOTHING, 0, 0, 0);
    int all = good.spoil[1].reads + good.spoil[1].writes, step = all / 16;
    for (int at = 1; at <= all / 2; at += step) {
        struct job j = run(&like, SPOIL_FAIL, 1, at, 3);
        const struct outcome *o = &j.out[1];
        ck_assert_int_eq(j.spoil[1].hits, 3);
        ck_assert_msg(o->status == ZERO_ERR_IO && strstr(o->text, " stopped: spoiled. File in /") &&
                          strstr(o->text, "). It was tried 3 times."),
                      "transfer %d: %d, %s", at, o->status, o->text);
        ck_assert_int_eq(o->retried, 2);
        ck_assert_int_eq(o->warnings, 2);
        ck_assert_msg(j.out[0].status == ZERO_ERR_COMM || j.out[0].status == ZERO_ERR_IO, "%s",
                      j.out[0].text);
    }
}
END_TEST

/* By default each rank warns of its own transfers, and only rank 0 of the rest. */
START_TEST(the_rank_speaks)
{
    char line[600] = "";
    FILE *log = tmpfile();
    ck_assert_ptr_nonnull(log);
    int before = dup(2);
    struct job like = setting(1);
    like.config.verify_spill = false;
    like.config.log_arg = &like; /* not the test's log */
    dup2(fileno(log), 2);
    struct job j = run(&like, SPOIL_FAIL, 1, 30, 1);
    dup2(before, 2);
    close(before);
    rewind(log);
    ck_assert_int_eq(j.out[1].stats.io_retried, 1);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), log));
    ck_assert_msg(!strncmp(line, "libzero: warning: rank 1: ", 26), "%s", line);
    ck_assert_ptr_null(fgets(line, sizeof(line), log));
    fclose(log);
}
END_TEST

static void make_folders(void)
{
    char first[TREE_ROOT], second[TREE_ROOT];
    tree_make(first);
    tree_make(second);
    snprintf(folders, sizeof(folders), "%s:%s", first, second);
    setenv("ZERO_PROBE", "0", 1); /* what is known of this drive might make stripes longer */
}

static void remove_folders(void)
{
    char *colon = strchr(folders, ':');
    *colon = '\0';
    tree_remove(folders);
    tree_remove(colon + 1);
}

int main(void)
{
    Suite *s = suite_create("verify");
    TCase *c = tcase_create("pages");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folders, remove_folders);
    tcase_add_loop_test(c, damage_is_found, 0, suite_short() ? 3 : SETTINGS);
    tcase_add_test(c, damage_is_silent_unasked);
    tcase_add_test(c, the_page_is_named);
    tcase_add_test(c, no_checksums_in_this_build);
    tcase_add_test(c, files_of_a_live_engine);
    suite_add_tcase(s, c);
    c = tcase_create("tries");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folders, remove_folders);
    tcase_add_test(c, files_that_are_cut);
    tcase_add_loop_test(c, each_transfer_fails, 0, 2);
    tcase_add_test(c, every_transfer_fails);
    tcase_add_test(c, long_transfers);
    tcase_add_test(c, the_first_page_is_named);
    tcase_add_test(c, a_full_ring_comes_first);
    tcase_add_loop_test(c, a_file_was_cut, 0, 2);
    tcase_add_loop_test(c, a_transfer_fails_for_good, 0, 2);
    tcase_add_test(c, the_rank_speaks);
    suite_add_tcase(s, c);
    return suite_run_all(s);
}
