// SPDX-License-Identifier: Apache-2.0
/*
 * The measurement: for each point of the grid requests of one block each, more
 * of them than the depth, read, then written, then both in turn, through the same
 * ring that the engine uses, from huge pages. Points are visited twice, and the
 * better of both counts: others may use the drive. The best of many is lucky, too,
 * so what the chosen one can do is measured anew.
 */
#include "offload/probe.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/arena.h"
#include "src/clock.h"

#define SECONDS      2.0
#define WAIT_SECONDS 30 /* for another rank that measures, and for a drive that says nothing */
#define LOOK_SECONDS 1  /* of the latter's silence that are counted at once */
#define MEMORY       ((int64_t)32 << 20)
#define REQUESTS     (RING_DEPTH_MAX + 4)

/* The default comes first: a slow drive may not see the end of the list. */
static const struct probe grid[] = {
    {.block = 1 << 20, .depth = 8},    {.block = 1 << 20, .depth = 4},
    {.block = 1 << 20, .depth = 16},   {.block = 256 << 10, .depth = 8},
    {.block = 256 << 10, .depth = 16}, {.block = 256 << 10, .depth = 32},
    {.block = 4 << 20, .depth = 4},    {.block = 4 << 20, .depth = 8},
    {.block = 1 << 20, .depth = 32},
};
#define POINTS ((int)(sizeof(grid) / sizeof(grid[0])))

/* What is measured with. */
struct bench {
    struct spill spill;
    struct arena arena;
    int event_fd;
    struct ring *ring;
    struct ring_request request[REQUESTS];
    int64_t next; /* offset of the next request */
    bool stuck;   /* requests never came back: ring and memory stay theirs */
};

static int ring_make(struct bench *b, int block, int depth, struct error *error)
{
    const struct ring_options options = {.event_fd = b->event_fd,
                                         .base = b->arena.base,
                                         .bytes = b->arena.bytes,
                                         .files = &b->spill.stripes,
                                         .block = block,
                                         .depth = depth};
    struct error refused = {0};
    /* On from where the last ring ended: all of the file takes part. */
    b->next = (b->next + block - 1) / block * block;
    if (ring_uring_create(&b->ring, &options, &refused) == ZERO_OK)
        return ZERO_OK;
    return ring_posix_create(&b->ring, &options, error);
}

enum way { READS, WRITES, BOTH };

static void request_queue(struct bench *b, struct ring_request *r, enum way way)
{
    int64_t bytes = b->ring->block;
    if (b->next + bytes > b->spill.bytes)
        b->next = 0;
    bool odd = b->next / bytes % 2 != 0;
    *r = (struct ring_request){.write = way == WRITES || (way == BOTH && odd),
                               .buffer = b->arena.base + b->next % MEMORY, /* shared: no matter */
                               .bytes = bytes,
                               .offset = b->next};
    b->next += bytes;
    b->ring->ops->queue(b->ring, r);
}

static double get_stuck(struct bench *b, struct error *error)
{
    b->stuck = true;
    error_set(error, ZERO_ERR_IO,
              "%s (%s): the disk has not answered for %d s while it was measured. Look for what "
              "holds it up (dmesg), or choose another folder (--nvme-path, .nvme_path).",
              b->spill.file[0].path, b->spill.type, WAIT_SECONDS);
    return 0;
}

/* Moves blocks until the time is up, and waits for all of them. Bytes per
 * second, or 0 with error set. */
static double rate(struct bench *b, enum way way, int64_t bytes_max, double seconds,
                   struct error *error)
{
    struct ring_request *done[REQUESTS];
    int64_t moved = 0, asked = 0;
    int out = 0, count = b->ring->depth + 4;
    double begin = seconds_now();
    struct patience silence = {.looked = begin};
    for (; out < count && asked < bytes_max; out++, asked += b->ring->block)
        request_queue(b, &b->request[out], way);
    b->ring->ops->submit(b->ring, error);
    while (out > 0) {
        struct pollfd event = {b->event_fd, POLLIN, 0};
        uint64_t value;
        if (poll(&event, 1, 100) == 1 && read(b->event_fd, &value, sizeof(value)) < 0)
            assert(errno == EAGAIN);
        int taken = b->ring->ops->reap(b->ring, done, REQUESTS);
        for (int i = 0; i < taken; i++) {
            out--;
            moved += done[i]->bytes;
            if (done[i]->error.status)
                error_set(error, ZERO_ERR_IO, "%s", done[i]->error.text);
            else if (!error->status && asked < bytes_max && seconds_now() - begin < seconds) {
                request_queue(b, done[i], way);
                asked += done[i]->bytes;
                out++;
            }
        }
        patience_look(&silence, seconds_now(), LOOK_SECONDS, true);
        if (taken > 0) {
            silence.seconds = 0;
            b->ring->ops->submit(b->ring, error);
        } else if (silence.seconds >= WAIT_SECONDS) {
            return get_stuck(b, error);
        }
    }
    return error->status ? 0 : (double)moved / (seconds_now() - begin);
}

