// SPDX-License-Identifier: Apache-2.0
/* The run's life: create, train, finish. It uses the library as any program
 * would; everything that can fail on one rank alone is agreed upon at once, so
 * that no rank waits for one that is gone. */
#include "examples/gpt2/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/common/counter.h"
#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/common/part.h"
#include "examples/common/ranks.h"
#include "examples/common/refuse.h"
#include "examples/common/stop.h"
#include "examples/gpt2/checkpoint.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/limits.h"
#include "examples/gpt2/report.h"
#include "examples/gpt2/sample.h"
#include "examples/gpt2/tracing.h"

enum {
    EVAL_BATCHES = 8,    /* micro-batches of held-out text, over all ranks */
    SKIPS_MAX = 10,      /* steps skipped in a row before the run is given up */
    LOOKED_AT = 1 << 27, /* tokens of a rank's share between two meetings: 256 MiB */
    VOTE_UNHEARD = 8,    /* bit of zero_vote, beyond those of stop.h: run.unheard on rank 0 */
};

/* Stands for a loss that is not finite where only finite ones may be averaged;
 * no true loss comes near it. */
static const double not_finite = 1e60;

int run_check(struct run *r, int status)
{
    if (status == ZERO_OK)
        return 0;
    const char *sentence = r->model ? gpt_last_error(r->model) : "";
    if (!*sentence && r->z)
        sentence = zero_last_error(r->z);
    if (!r->error[0])
        snprintf(r->error, sizeof(r->error), "%s", *sentence ? sentence : zero_status_name(status));
    return -1;
}

int run_sum(struct run *r, int64_t value, int64_t *sum)
{
    double all = 0;
    int status = ranks_sum(r->z, (double)value, &all);
    *sum = llround(all);
    return run_check(r, status);
}

int run_most(struct run *r, int64_t value, int64_t *most)
{
    return run_check(r, ranks_most(r->z, value, most));
}

int run_agree(struct run *r, bool well)
{
    int64_t failed;
    if (run_sum(r, !well, &failed))
        return -1;
    return failed ? -1 : 0;
}

/* ------------------------------------------------------------------- create */

/* < 0: failed. */
static int is_alike(struct run *r, uint64_t hash)
{
    bool alike = false;
    return run_check(r, ranks_alike(r->z, hash, &alike)) ? -1 : alike;
}

/* Ranks with other options or files would train another model without a word. All are
 * compared at once, and one by one where they differ, so that the sentence names which. */
static int check_alike(struct run *r)
{
    struct argument_value values[ARGUMENTS_ALIKE];
    int count = arguments_alike(r->a, values);
    uint64_t hash = data_hash(&r->data);
    for (int i = 0; i < count; i++)
        hash = counter_hash(hash, &values[i].value, sizeof(values[i].value));
    int alike = is_alike(r, hash);
    if (alike)
        return alike < 0 ? -1 : 0;
    for (int i = 0; i < count; i++) {
        alike = is_alike(r, counter_hash(0, &values[i].value, sizeof(values[i].value)));
        if (alike < 0)
            return -1;
        if (alike)
            continue;
        char mine[64] = "";
        if (values[i].number)
            snprintf(mine, sizeof(mine), ": it is %.10g on this one", values[i].value);
        snprintf(r->error, sizeof(r->error),
                 "The ranks were not given the same %s%s. Start every rank with the same options.",
                 values[i].option, mine);
        return -1;
    }
    snprintf(r->error, sizeof(r->error),
             "The ranks were not given the same text; this one read %s with %s. Start "
             "every rank with the same files under --data%s.",
             counted(r->data.files, "file").text,
             counted(r->data.train + r->data.held, "token").text,
             r->a->eval_data.count ? " and --eval-data" : "");
    return -1;
}

