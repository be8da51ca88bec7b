// SPDX-License-Identifier: Apache-2.0
/*
 * The verdict: one sum of integers over all ranks decides norm, clipping and
 * whether the step is skipped, and brings rank 0's constants to everybody. All
 * that follows is computed from these integers, so it is equal everywhere.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "src/engine.h"

#define WORD_NONFINITE WIDE_LIMBS
#define WORD_VOTES     (WIDE_LIMBS + 1) /* a word a bit: ranks that voted for it */
#define VOTES          32
#define WORD_GROUPS    (WORD_VOTES + VOTES)
#define CONSTANTS_BYTES                                                                            \
    (sizeof(struct adam) - offsetof(struct adam, decay)) /* all but grad_scale */
#define GROUP_WORDS ((int64_t)(CONSTANTS_BYTES + 7) / 8)
#define GROUPS_MAX  256 /* a group's number has eight bits */

static_assert(8 * (WORD_GROUPS + GROUP_WORDS * GROUPS_MAX) <= ZERO_SUM_BYTES_MAX,
              "a verdict is one sum, however many groups there are");

int64_t step_verdict_words(const struct layout *l)
{
    return WORD_GROUPS + GROUP_WORDS * l->groups;
}

/* b^n by squaring: the same multiplications on every machine. */
static double power(double b, int64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1, b *= b)
        if (n & 1)
            result *= b;
    return result;
}

static struct adam constants(const struct zero_adam *a, int64_t t)
{
    return (struct adam){
        .decay = a->l2 ? 1 : (float)(1 - a->lr * a->weight_decay),
        .l2 = a->l2 ? (float)a->weight_decay : 0,
        .beta1 = (float)a->beta1,
        .one_minus_beta1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .one_minus_beta2 = (float)(1 - a->beta2),
        .step_size = (float)(a->lr / (1 - power(a->beta1, t))),
        .root_scale = (float)(1 / sqrt(1 - power(a->beta2, t))),
        .eps = (float)a->eps,
    };
}

/* Hands this rank's share to the verdict and waits for it. */
static int verdict(struct zero *z)
{
    int64_t *word = z->verdict, words = step_verdict_words(&z->layout);
    memset(word, 0, (size_t)words * sizeof(*word));
    /* The norm is the engine thread's until the last reduce is done. */
    struct wide norm;
    if (engine_wait(z, z->schedule.last_reduce))
        return z->error.status;
    if (z->device->ops->norm(z->device, &norm, &z->error))
        return engine_device_failed(z);
    wide_carry(&norm);
    memcpy(word, norm.limb, sizeof(norm.limb));
    word[WORD_NONFINITE] = norm.nonfinite;
    for (int g = 0; z->rank == 0 && g < z->layout.groups; g++) {
        struct adam k = constants(&z->adam[g], z->steps + 1);
        memcpy(&word[WORD_GROUPS + GROUP_WORDS * g], &k.decay, CONSTANTS_BYTES);
    }
    for (int bit = 0; bit < VOTES; bit++)
        word[WORD_VOTES + bit] = z->votes >> bit & 1;
    z->votes = 0;
    return engine_wait(
        z, schedule_sum(&z->schedule, "zero_step", word, words * (int64_t)sizeof(*word)));
}

/* What the verdict's integers say, the same on every rank. */
static struct zero_step_info judge(const struct zero *z)
{
    struct zero_step_info info = {.factor = 1, .loss_scale = z->scaler.scale};
    struct wide sum = {0};
    memcpy(sum.limb, z->verdict, sizeof(sum.limb));
    for (int bit = 0; bit < VOTES; bit++)
        info.votes |= (uint32_t)(z->verdict[WORD_VOTES + bit] != 0) << bit;
    double sums = sqrt(wide_value(&sum));
    info.norm = sums / z->grads_divisor;
    if (z->clip > 0 && info.norm > z->clip)
        info.factor = z->clip / (info.norm + 1e-6);
    /* What a loss scale below 1 made small enough for fp32 may be too large for it. */
    bool beyond = z->grads_divisor < 1 && info.norm * info.factor > (double)FLT_MAX;
    /* What is finite in fp32 may have been rounded to infinity. */
    beyond |= z->plan.set.round_grads && sums > (double)dtype_limit(ZERO_BF16);
    info.skipped = z->verdict[WORD_NONFINITE] != 0 || beyond;
    if (info.skipped)
        info.norm = NAN, info.factor = 1;
    return info;
}

static void update_all(struct zero *z, double factor)
{
    for (int g = 0; g < z->layout.groups; g++) {
        struct adam *k = &z->update.adam[g];
        memcpy(&k->decay, &z->verdict[WORD_GROUPS + GROUP_WORDS * g], CONSTANTS_BYTES);
        k->grad_scale = (float)(factor / z->grads_divisor);
    }
    z->steps++;
    z->settled = 0;
    schedule_walk(&z->schedule, WALK_ADAM, 0, z->plan.live);
}

int step_finish(struct zero *z, struct zero_step_info *out)
{
    /* The last walk is done with the constants, and the last step's bytes are all counted,
     * also what was read for a step that was skipped: nearly always long ago. */
    if (verdict(z) || engine_wait(z, queues_tail(z->queues, QUEUE_UPDATE)) ||
        engine_wait(z, z->schedule.moved))
        return z->error.status;
    struct zero_step_info info = judge(z);
    if (!info.skipped)
        update_all(z, info.factor);
    z->skipped += info.skipped;
    info.step = z->steps;
    schedule_next_step(&z->schedule);
    z->step_io[(z->schedule.step + 1) % STEPS_KEPT] = (struct zero_io){0};
    if (!scaler_next(&z->scaler, info.skipped)) {
        error_set(
            &z->failure, ZERO_ERR_OVERFLOW,
            "Gradients of zero_step call %lld (updates performed: %lld) overflow although the "
            "loss scale is down to %g. Look for a loss that is not finite, lower the learning "
            "rate, or train in bf16.",
            (long long)z->schedule.step, (long long)z->steps, z->scaler.scale);
        z->error = z->failure;
        return z->error.status;
    }
    if (out)
        *out = info;
    return queues_status(z->queues, &z->error);
}