static void ring_end(struct bench *b)
{
    if (!b->stuck) /* it would wait for them */
        b->ring->ops->destroy(b->ring);
}

/* One point in all ways; keeps the better of what is there and this. */
static int point_measure(struct bench *b, struct probe *point, double seconds, struct error *error)
{
    if (ring_make(b, point->block, point->depth, error))
        return error->status;
    double *kept[] = {[READS] = &point->read, [WRITES] = &point->write, [BOTH] = &point->both};
    for (enum way way = READS; way <= BOTH && !error->status; way++) {
        double found = rate(b, way, INT64_MAX, seconds / 3, error);
        *kept[way] = found > *kept[way] ? found : *kept[way];
    }
    ring_end(b);
    return error->status;
}

int probe_choose(const struct probe *points, int count)
{
    double best = 0;
    int chosen = 0;
    for (int i = 0; i < count; i++)
        best = points[i].both > best ? points[i].both : best;
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t bytes = (int64_t)points[i].block * points[i].depth;
        if (points[i].both >= 0.97 * best && bytes < least) {
            least = bytes;
            chosen = i;
        }
    }
    return chosen;
}

/* Drives, and file systems on them, may keep zeros without writing any, and compress what is
 * regular. */
static void memory_fill(struct arena *arena)
{
    uint64_t *words = (uint64_t *)(void *)arena->base;
    for (uint64_t i = 0; i < (uint64_t)MEMORY / sizeof(*words); i++)
        words[i] = (i + 1) * 0x9E3779B97F4A7C15;
}

/* What was never written reads at the speed of memory. A slow drive writes less
 * of the file, and that is then all of it. */
static int file_write(struct bench *b, double seconds, struct error *error)
{
    if (ring_make(b, RING_BLOCK, RING_DEPTH, error))
        return error->status;
    int64_t step = PROBE_FILE / 8, written = 0, whole = b->spill.bytes;
    double begin = seconds_now();
    while (written < whole && (written == 0 || seconds_now() - begin < seconds) && !error->status) {
        rate(b, WRITES, step, 1e9, error); /* goes on where the last one ended */
        written += step;
    }
    b->spill.bytes = written;
    ring_end(b);
    return error->status;
}

static int measure(struct bench *b, struct probe *probe, double seconds, struct error *error)
{
    struct probe points[POINTS];
    double begin = seconds_now(), each = seconds * 0.6 / (2 * POINTS);
    int measured = 0;
    memcpy(points, grid, sizeof(grid));
    if (file_write(b, seconds, error))
        return error->status;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < POINTS && (measured == 0 || seconds_now() - begin < 1.6 * seconds);
             i++) {
            if (point_measure(b, &points[i], each, error))
                return error->status;
            measured++;
        }
    const struct probe *best = &points[probe_choose(points, POINTS)];
    *probe = (struct probe){.block = best->block, .depth = best->depth};
    return point_measure(b, probe, seconds * 0.4, error);
}

/* Through the page cache memory would be measured, and kept as what a drive can do. */
static int must_be_drive(const struct spill *spill, struct error *error)
{
    if (spill->direct || spill_type_is_memory(spill->type))
        return ZERO_OK;
    return error_set(error, ZERO_ERR_UNSUPPORTED,
                     "%s (%s) refuses O_DIRECT, so its drive cannot be measured apart from memory. "
                     "Choose a folder on a local disk (--nvme-path, .nvme_path).",
                     spill->file[0].path, spill->type);
}

int probe_run(struct probe *probe, const char *folder, double seconds, struct error *error)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct spill_paths paths;
    if (!b)
        return error_set(error, ZERO_ERR_MEMORY,
                         "No memory to measure a drive with." ERROR_FREE_MEMORY);
    b->event_fd = -1;
    if (!spill_paths_split(&paths, folder, error) &&
        !spill_create(&b->spill, &paths, RING_BLOCK, PROBE_FILE, error) &&
        !must_be_drive(&b->spill, error) && !arena_create(&b->arena, MEMORY, 1, error)) {
        memory_fill(&b->arena);
        b->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (b->event_fd < 0)
            error_set(error, ZERO_ERR_IO,
                      "An eventfd could not be made: %s. Raise the limit on files (ulimit -n).",
                      strerror(errno));
        else
            measure(b, probe, seconds > 0 ? seconds : SECONDS, error);
    }
    if (b->stuck)
        return error->status;
    if (b->event_fd >= 0)
        close(b->event_fd);
    arena_destroy(&b->arena);
    spill_destroy(&b->spill);
    free(b);
    return error->status;
}

/* ------------------------------------------------------- for a ring over paths */

/* Waits for the rank that measures, within bounds: a lock that is never had
 * costs a second measurement, no more. False: there can be none. */
