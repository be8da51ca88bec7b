// SPDX-License-Identifier: Apache-2.0
/* The public calls of a run: check arguments and state, ask the schedule, wait where
 * the contract says so. Nothing is decided here. Those that look into an engine's state, or
 * need no engine, are in inspect.c. */
#include <fenv.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "src/engine.h"

int zero_create(struct zero **z, const struct zero_param *params, int count,
                const struct zero_config *config)
{
    return engine_create(z, params, count, config, NULL);
}

const char *zero_last_error(const struct zero *z)
{
    return z ? z->error.text
             : "There is no engine: NULL was passed, or zero_create had no memory for one."
               " Pass an engine, or free some memory.";
}

int zero_rank(const struct zero *z)
{
    return z ? z->rank : 0;
}

int zero_size(const struct zero *z)
{
    return z ? z->size : 0;
}

/* Every call comes in here: a failed engine stays failed, any other error was
 * the last call's. In a forked child nothing that the engine's threads may have held
 * is touched. */
int engine_enter(struct zero *z)
{
    if (!z || !z->created) /* it has its sentence, unless a fill calls while it is being made */
        return engine_status(z);
    z->error = z->failure;
    if (z->error.status)
        return z->error.status;
    if (z->process != getpid())
        return error_set(&z->error, ZERO_ERR_STATE,
                         "This process (%d) was forked from the one that made the engine (%d), and "
                         "has none of its threads. Make engines after the fork, not before it.",
                         (int)getpid(), (int)z->process);
    if (!kernels_thread_rounds_to_nearest())
        return error_set(&z->error, ZERO_ERR_STATE,
                         "The calling thread does not round to nearest (fegetround gives %d), so "
                         "results would differ. Call fesetround(FE_TONEAREST) first.",
                         fegetround());
    return queues_status(z->queues, &z->error);
}

static int enter_unit(struct zero *z, int unit, const char *call)
{
    if (engine_enter(z))
        return engine_status(z);
    if (unit < 0 || unit >= z->layout.units)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "%s of unit %d, but the model has units 0 to %d. Pass one of them.", call,
                         unit, z->layout.units - 1);
    return ZERO_OK;
}

int engine_enter_param(struct zero *z, int param, const char *call)
{
    if (engine_enter(z))
        return engine_status(z);
    if (param < 0 || param >= z->layout.count)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "%s of tensor %d, but the model has tensors 0 to %d. Pass one of them.",
                         call, param, z->layout.count - 1);
    return ZERO_OK;
}

static int check_released(struct zero *z, const char *call)
{
    for (int u = 0; u < z->layout.units; u++)
        if (z->schedule.units[u].acquired)
            return error_set(&z->error, ZERO_ERR_STATE,
                             "%s while unit %d is acquired. Release it first.", call, u);
    return ZERO_OK;
}

void *zero_stream(const struct zero *z)
{
    return z && z->created ? z->device->stream : NULL;
}

/* ------------------------------------------------------------- parameters */

int zero_phase(struct zero *z, enum zero_phase phase)
{
    if (engine_enter(z))
        return engine_status(z);
    if (phase != ZERO_TRAIN && phase != ZERO_EVAL)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_phase got %d. Use ZERO_TRAIN or ZERO_EVAL.", (int)phase);
    if (check_released(z, "zero_phase"))
        return engine_status(z);
    if (z->schedule.reduces > 0 || schedule_grads_held(&z->schedule))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_phase within a micro-step with %d of %d units reduced. Reduce the "
                         "others first, or call zero_discard.",
                         z->schedule.reduces, z->layout.units);
    schedule_call(&z->schedule, "zero_phase", (int64_t)phase, 0);
    schedule_phase(&z->schedule, phase);
    return ZERO_OK;
}

/* How many chunks, from the first on, a unit waits for: where each rank has all of the state they
 * meet in no gather before that of the next step's gradients. */