/* Another model of GPU or another cuBLASLt chooses other algorithms. */
static int compare_gpus(struct run *r)
{
    const char *const names[] = {r->gpu->is.name, r->gpu->products};
    uint64_t hash = 0;
    for (int i = 0; i < 2; i++)
        hash = counter_hash(hash, names[i], strlen(names[i]) + 1);
    int alike = is_alike(r, hash);
    if (alike == 0 && zero_rank(r->z) == 0)
        fprintf(stderr,
                "rank 0: some ranks have another kind of GPU or cuBLASLt than this one (%s, %s): "
                "another run gives the same digest only if each rank has the same kind again.\n",
                r->gpu->name, names[1]);
    return alike < 0 ? -1 : 0;
}

/* Whether equal runs end in equal bits then depends on which rank is where. */
static int compare_products(struct run *r)
{
    int64_t tiles, ranks = zero_size(r->z);
    if (r->gpu)
        return compare_gpus(r);
    if (run_sum(r, matmul_in_tiles((enum zero_dtype)r->a->dtype), &tiles))
        return -1;
    if (tiles > 0 && tiles < ranks && zero_rank(r->z) == 0)
        fprintf(stderr,
                "rank 0: %lld of %lld ranks multiply with AMX, which adds in another order than "
                "the others: another run gives the same digest only if the same ranks use AMX.\n",
                (long long)tiles, (long long)ranks);
    return 0;
}

static bool log_fail(struct run *r)
{
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' cannot be written: %s. Give --log a file of its own, in a folder with free space "
           "that you may write to.",
           r->a->log, file_reason(errno));
    return false;
}

static bool log_open(struct run *r)
{
    if (!r->a->log || zero_rank(r->z) != 0)
        return true;
    r->log = file_create(r->a->log);
    return r->log || log_fail(r);
}

static int set_adam(struct run *r, double lr)
{
    const struct arguments *a = r->a;
    struct zero_adam adam = {.lr = lr,
                             .beta1 = a->beta1,
                             .beta2 = a->beta2,
                             .eps = a->eps,
                             .weight_decay = a->weight_decay,
                             .l2 = a->l2};
    return run_check(r, zero_set_adam(r->z, 0, &adam));
}

/* The highest rate, so that none of the steps' is refused later. */
static int set_numbers(struct run *r)
{
    if (set_adam(r, r->a->lr) || run_check(r, zero_set_clip(r->z, r->a->clip)))
        return -1;
    return run_check(r, zero_set_accumulate(r->z, r->a->accumulate));
}

/* What an older run has left goes once every rank is ready to run, but for rows of the steps that
 * this one goes on from. */
static bool log_begin(struct run *r)
{
    bool rows = r->log && file_is_regular(r->log);
    long kept = rows ? report_log_rows(r->a->log, r->before) : 0;
    if (r->log && (file_cut(r->log, kept) || (kept == 0 && report_log_header(r->log))))
        return log_fail(r);
    return true;
}

/* What this rank has for itself: the model's activations, batches, the log. */
static bool create_local(struct run *r)
{
    struct zero_stats stats;
    size_t tokens = (size_t)r->a->batch * (size_t)r->a->shape.seq;
    if (run_check(r, zero_stats(r->z, &stats)))
        return false;
    struct gpt_config config = arguments_model_config(r->a, stats.threads);
    config.gpu = r->gpu;
    config.stream = zero_stream(r->z);
    tracing_hook_model(r, &config);
    r->own = own_planned(r->a, &r->data, stats.threads);
    r->model = gpt_create(&config, r->error, sizeof(r->error));
    if (!r->model)
        return false;
    r->tokens = malloc(tokens * sizeof(int32_t));
    r->targets = malloc(tokens * sizeof(int32_t));
    r->losses = malloc((size_t)r->a->accumulate * sizeof(double));
    if (!r->tokens || !r->targets || !r->losses) {
        snprintf(r->error, sizeof(r->error),
                 "No memory is left for a batch of %zu tokens. Give a "
                 "smaller --batch or --seq.",
                 tokens);
        return false;
    }
    return log_open(r) && tracing_open(r) && checkpoint_open(r);
}

