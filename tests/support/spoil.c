// SPDX-License-Identifier: Apache-2.0
/* The spoiled ring. A shadow of the linear space says whether damage is any. */
#include "tests/support/spoil.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/thread.h"

static bool chosen(const struct spoil *s, int number)
{
    return s->at == 0 || s->at == number;
}

/* Ends a request without the inner ring. */
static void finish(struct spoil *s, struct ring_request *r)
{
    r->next = s->finished;
    s->finished = r;
    event_write(s->event);
}

static struct spoil_victim *victim(struct spoil *s, const struct ring_request *r)
{
    for (int i = 0; i < SPOIL_VICTIMS; i++)
        if (s->victims[i].request == r)
            return &s->victims[i];
    return NULL;
}

static void fail(struct spoil *s, struct ring_request *r)
{
    s->hits++;
    if (!r->write)
        memset(r->buffer, 0xA5, (size_t)r->bytes);
    r->completed = r->bytes / 2;
    r->error_file = 0;
    r->error = (struct error){0};
    error_set(&r->error, ZERO_ERR_IO, "%s of %lld bytes at offset %lld stopped: spoiled.",
              r->write ? "write" : "read", (long long)r->bytes, (long long)r->offset);
    finish(s, r);
}

/* Remembers what a write replaces; false: it does not get there. */
static bool write_whole(struct spoil *s, struct ring_request *r)
{
    size_t n = (size_t)r->bytes;
    bool differs = memcmp(s->now + r->offset, r->buffer, n) != 0;
    memcpy(s->before + r->offset, s->now + r->offset, n);
    memcpy(s->now + r->offset, r->buffer, n);
    if (!chosen(s, s->writes) || (s->kind != SPOIL_LOST && s->kind != SPOIL_ASIDE))
        return true;
    s->hits += differs;
    if (s->kind == SPOIL_ASIDE) { /* nobody looks at a write's offset again */
        r->offset += r->offset + r->bytes < s->bytes ? SPILL_ALIGN : -SPILL_ALIGN;
        return true;
    }
    r->completed = r->bytes;
    r->error = (struct error){0};
    finish(s, r);
    return false;
}

static void queue(struct ring *ring, struct ring_request *r)
{
    struct spoil *s = (struct spoil *)ring; /* its first member */
    struct spoil_victim *v = victim(s, r);
    if (!v) {
        s->reads += !r->write;
        s->writes += r->write;
        if (s->kind == SPOIL_FAIL && chosen(s, s->reads + s->writes) && (v = victim(s, NULL)))
            *v = (struct spoil_victim){r, s->times};
    }
    if (v && v->left-- > 0) {
        fail(s, r);
        return;
    }
    if (v)
        v->request = NULL;
    if (!r->write || write_whole(s, r))
        s->inner->ops->queue(s->inner, r);
}

static int submit(struct ring *ring, struct error *error)
{
    struct spoil *s = (struct spoil *)ring; /* its first member */
    return s->inner->ops->submit(s->inner, error);
}

static void swap(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = a[i];
        a[i] = b[i];
        b[i] = c;
    }
}

static void damage(struct spoil *s, struct ring_request *r)
{
    size_t n = (size_t)r->bytes, page = n > SPILL_ALIGN ? SPILL_ALIGN : SPILL_ALIGN / 2;
    if (s->kind == SPOIL_BIT)
        r->buffer[n - SPILL_ALIGN + 3] ^= 1;
    else if (s->kind == SPOIL_SWAP)
        swap(r->buffer, r->buffer + n - page, page);
    else if (s->kind == SPOIL_OLD)
        memcpy(r->buffer, s->before + r->offset, n);
    s->hits += memcmp(r->buffer, s->now + r->offset, n) != 0;
}

static int reap(struct ring *ring, struct ring_request **done, int max)
{
    struct spoil *s = (struct spoil *)ring; /* its first member */
    int n = 0;
    for (; s->finished && n < max; n++) {
        done[n] = s->finished;
        s->finished = s->finished->next;
    }
    int own = n;
    n += s->inner->ops->reap(s->inner, done + n, max - n);
    for (int i = own; i < n; i++) {
        bool read = s->kind >= SPOIL_BIT && s->kind <= SPOIL_SWAP && !done[i]->write;
        if (read && chosen(s, ++s->ended))
            damage(s, done[i]);
    }
    return n;
}

static void destroy(struct ring *ring)
{
    struct spoil *s = (struct spoil *)ring; /* its first member */
    s->inner->ops->destroy(s->inner);
    free(s->now);
    free(s->before);
}

static const struct ring_ops ops = {
    .name = "spoil", .queue = queue, .submit = submit, .reap = reap, .destroy = destroy};

static int make_ring(void *arg, struct ring **ring, const struct ring_options *options,
                     struct error *error)
{
    struct spoil *s = arg;
    s->ring.ops = &ops;
    s->event = options->event_fd;
    s->bytes = 0;
    for (int i = 0; i < options->files->files; i++) {
        struct stat st;
        if (fstat(options->files->fd[i], &st) == 0)
            s->bytes += st.st_size;
    }
    s->now = calloc(1, (size_t)s->bytes);
    s->before = calloc(1, (size_t)s->bytes);
    if (!s->now || !s->before)
        abort();
    *ring = NULL;
    if (!ring_posix_create(&s->inner, options, error))
        *ring = &s->ring;
    return error->status;
}

const struct engine_seams *spoil_seams(struct spoil *s)
{
    s->seams.ring = make_ring;
    s->seams.ring_arg = s;
    return &s->seams;
}