static int64_t live_chunks(const struct zero *z, int unit)
{
    int64_t end = plan_part_begin(&z->plan, &z->layout, unit, PART_LIVE) +
                  plan_part_count(&z->plan, &z->layout, unit, PART_LIVE);
    return (end + z->plan.chunk - 1) / z->plan.chunk;
}

int zero_acquire(struct zero *z, int unit)
{
    if (enter_unit(z, unit, "zero_acquire"))
        return engine_status(z);
    if (!schedule_can_acquire(&z->schedule, unit))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_acquire of unit %d: every gather slot it fits in (of %d) holds an "
                         "acquired unit. Release one first, or raise .gather_slots.",
                         unit, z->plan.gather_slots);
    schedule_call(&z->schedule, "zero_acquire", unit, 0);
    if (z->plan.whole_state && engine_settle(z, "zero_acquire", live_chunks(z, unit)))
        return engine_status(z);
    return engine_wait(z, schedule_acquire(&z->schedule, unit));
}

int zero_release(struct zero *z, int unit)
{
    if (enter_unit(z, unit, "zero_release"))
        return engine_status(z);
    if (!z->schedule.units[unit].acquired)
        return error_set(
            &z->error, ZERO_ERR_STATE,
            "zero_release of unit %d, which is not acquired. Release a unit as often as "
            "it was acquired.",
            unit);
    schedule_call(&z->schedule, "zero_release", unit, 0);
    schedule_release(&z->schedule, unit);
    return ZERO_OK;
}

const void *zero_param_data(struct zero *z, int param)
{
    if (engine_enter_param(z, param, "zero_param_data"))
        return NULL;
    const struct tensor *t = &z->layout.tensors[param];
    if (!z->schedule.units[t->unit].acquired) {
        error_set(&z->error, ZERO_ERR_STATE,
                  "zero_param_data of tensor %s, whose unit %d is not acquired. Acquire it first.",
                  t->name, t->unit);
        return NULL;
    }
    return params_usable(z, t->unit) + t->offset * z->plan.element;
}

/* -------------------------------------------------------------- gradients */

/* Of a micro-step that has not ended. */
static int first_unreduced(const struct zero *z)
{
    int unit = 0;
    while (z->schedule.units[unit].reduced)
        unit++;
    return unit;
}

static int check_micro_step(struct zero *z, int unit, const char *call, const char *advice)
{
    const struct schedule *s = &z->schedule;
    if (s->phase != ZERO_TRAIN)
        return error_set(&z->error, ZERO_ERR_STATE,
                         "%s of unit %d in ZERO_EVAL, which has no "
                         "gradients. Call zero_phase(z, ZERO_TRAIN) first.",
                         call, unit);
    if (schedule_step_complete(s))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "%s of unit %d: all %d micro-steps of this step "
                         "are reduced. Call zero_step first, or zero_set_accumulate before the "
                         "step for more of them.",
                         call, unit, s->accumulate);
    if (s->units[unit].reduced)
        return error_set(&z->error, ZERO_ERR_STATE,
                         "%s of unit %d, which is reduced already in this micro-step: %d of %d "
                         "units are, unit %d is not. %s.",
                         call, unit, s->reduces, z->layout.units, first_unreduced(z), advice);
    return ZERO_OK;
}

/* The unit's gradient slot, zeroed when it is new. */
static int hold_grads(struct zero *z, int unit)
{
    struct ref ready;
    bool fresh = z->schedule.units[unit].grad < 0;
    int slot = schedule_grad_slot(&z->schedule, unit, &ready);
    if (slot < 0)
        return error_set(
            &z->error, ZERO_ERR_STATE,
            "Gradients of unit %d: every gradient slot it fits in (of %d) holds a unit "
            "that was not reduced yet. Reduce one first, or raise .grad_slots.",
            unit, z->plan.grad_slots);
    if (!fresh)
        return ZERO_OK;
    if (engine_wait(z, ready))
        return engine_status(z);
    int64_t elements = z->layout.unit[unit].part[PART_LIVE].elements;
    z->device->ops->clear(z->device, DEVICE_COMPUTE, grads_slot(z, slot),
                          elements * z->plan.element);
    return ZERO_OK;
}