/* What is read is not written over. */
static int spare_input(const struct arguments *a, char *error, size_t error_size)
{
    char part[2][PART_PATH];
    const char *const written[][2] = {
        {"--log", a->log},
        {"--trace", a->trace},
        {"--trace", a->trace ? part_name(a->trace, part[0]) : NULL},
        {"--checkpoint", a->checkpoint},
        {"--checkpoint", a->checkpoint ? part_name(a->checkpoint, part[1]) : NULL},
    };
    const int data = a->data.count, all = data + a->eval_data.count;
    for (int w = 0; w < 5; w++)
        for (int i = 0; i <= all; i++) {
            const char *option = i < data ? "--data" : i < all ? "--eval-data" : "--tokenizer";
            const char *name = written[w][1], *input = i < data  ? a->data.items[i]
                                                       : i < all ? a->eval_data.items[i - data]
                                                                 : a->tokenizer;
            bool same = file_same(name, input);
            if (!same && !file_within(name, input))
                continue;
            return refuse((struct sink){error, error_size},
                          "'%s' %s of %s, '%s'%s. Give %s another one.", name,
                          same ? "is the file" : "lies in the folder", option, input,
                          same ? ", too" : "", written[w][0]);
        }
    return 0;
}

/* Whether what is held out is measured at all. */
static bool evaluates(const struct arguments *a)
{
    return a->eval_every > 0 && a->eval_every <= a->steps;
}

int run_find(struct arguments *a, struct data *data, char *error, size_t error_size)
{
    const struct data_names names = {.paths = a->data.items,
                                     .count = a->data.count,
                                     .held = a->eval_data.items,
                                     .held_count = a->eval_data.count};
    if (spare_input(a, error, error_size) ||
        data_find(data, &names, a->shape.seq, error, error_size))
        return -1;
    if (a->shape.vocab < data->vocab)
        a->shape.vocab = data->vocab;
    const char *unit = data->is_tokens ? "tokens" : "bytes";
    if (a->tokenizer && !data->is_tokens)
        snprintf(error, error_size,
                 "--tokenizer is for token files, and --data is text, whose "
                 "tokens are bytes. Leave --tokenizer out, or give token files.");
    else if (evaluates(a) && data->held < text_needs(a->shape.seq))
        snprintf(error, error_size,
                 "%lld %s of %s are held out, and --eval-every %d needs %lld for one sequence. "
                 "Give more with %s.",
                 (long long)data->held, unit,
                 counted(names.held_count ? data->held_files : data->files, "file").text,
                 a->eval_every, (long long)text_needs(a->shape.seq),
                 names.held_count ? "--eval-data" : "--data, or --eval-every 0");
    else
        return 0;
    data_free(data);
    return -1;
}

