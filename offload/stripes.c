// SPDX-License-Identifier: Apache-2.0
/* Shares become a fixed order of files, by smooth weighted round robin: every
 * short run of stripes is spread over the files nearly as the whole period is,
 * so the chunks under way together keep all of them busy. */
#include "offload/stripes.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* One stripe each, then one at a time to the file furthest below its part. */
static void shares_set(struct stripes *s, const double *weight)
{
    double part[STRIPES_FILES], sum = 0;
    bool equal = false;
    for (int i = 0; i < s->files; i++)
        equal |= !(weight[i] > 0);
    for (int i = 0; i < s->files; i++)
        sum += part[i] = equal ? 1 : weight[i];
    for (int i = 0; i < s->files; i++)
        s->share[i] = 1;
    for (int left = STRIPES_PERIOD - s->files; left > 0; left--) {
        int most = 0;
        double lacks_most = -STRIPES_PERIOD;
        for (int i = 0; i < s->files; i++) {
            double lacks = part[i] / sum * STRIPES_PERIOD - s->share[i];
            if (lacks > lacks_most) {
                lacks_most = lacks;
                most = i;
            }
        }
        s->share[most]++;
    }
}

void stripes_deal(struct stripes *s, int files, const double *weight, int64_t stripe)
{
    assert(files >= 1 && files <= STRIPES_FILES && stripe > 0);
    memset(s, 0, sizeof(*s));
    s->files = files;
    s->stripe = stripe;
    for (int i = 0; i < STRIPES_FILES; i++)
        s->fd[i] = -1;
    shares_set(s, weight);

    int credit[STRIPES_FILES] = {0}, dealt[STRIPES_FILES] = {0};
    for (int k = 0; k < STRIPES_PERIOD; k++) {
        int most = 0;
        for (int i = 0; i < files; i++) {
            credit[i] += s->share[i];
            if (credit[i] > credit[most])
                most = i;
        }
        credit[most] -= STRIPES_PERIOD;
        s->file[k] = (uint8_t)most;
        s->turn[k] = (uint8_t)dealt[most]++;
    }
    for (int i = 0; i < files; i++)
        assert(dealt[i] == s->share[i]);
}

struct stripes_place stripes_find(const struct stripes *s, int64_t offset)
{
    assert(offset >= 0 && s->files > 0);
    if (s->files == 1)
        return (struct stripes_place){0, offset, INT64_MAX - offset};
    int64_t number = offset / s->stripe, within = offset % s->stripe;
    int64_t period = number / STRIPES_PERIOD, k = number % STRIPES_PERIOD;
    int file = s->file[k];
    int64_t before = period * s->share[file] + s->turn[k];
    return (struct stripes_place){file, before * s->stripe + within, s->stripe - within};
}

int64_t stripes_file_bytes(const struct stripes *s, int file, int64_t bytes)
{
    if (s->files == 1)
        return bytes;
    int64_t period = s->stripe * STRIPES_PERIOD, left = bytes % period;
    int64_t total = bytes / period * s->share[file] * s->stripe;
    for (int k = 0; k < STRIPES_PERIOD && left > 0; k++, left -= s->stripe)
        if (s->file[k] == file)
            total += left < s->stripe ? left : s->stripe;
    return total;
}