void *zero_grad_data(struct zero *z, int param)
{
    if (engine_enter_param(z, param, "zero_grad_data"))
        return NULL;
    const struct tensor *t = &z->layout.tensors[param];
    if (t->frozen) {
        error_set(
            &z->error, ZERO_ERR_ARGUMENT,
            "zero_grad_data of tensor %s, which is frozen and has no gradient. Leave it out, or "
            "create it without ZERO_FROZEN.",
            t->name);
        return NULL;
    }
    if (check_micro_step(z, t->unit, "zero_grad_data",
                         "Ask for gradients before the unit's reduce") ||
        hold_grads(z, t->unit))
        return NULL;
    return grads_slot(z, z->schedule.units[t->unit].grad) + t->offset * z->plan.element;
}

int zero_reduce(struct zero *z, int unit)
{
    if (enter_unit(z, unit, "zero_reduce") ||
        check_micro_step(z, unit, "zero_reduce", "Reduce each unit once"))
        return engine_status(z);
    bool trains = z->layout.unit[unit].part[PART_LIVE].elements > 0;
    if (trains && hold_grads(z, unit))
        return engine_status(z);
    schedule_call(&z->schedule, "zero_reduce", unit, 0);
    z->grads_divisor = (double)((int64_t)z->size * z->schedule.accumulate) * z->scaler.scale;
    schedule_reduce(&z->schedule, unit);
    return ZERO_OK;
}

/* -------------------------------------------------------------------- steps */

int zero_step(struct zero *z, struct zero_step_info *info)
{
    if (engine_enter(z))
        return engine_status(z);
    const struct schedule *s = &z->schedule;
    if (!schedule_step_complete(s) && s->phase != ZERO_TRAIN)
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_step in ZERO_EVAL, which has no gradients. Call zero_phase(z, "
                         "ZERO_TRAIN) first.");
    if (!schedule_step_complete(s))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_step in micro-step %d of %d with %d of %d units reduced, unit %d "
                         "not. Reduce every unit in every micro-step first.",
                         s->micro + 1, s->accumulate, s->reduces, z->layout.units,
                         first_unreduced(z));
    if (check_released(z, "zero_step"))
        return engine_status(z);
    for (int i = 0; i < z->layout.count; i++)
        if (!z->layout.tensors[i].frozen && z->adam[z->layout.tensors[i].group].eps == 0)
            return error_set(&z->error, ZERO_ERR_STATE,
                             "zero_step while group %d (tensor %s) has no hyper-parameters. Call "
                             "zero_set_adam first.",
                             z->layout.tensors[i].group, z->layout.tensors[i].name);
    fenv_t program; /* whose modes may flush denormals, or trap what is small */
    fegetenv(&program);
    kernels_thread_init();
    schedule_call(&z->schedule, "zero_step", 0, 0);
    z->grads_whole = true;
    int status = step_finish(z, info);
    fesetenv(&program);
    return status;
}

static int64_t double_bits(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

int engine_enter_between_steps(struct zero *z, const char *call)
{
    if (engine_enter(z))
        return engine_status(z);
    if (schedule_step_open(&z->schedule))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "%s within a step: some of its gradients are "
                         "reduced. Call it between zero_step and the next zero_reduce.",
                         call);
    return ZERO_OK;
}

/* As the kernels use them: none overflows, and eps keeps 0 / 0 away. */
static bool adam_fits(const struct zero_adam *a)
{
    fenv_t program; /* whose modes may trap what is asked here, or flush a small eps */
    fegetenv(&program);
    kernels_thread_init();
    bool good = isfinite(a->lr) && a->lr >= 0 && a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 &&
                a->beta2 < 1 && isfinite(a->eps) && a->eps > 0 && isfinite(a->weight_decay) &&
                a->weight_decay >= 0;
    good = good && (float)a->eps > 0 && isfinite((float)a->eps) &&
           isfinite((float)a->weight_decay) && isfinite((float)(a->lr / (1 - a->beta1))) &&
           (a->l2 || isfinite((float)(a->lr * a->weight_decay)));
    fesetenv(&program);
    return good;
}