/* The rank's GPU is its own before the engine is made, which takes the thread's current one. */
static int gpu_open(struct run *r)
{
    /* CUDA's streams share 8 of these unless told otherwise, and then wait for each other. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    struct zero_gpu found;
    const struct gpu_plugin *plugin = gpu_plugin_open(r->error, sizeof(r->error));
    if (plugin && !zero_gpu_use(launch_find().local_rank, &found, r->error, sizeof(r->error)))
        r->gpu = plugin->open(&found, r->error, sizeof(r->error));
    return r->gpu ? 0 : -1;
}

/* Of host memory, behind the engine's. */
static int64_t bytes_to_take(const struct run *r)
{
    const struct launch l = launch_find();
    int threads = r->a->threads ? r->a->threads : launch_threads(&l);
    return own_planned(r->a, &r->data, threads).total;
}

/* The library's sentence of the host's memory knows what the program takes, and not what for. */
static void explain_data(struct run *r, const struct zero_config *config)
{
    size_t used = strlen(r->error);
    if (strstr(r->error, " of host memory ") && r->data.bytes > config->program_bytes / 4)
        snprintf(r->error + used, sizeof(r->error) - used,
                 " The text takes %s of each rank's memory: give less with --data, or token files, "
                 "which stay on the disk.",
                 in_bytes(r->data.bytes).text);
}

/* Ranks look at a share each of token files, and meet so often on the way that one whose disk is
 * slower is not overdue. Whether they have the same files is asked when these are known. */
static int read_data(struct run *r)
{
    int rank = zero_rank(r->z), ranks = zero_size(r->z);
    int64_t tokens = r->data.is_tokens ? r->data.train + r->data.held : 0;
    int64_t bytes = tokens * (int64_t)sizeof(uint16_t), most;
    if (run_most(r, tokens / ranks / LOOKED_AT + 1, &most))
        return -1;
    int parts = (int)most;
    r->printed = clock_now();
    for (int part = 0; part < parts; part++) {
        bool due = r->data.is_tokens || part == 0; /* text is read as a whole */
        if (run_agree(r, !due || data_read(&r->data, rank * parts + part, ranks * parts, r->error,
                                           sizeof(r->error)) == 0))
            return -1;
        report_part(r, "tokens", "checked", bytes * (part + 1) / parts, bytes);
    }
    return 0;
}

int run_create(struct run *r, struct arguments *a)
{
    *r = (struct run){.a = a};
    if (run_find(a, &r->data, r->error, sizeof(r->error)))
        return -1;
    if (a->tokenizer &&
        tokenizer_load(&r->tokenizer, a->tokenizer, a->shape.vocab, r->error, sizeof(r->error)))
        return -1;
    if (gpt_params(&a->shape, (uint64_t)a->seed, &r->params, &r->count)) {
        snprintf(r->error, sizeof(r->error),
                 "A model of %d layers and %d channels cannot be "
                 "described. Give a smaller one.",
                 a->shape.layers, a->shape.channels);
        return -1;
    }
    struct zero_config config = arguments_config(a);
    config.program_bytes = bytes_to_take(r);
    if (a->device == ZERO_CUDA && gpu_open(r))
        return -1;
    if (tracing_create(r, &config))
        return -1;
    int status = zero_create(&r->z, r->params, r->count, &config);
    if (!r->z)
        status = ZERO_ERR_MEMORY;
    if (run_check(r, status)) {
        if (status == ZERO_ERR_MEMORY)
            explain_data(r, &config);
        return -1;
    }
    if (read_data(r))
        return -1;
    stop_watch(r->z);
    if (check_alike(r) || compare_products(r) || run_agree(r, create_local(r)) || set_numbers(r) ||
        checkpoint_load(r) || run_agree(r, tracing_begin(r)))
        return -1;
    return run_agree(r, log_begin(r));
}

/* The bytes of one step, over all ranks, complete the pending row, and it is
 * written. done: of that step, to its last write. */
static int row_finish(struct run *r, const struct zero_io *done)
{
    if (!r->a->log || !r->pending.step)
        return 0;
    struct step_record *row = &r->pending;
    if (run_sum(r, done->state_read + done->param_read, &row->read_bytes) ||
        run_sum(r, done->state_written + done->param_written, &row->written_bytes))
        return -1;
    report_row(r, row);
    row->step = 0;
    return 0;
}

/* Of a run that failed: the pending row with what this rank knows. */
static void row_abandon(struct run *r)
{
    if (r->log && r->pending.step)
        report_row(r, &r->pending);
    r->pending.step = 0;
}

void run_destroy(struct run *r)
{
    row_abandon(r);
    if (r->log)
        fclose(r->log);
    tracing_close(r);
    checkpoint_close(r);
    gpt_destroy(r->model);
    stop_watch(NULL);
    zero_destroy(r->z);
    if (r->gpu)
        r->gpu->plugin->close(r->gpu);
    trace_destroy(r->trace);
    free(r->params);
    data_free(&r->data);
    tokenizer_free(&r->tokenizer);
    free(r->tokens);
    free(r->targets);
    free(r->losses);
}

/* -------------------------------------------------------------------- train */

/* The mean of losses over all ranks; NAN when one of them is not finite. */
static int mean_loss(struct run *r, double *losses, int count, double *mean)
{
    for (int i = 0; i < count; i++)
        if (!isfinite(losses[i]))
            losses[i] = not_finite;
    *mean = 0;
    int status = zero_mean(r->z, losses, count, mean);
    if (*mean > 1e-20 * not_finite)
        *mean = NAN;
    return run_check(r, status);
}

/* Micro-batches of held-out text are dealt round-robin like those of training.
 * Where the ranks do not divide them, some compute one more, uncounted, since
 * all have to take part in every gather. */
static int evaluate(struct run *r, struct step_record *record)
{
    const struct arguments *a = r->a;
    int rank = zero_rank(r->z), ranks = zero_size(r->z), counted = 0;
    double losses[EVAL_BATCHES];
    int status = zero_phase(r->z, ZERO_EVAL);
    for (int first = 0; status == ZERO_OK && first < EVAL_BATCHES; first += ranks) {
        double one = 0;
        if (data_batch(&r->data, true, ~(uint64_t)a->seed, first + rank, a->batch, a->shape.seq,
                       r->tokens, r->targets, r->error, sizeof(r->error)))
            return -1;
        status = gpt_eval(r->model, r->z, r->tokens, r->targets, &one);
        if (first + rank < EVAL_BATCHES)
            losses[counted++] = one;
    }
    if (run_check(r, status) || mean_loss(r, losses, counted, &record->eval_loss))
        return -1;
    r->held_step = record->step;
    r->held_loss = record->eval_loss;
    return run_check(r, zero_phase(r->z, ZERO_TRAIN));
}

/* Forward and backward of one step's micro-batches. */
static int micro_steps(struct run *r, int64_t step)
{
    const struct arguments *a = r->a;
    int status = ZERO_OK;
    for (int i = 0; status == ZERO_OK && i < a->accumulate; i++) {
        int64_t number = (step * a->accumulate + i) * zero_size(r->z) + zero_rank(r->z);
        if (data_batch(&r->data, false, (uint64_t)a->seed, number, a->batch, a->shape.seq,
                       r->tokens, r->targets, r->error, sizeof(r->error)))
            return -1;
        status = gpt_train(r->model, r->z, r->tokens, r->targets, &r->losses[i]);
    }
    return run_check(r, status);
}

/* What the engine counted between the last step's return and this one's: time
 * only, as the update goes on behind the next forward pass. Bytes the engine
 * counts by step, and those of a step are complete when the next one is made.
 * What completing a row waited for is no step's. */
static int take_counters(struct run *r, struct zero_stats *last, struct step_record *record)
{
    struct zero_stats now;
    if (run_check(r, zero_stats(r->z, &now)))
        return -1;
    record->wait = now.wait_seconds - last->wait_seconds;
    const int update = ZERO_LANE_UPDATE;
    record->update = now.lanes[update].busy_seconds - last->lanes[update].busy_seconds;
    record->read_bytes = now.step_io[1].state_read + now.step_io[1].param_read;
    record->written_bytes = now.step_io[1].state_written + now.step_io[1].param_written;
    *last = now;
    if (row_finish(r, &now.step_io[0]) || run_check(r, zero_stats(r->z, &now)))
        return -1;
    last->wait_seconds = now.wait_seconds;
    return 0;
}

/* What all ranks have agreed on: the signal that ends the run, or 0; behind the last step it ends
 * anyway. They meet again behind their last updates, of which one may take as long as the longest
 * step, which had the update before it in it; the first step has none. */
static void take_stop(struct run *r, int64_t step, int number)
{
    const struct arguments *a = r->a;
    r->stopped = step < a->steps ? number : 0;
    if (r->stopped || step == a->steps)
        stop_agreed(a->deadline + (int)ceil(r->longest));
}

static int train_step(struct run *r, struct zero_stats *last, struct step_record *record)
{
    const struct arguments *a = r->a;
    struct zero_step_info info = {.loss_scale = 1};
    double begun = clock_now(), multiplied = r->gpu ? r->gpu->plugin->flops(r->gpu) : 0;
    int64_t step = record->step - 1;
    record->lr = arguments_lr(a, step);
    if (set_adam(r, record->lr) || micro_steps(r, step) ||
        mean_loss(r, r->losses, a->accumulate, &record->loss) || run_check(r, stop_vote(r->z)) ||
        (r->unheard && run_check(r, zero_vote(r->z, VOTE_UNHEARD))) ||
        run_check(r, zero_step(r->z, &info)) || info.votes >> VOTE_UNHEARD & 1)
        return -1;
    record->norm = info.norm;
    record->times = gpt_times_take(r->model);
    r->computed += record->times.busy;
    r->multiplied += r->gpu ? r->gpu->plugin->flops(r->gpu) - multiplied : 0;
    r->made++;
    record->skipped = info.skipped;
    record->loss_scale = info.loss_scale;
    record->seconds = clock_now() - begun;
    r->longest = fmax(r->longest, record->seconds);
    take_stop(r, record->step, stop_voted(info.votes));
    tracing_step(r, begun);
    if (take_counters(r, last, record))
        return -1;
    r->seconds += record->seconds;
    r->waited += record->wait;
    r->recent[(r->made - 1) % RECENT] = record->loss;
    return 0;
}

/* What is done between two steps, and signals that came meanwhile are heard. What it waited is not
 * the next step's. What it gathered or read is, for the engine counts bytes from one zero_step to
 * the next. */
static int apart(struct run *r, struct zero_stats *last, struct step_record *record,
                 int (*what)(struct run *r, struct step_record *record))
{
    struct run_mark before, after;
    int64_t number;
    if (limits_mark(r, &before) || what(r, record) || run_most(r, stop_asked(), &number) ||
        limits_mark(r, &after))
        return -1;
    last->wait_seconds += after.stats.wait_seconds - before.stats.wait_seconds;
    limits_leave_out(r, &before, &after);
    take_stop(r, record->step, (int)number);
    return 0;
}

/* What cannot be written is told at once, with what follows from it: another failure may come. */
static int keep(struct run *r, int64_t step, const struct zero_digest *digest, const char *follows)
{
    if (checkpoint_save(r, step, digest, &r->kept))
        return -1;
    if (!r->kept && zero_rank(r->z) == 0)
        report_aside(r, follows);
    if (!r->kept)
        r->error[0] = 0;
    return 0;
}

/* Behind the step's row, which a run that goes on from here does not make. */
static int save(struct run *r, struct step_record *record)
{
    struct zero_digest digest;
    struct zero_stats stats;
    if (run_check(r, zero_digest(r->z, &digest)) || run_check(r, zero_stats(r->z, &stats)) ||
        row_finish(r, &stats.step_io[1]))
        return -1;
    return keep(r, record->step, &digest, "The run goes on.");
}

static bool is_due(const struct run *r, int every, int64_t step)
{
    return every && step % every == 0 && !r->stopped;
}

int run_train(struct run *r)
{
    const struct arguments *a = r->a;
    struct zero_stats last;
    if (run_check(r, zero_stats(r->z, &last)) || tracing_start(r))
        return -1;
    report_start(r);
    r->printed = clock_now();
    if (limits_mark(r, &r->begun))
        return -1;
    bool adapts = arguments_scale_adapts(a); /* then the engine ends it */
    for (int step = (int)r->before + 1, skips = 0; step <= a->steps && !r->stopped; step++) {
        struct step_record record = {.step = step};
        if (train_step(r, &last, &record))
            return -1;
        r->pending = record; /* should measuring what is held out end the run */
        record.evaluated = is_due(r, a->eval_every, step) || (evaluates(a) && step == a->steps);
        if (record.evaluated && apart(r, &last, &record, evaluate))
            return -1;
        report_step(r, &record);
        r->pending = record;
        if (step < a->steps && is_due(r, a->checkpoint_every, step) &&
            apart(r, &last, &record, save))
            return -1;
        skips = record.skipped ? skips + 1 : 0;
        if ((skips == SKIPS_MAX || skips == a->steps) && !adapts) {
            snprintf(r->error, sizeof(r->error),
                     "%s in a row %s skipped, up to step %d, because gradients were not finite. "
                     "Lower --lr%s%s.",
                     counted(skips, "step").text, skips == 1 ? "was" : "were", step,
                     a->loss_scale > 0 ? ", leave --loss-scale out" : "",
                     a->dtype == ZERO_FP32 ? "" : ", or give --dtype fp32");
            return -1;
        }
        if (step == a->steps && skips && !isfinite(record.loss)) {
            snprintf(r->error, sizeof(r->error),
                     "The run ends with %s skipped and a loss of %g. Lower --lr.",
                     counted(skips, "step").text, record.loss);
            return -1;
        }
    }
    return run_agree(r, !r->unheard);
}

/* ------------------------------------------------------------------- finish */

/* Closes the log; whether all of it was written. */
static bool log_close(struct run *r)
{
    if (!r->log)
        return true;
    bool well = !ferror(r->log);
    well = fclose(r->log) == 0 && well;
    r->log = NULL;
    if (!well)
        refuse(
            (struct sink){r->error, sizeof(r->error)},
            "'%s' could not be written to its end. Give --log a file with room to grow (its disk, "
            "quota, ulimit -f).",
            r->a->log);
    return well;
}

/* The way to compare two runs: equal for equal masters and moments, wherever
 * these rest. */
static int print_digest(struct run *r, const struct zero_digest *d)
{
    bool well = true;
    if (zero_rank(r->z) == 0) {
        printf("digest master=%016" PRIx64 " m=%016" PRIx64 " v=%016" PRIx64 "\n", d->master,
               d->moment1, d->moment2);
        well = file_printed();
    }
    if (!well && !r->error[0])
        snprintf(r->error, sizeof(r->error), "Standard output could not be written.");
    return run_agree(r, well);
}

/* What is printed: the digest, which reads all of the state, was taken before and comes last; a
 * run that was stopped has none. */
static int print_end(struct run *r, const struct zero_digest *digest)
{
    if (!r->a->quiet && report_end(r))
        return -1;
    if (r->stopped)
        return 0;
    if (!r->a->quiet && sample_write(r))
        return -1;
    return print_digest(r, digest);
}

/* First of all the last update comes to its end, so that the reports and the last row count all
 * of it. A checkpoint, a log or a trace that could not be written is a failure, and all the rest is
 * told. */
int run_finish(struct run *r)
{
    struct zero_digest digest;
    struct zero_stats stats;
    double begun = clock_now();
    if (run_check(r, zero_wait(r->z)) || limits_mark(r, &r->ended))
        return -1;
    r->seconds += r->ended.when - begun; /* of the last update, which no step was behind */
    r->waited += r->ended.when - begun;
    bool keeps = r->a->checkpoint, reads = keeps || !r->stopped;
    int status = reads ? zero_digest(r->z, &digest) : ZERO_OK;
    if (run_check(r, status) || run_check(r, zero_stats(r->z, &stats)) ||
        row_finish(r, &stats.step_io[1]) ||
        (keeps && keep(r, r->before + r->made, &digest, "The run ends with status 1.")))
        return -1;
    int logged = run_agree(r, log_close(r)), traced = tracing_write(r);
    return print_end(r, &digest) || logged || traced || (keeps && !r->kept) ? -1 : 0;
}
