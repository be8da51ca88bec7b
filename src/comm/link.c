// SPDX-License-Identifier: Apache-2.0
#include "src/comm/link.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FRAME_BYTES ((int64_t)sizeof(struct frame))

static_assert(sizeof(struct frame) == 32 + 2 * sizeof(struct zero_collective_header),
              "no padding is sent");

/* ----------------------------------------------------------------- out */

void link_push(struct link *l, const struct frame *frame, const void *data, int *pending)
{
    assert(l->count < LINK_FRAMES && (data != NULL) == (frame->bytes > 0));
    l->out[(l->first + l->count++) % LINK_FRAMES] =
        (struct out){.frame = *frame, .data = data, .pending = pending};
    if (pending)
        ++*pending;
}

bool link_owes(const struct link *l, const int *pending)
{
    for (int i = 0; i < l->count; i++)
        if (l->out[(l->first + i) % LINK_FRAMES].pending == pending)
            return true;
    return false;
}

static void out_done(struct link *l)
{
    struct out *o = &l->out[l->first];
    if (o->pending)
        --*o->pending;
    l->first = (l->first + 1) % LINK_FRAMES;
    l->count--;
}

/* A peer that is gone is no error here: what it has said before is still to be read. */
void link_flush(struct link *l)
{
    while (l->count && !l->deaf) {
        struct out *o = &l->out[l->first];
        struct iovec parts[2];
        int count = 0;
        int64_t total = FRAME_BYTES + o->frame.bytes, at = o->sent - FRAME_BYTES;
        if (at < 0)
            parts[count++] = (struct iovec){(char *)&o->frame + o->sent, (size_t)-at};
        if (o->frame.bytes) {
            int64_t begin = at > 0 ? at : 0;
            parts[count++] = (struct iovec){(char *)(uintptr_t)o->data + begin,
                                            (size_t)(o->frame.bytes - begin)};
        }
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t n = sendmsg(l->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            l->deaf = errno != EAGAIN;
            l->error = l->deaf && errno != EPIPE ? errno : 0;
            return;
        }
        o->sent += n;
        if (o->sent == total)
            out_done(l);
    }
}

bool link_withdraw(struct link *l)
{
    bool under_way = false;
    int kept = 0;
    for (int i = 0; i < l->count; i++) {
        struct out *o = &l->out[(l->first + i) % LINK_FRAMES];
        bool data = o->frame.bytes > 0;
        if (data && o->sent == 0)
            continue;
        under_way |= data;
        l->out[(l->first + kept++) % LINK_FRAMES] = *o;
    }
    l->count = kept;
    return under_way;
}

/* ------------------------------------------------------------------ in */

/* Some of left bytes: how many, 0: none now, -1: the link is closed. */
static int64_t receive(struct link *l, char *to, int64_t left)
{
    ssize_t n = recv(l->fd, to, (size_t)left, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = 0;
    return -1;
}

enum link_news link_receive(struct link *l)
{
    bool data = l->left > 0;
    if (!data && l->got == FRAME_BYTES)
        l->got = 0;
    int64_t n;
    do {
        n = data ? receive(l, l->to, l->left)
                 : receive(l, (char *)&l->in + l->got, FRAME_BYTES - l->got);
        if (n <= 0)
            return n < 0 ? LINK_CLOSED : LINK_IDLE;
        if (data) {
            l->to += n;
            l->left -= n;
        } else {
            l->got += n;
        }
    } while (data ? l->left > 0 : l->got < FRAME_BYTES);
    return data ? LINK_DATA : LINK_FRAME;
}

void link_expect(struct link *l, void *to)
{
    assert(l->got == FRAME_BYTES && l->left == 0 && l->in.bytes > 0);
    l->to = to;
    l->left = l->in.bytes;
}

/* ----------------------------------------------------------------- end */

bool link_unsent(const struct link *l)
{
    int bytes = 0;
    struct pollfd p = {.fd = l->fd};
    if (l->fd < 0 || l->deaf || poll(&p, 1, 0) < 0 || p.revents) /* the other end is gone */
        return false;
    return !ioctl(l->fd, SIOCOUTQ, &bytes) && bytes > 0;
}

void link_close(struct link *l)
{
    if (l->fd >= 0) {
        shutdown(l->fd, SHUT_RDWR); /* a process that was forked meanwhile may have it too */
        close(l->fd);
    }
    l->fd = -1;
    l->count = 0;
    l->deaf = true;
}