static int check_adam(struct zero *z, int group, const struct zero_adam *a)
{
    if (group < 0 || group >= z->layout.groups)
        return error_set(
            &z->error, ZERO_ERR_ARGUMENT,
            "zero_set_adam of group %d, but the model has groups 0 to %d. Pass one of them.", group,
            z->layout.groups - 1);
    if (!a)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_adam of group %d with NULL. Pass a struct zero_adam.", group);
    if (adam_fits(a))
        return ZERO_OK;
    return error_set(
        &z->error, ZERO_ERR_ARGUMENT,
        "zero_set_adam to lr %g, beta1 %g, beta2 %g, eps %g, weight_decay %g. Use lr and "
        "weight_decay of 0 or more, betas in [0, 1), eps above 0, all of them, lr / (1 - beta1) "
        "and, without l2, lr * weight_decay within fp32.",
        a->lr, a->beta1, a->beta2, a->eps, a->weight_decay);
}

int zero_set_adam(struct zero *z, int group, const struct zero_adam *a)
{
    if (engine_enter(z) || check_adam(z, group, a))
        return engine_status(z);
    /* A group that was forgotten may still be set: zero_step has asked for it. */
    if (z->adam[group].eps > 0 && engine_enter_between_steps(z, "zero_set_adam"))
        return engine_status(z);
    const double fields[] = {a->lr, a->beta1, a->beta2, a->eps, a->weight_decay, a->l2};
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        schedule_call(&z->schedule, "zero_set_adam", group, double_bits(fields[i]));
    z->adam[group] = *a;
    return ZERO_OK;
}

int zero_set_clip(struct zero *z, double max_norm)
{
    if (engine_enter_between_steps(z, "zero_set_clip"))
        return engine_status(z);
    if (!isfinite(max_norm) || max_norm < 0)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_clip to %g. Use a norm above 0, or 0 for no clipping.",
                         max_norm);
    schedule_call(&z->schedule, "zero_set_clip", double_bits(max_norm), 0);
    z->clip = max_norm;
    return ZERO_OK;
}

int zero_set_accumulate(struct zero *z, int micro_steps)
{
    if (engine_enter_between_steps(z, "zero_set_accumulate"))
        return engine_status(z);
    if (micro_steps < 1)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_accumulate to %d micro-steps. Use "
                         "1 or more.",
                         micro_steps);
    if (micro_steps > 1 && z->plan.grad < 4)
        return error_set(
            &z->error, ZERO_ERR_UNSUPPORTED,
            "zero_set_accumulate to %d micro-steps: bf16 gradients were planned for one, without "
            "memory for the fp32 sums of several. Set .accumulate above 1 in the configuration.",
            micro_steps);
    schedule_call(&z->schedule, "zero_set_accumulate", micro_steps, 0);
    z->schedule.accumulate = micro_steps;
    engine_tell_order(z);
    return ZERO_OK;
}

#define PROGRESS_MOST ((int64_t)1 << 53) /* steps */

static bool scale_valid(const struct zero_progress *p)
{
    return scaler_holds(p->loss_scale) && p->since_skip >= 0 && p->since_skip <= PROGRESS_MOST &&
           p->forgiven >= 0 && p->forgiven < SCALER_HYSTERESIS;
}

