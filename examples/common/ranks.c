// SPDX-License-Identifier: Apache-2.0
#include "examples/common/ranks.h"

#include <assert.h>
#include <math.h>

int ranks_sum(struct zero *z, double mine, double *sum)
{
    double mean = 0;
    int status = zero_mean(z, &mine, 1, &mean);
    *sum = round(mean * zero_size(z));
    return status;
}

int ranks_most(struct zero *z, int64_t mine, int64_t *most)
{
    double sum, above;
    assert(mine >= 0);
    int64_t ranks = zero_size(z);
    int status = ranks_sum(z, (double)mine, &sum);
    if (status)
        return status;
    /* A rank has low or more, none has more than high. */
    int64_t high = llround(sum), low = high / ranks + (high % ranks > 0);
    for (int64_t middle = low; low < high; middle = low + (high - low) / 2) {
        if ((status = ranks_sum(z, mine > middle, &above)))
            return status;
        low = above > 0 ? middle + 1 : low;
        high = above > 0 ? high : middle;
    }
    *most = low;
    return ZERO_OK;
}

/* None then differs from their mean. 32 bits leave room for the ranks' sum: only so is the mean
 * exact. */
int ranks_alike(struct zero *z, uint64_t hash, bool *alike)
{
    double mine = (double)(hash >> 32), mean, deviation;
    int status = zero_mean(z, &mine, 1, &mean);
    if (status)
        return status;
    mine = fabs(mine - mean);
    status = zero_mean(z, &mine, 1, &deviation);
    *alike = !(deviation > 0);
    return status;
}