static bool lock_take(int fd, bool *waited)
{
    double begin = seconds_now();
    for (*waited = false; flock(fd, LOCK_EX | LOCK_NB) != 0; *waited = true) {
        if (errno != EWOULDBLOCK)
            return false;
        if (seconds_now() - begin >= WAIT_SECONDS)
            break;
        poll(NULL, 0, 50);
    }
    return true;
}

/* The cache's lock, or where its file system has none the folder's own: ranks that measure a folder
 * together find a part of what it can do. -1: none of them. */
static int drive_lock(const char *folder, const char *key, bool *waited)
{
    int lock = probe_lock(key);
    if (lock >= 0 && lock_take(lock, waited))
        return lock;
    if (lock >= 0)
        close(lock);
    lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || lock_take(lock, waited))
        return lock;
    close(lock);
    *waited = false;
    return -1;
}

/* Measures a folder and caches the result, or takes what another rank has
 * measured meanwhile. */
static bool folder_measure(struct probe *probe, const char *folder, const char *key,
                           enum probe_when when, struct error *why)
{
    struct error error = {0};
    bool waited = false;
    int lock = drive_lock(folder, key, &waited);
    /* It was waited for in vain where it is not had even now; where there is none nobody knows. */
    bool alone = lock < 0 || flock(lock, LOCK_EX | LOCK_NB) == 0;
    bool known = (waited || when == PROBE_CACHED) && probe_load(probe, key);
    if (!known && probe_run(probe, folder, 0, &error) == ZERO_OK) {
        known = true;
        if (alone)
            probe_store(probe, key);
    }
    if (error.status)
        error_set(why, error.status, "%s", error.text);
    if (lock >= 0) {
        flock(lock, LOCK_UN); /* a process that was forked meanwhile has it too */
        close(lock);
    }
    return known;
}

/* Keys are of drives, or of file systems; two mounts of one may be on no drive that is known. */
bool probe_one_drive(const char *folder, const char *other)
{
    char keys[2][PROBE_KEY];
    struct stat st[2];
    if (strcmp(folder, other) == 0)
        return true;
    return (probe_key(keys[0], "", folder) && probe_key(keys[1], "", other) &&
            probe_keys_one_drive(keys[0], keys[1])) ||
           (stat(folder, &st[0]) == 0 && stat(other, &st[1]) == 0 && st[0].st_dev == st[1].st_dev);
}

/* What the folders can do together; those on one drive share what it can do. */
static void folders_join(struct probe *probe, struct spill_paths *paths, const struct probe *found)
{
    double depth = 0;
    *probe = (struct probe){0};
    for (int i = 0; i < paths->count; i++) {
        int share = 0;
        for (int j = 0; j < paths->count; j++)
            share += probe_one_drive(paths->path[i], paths->path[j]);
        paths->weight[i] /= share;
        probe->block = found[i].block > probe->block ? found[i].block : probe->block;
        probe->read += found[i].read / share;
        probe->write += found[i].write / share;
        probe->both += found[i].both / share;
        depth += (double)found[i].depth / share;
    }
    probe->depth = depth < RING_DEPTH_MAX ? (int)(depth + 0.5) : RING_DEPTH_MAX;
}

int probe_asked(enum probe_when *when, struct error *error)
{
    const char *asked = getenv("ZERO_PROBE");
    *when = PROBE_CACHED;
    if (!asked || !*asked)
        return ZERO_OK;
    if (strcmp(asked, "0") && strcmp(asked, "1"))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "ZERO_PROBE is '%.32s'. Use 1 to measure the folders of files anew, 0 to "
                         "use the defaults.",
                         asked);
    *when = *asked == '1' ? PROBE_NOW : PROBE_NEVER;
    return ZERO_OK;
}

void probe_paths(struct probe *probe, struct spill_paths *paths, int64_t bytes,
                 enum probe_when when, struct error *why)
{
    struct probe found[STRIPES_FILES] = {0};
    char key[PROBE_KEY];
    bool worth = bytes >= (paths->count > 1 ? PROBE_FILE : PROBE_ALONE), all = true;
    *probe = (struct probe){.block = RING_BLOCK, .depth = RING_DEPTH};
    memset(paths->weight, 0, sizeof(paths->weight));
    for (int i = 0; i < paths->count && when != PROBE_NEVER; i++) {
        bool known = false, keyed = probe_key(key, "", paths->path[i]);
        for (int j = 0; j < i && keyed && !known; j++) /* the same drive twice */
            if (probe_one_drive(paths->path[i], paths->path[j])) {
                found[i] = found[j];
                known = paths->weight[j] > 0;
            }
        if (!known && keyed && when == PROBE_CACHED)
            known = probe_load(&found[i], key);
        if (!known && keyed && all && (when == PROBE_NOW || worth)) /* else it would be in vain */
            known = folder_measure(&found[i], paths->path[i], key, when, why);
        paths->weight[i] = known ? found[i].both : 0;
        all &= known;
    }
    if (when != PROBE_NEVER && all)
        folders_join(probe, paths, found);
}