int zero_set_progress(struct zero *z, const struct zero_progress *p)
{
    if (engine_enter_between_steps(z, "zero_set_progress"))
        return engine_status(z);
    if (!p)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_progress to NULL. Pass a struct zero_progress.");
    if (schedule_grads_held(&z->schedule))
        return error_set(&z->error, ZERO_ERR_STATE,
                         "zero_set_progress after zero_grad_data, whose gradients have the old "
                         "loss scale. Call zero_discard first, or zero_reduce and zero_step.");
    if (p->steps < 0 || p->steps > PROGRESS_MOST)
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_progress to %lld steps. Use 0 to 2^53.", (long long)p->steps);
    if (z->scaler.dynamic && !scale_valid(p))
        return error_set(&z->error, ZERO_ERR_ARGUMENT,
                         "zero_set_progress to loss scale %g (2^-64 to 2^64), %lld steps since one "
                         "was skipped (0 to 2^53), %lld forgiven (0 or 1). Pass what zero_progress "
                         "gave, of which only the steps may be changed.",
                         p->loss_scale, (long long)p->since_skip, (long long)p->forgiven);
    schedule_call(&z->schedule, "zero_set_progress", p->steps, double_bits(p->loss_scale));
    schedule_call(&z->schedule, "zero_set_progress", p->since_skip, p->forgiven);
    z->steps = p->steps;
    if (z->scaler.dynamic)
        z->scaler = (struct scaler){.scale = p->loss_scale,
                                    .dynamic = true,
                                    .hysteresis = (int)p->forgiven + 1,
                                    .good = p->since_skip};
    return ZERO_OK;
}

double zero_loss_scale(const struct zero *z)
{
    return z && z->created ? z->scaler.scale : 1;
}

int zero_vote(struct zero *z, int bit)
{
    if (engine_enter(z))
        return engine_status(z);
    if (bit < 0 || bit > 31)
        return error_set(&z->error, ZERO_ERR_ARGUMENT, "zero_vote for bit %d. Use 0 to 31.", bit);
    z->votes |= (uint32_t)1 << bit;
    return ZERO_OK;
}

/* Of another thread's engine, or in a signal handler: nothing else is touched. */
int zero_set_deadline(struct zero *z, int seconds)
{
    if (!z || seconds < 1 || seconds > DEADLINE_SECONDS_MAX)
        return ZERO_ERR_ARGUMENT;
    __atomic_store_n(&z->deadline, seconds, __ATOMIC_RELAXED);
    return ZERO_OK;
}

int zero_discard(struct zero *z)
{
    if (engine_enter(z) || check_released(z, "zero_discard"))
        return engine_status(z);
    schedule_call(&z->schedule, "zero_discard", 0, 0);
    z->grads_whole = z->grads_whole && !schedule_step_open(&z->schedule);
    schedule_discard(&z->schedule);
    /* The norm is the engine thread's until the last reduce is done. */
    struct wide dropped;
    if (!engine_wait(z, z->schedule.last_reduce) &&
        z->device->ops->norm(z->device, &dropped, &z->error))
        engine_device_failed(z);
    return engine_status(z);
}

int zero_mean(struct zero *z, const double *values, int count, double *mean)
{
    if (engine_enter(z))
        return engine_status(z);
    if (count < 0 || (count > 0 && !values) || !mean)
        return error_set(
            &z->error, ZERO_ERR_ARGUMENT,
            "zero_mean of %d values%s%s. Pass 0 or more values, and an address for the mean.",
            count, values ? "" : " at NULL", mean ? "" : " into NULL");
    schedule_call(&z->schedule, "zero_mean", 0, 0);
    struct wide sum = {0};
    int64_t *words = z->verdict;
    for (int i = 0; i < count; i++)
        wide_add(&sum, values[i]);
    wide_carry(&sum);
    memcpy(words, sum.limb, sizeof(sum.limb));
    words[WIDE_LIMBS] = sum.nonfinite;
    words[WIDE_LIMBS + 1] = count;
    if (engine_wait(
            z, schedule_sum(&z->schedule, "zero_mean", words, (WIDE_LIMBS + 2) * sizeof(*words))))
        return engine_status(z);
    memcpy(sum.limb, words, sizeof(sum.limb));
    bool good = words[WIDE_LIMBS] == 0 && words[WIDE_LIMBS + 1] > 0;
    *mean = good ? wide_value(&sum) / (double)words[WIDE_LIMBS + 1] : NAN;
    return ZERO_OK;
}
