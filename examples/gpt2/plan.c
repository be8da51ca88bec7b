// SPDX-License-Identifier: Apache-2.0
/* The plan is the library's; the program adds what its own carving counts. */
#include "examples/gpt2/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/common/predict.h"
#include "examples/common/stream.h"
#include "examples/gpt2/checkpoint.h"
#include "examples/gpt2/sample.h"
#include "examples/gpt2/trace.h"
#include "examples/gpt2/train.h"

/* ---------------------------------------------------------------- own bytes */

struct own_bytes own_planned(const struct arguments *a, const struct data *data, int threads)
{
    struct gpt_config config = arguments_model_config(a, threads);
    int64_t rows = (int64_t)a->batch * a->shape.seq, sample = a->quiet ? 0 : a->sample;
    struct own_bytes own = {.model = gpt_plan_bytes(&config), .data = data->bytes};
    if (a->device == ZERO_CUDA) {
        own.gpu = own.model;
        own.model = gpt_plan_pinned(&config);
    }
    own.buffers = 2 * rows * (int64_t)sizeof(int32_t) + a->accumulate * (int64_t)sizeof(double);
    if (a->trace)
        own.buffers += trace_plan_bytes(TRACE_SPANS);
    own.buffers += checkpoint_room(a);
    if (sample > 0) /* logits, and what was drawn */
        own.buffers += a->shape.vocab * (int64_t)sizeof(float) + sample * (int64_t)sizeof(int32_t) +
                       sample_bytes(a);
    own.total = own.model + own.data + own.buffers;
    return own;
}

/* ----------------------------------------------------------------- printing */

void plan_print_task(const struct arguments *a, const struct data *data, int ranks)
{
    const struct gpt_shape *shape = &a->shape;
    int64_t tokens = (int64_t)a->batch * shape->seq * a->accumulate * ranks;
    char unreadable[48] = "", links[48] = "";
    if (data->text.unreadable)
        snprintf(unreadable, sizeof(unreadable), "; %d cannot be read", data->text.unreadable);
    if (data->paths.passed_over)
        snprintf(links, sizeof(links), ", %d passed over (links)", data->paths.passed_over);
    printf("model %s: %s parameters in %s; %s, %s, %s, %s, vocabulary %d\n", arguments_model(a),
           in_words(gpt_param_count(shape)).text, arguments_dtype(a),
           counted(shape->layers, "layer").text, counted(shape->channels, "channel").text,
           counted(shape->heads, "head").text, counted(shape->seq, "token").text, shape->vocab);
    if (data->is_tokens)
        printf("tokens: %s, %lld to train on, %lld held out (%s)%s\n",
               counted(data->files, "file").text, (long long)data->train, (long long)data->held,
               counted(data->held_files, "file").text, links);
    else
        printf(
            "text: %s, %s to train on, %s held out (%s), %d passed over (links, or not text%s)\n",
            counted(data->files, "file").text, in_bytes(data->train).text,
            in_bytes(data->held).text, counted(data->held_files, "file").text,
            data->text.passed_over, unreadable);
    printf("step: %s x %s x %s = %s; %s\n", counted(a->batch, "sequence").text,
           counted(a->accumulate, "micro-step").text, counted(ranks, "rank").text,
           counted(tokens, "token").text, counted(a->steps, "step").text);
}

static void print_place(const char *name, const struct zero_bytes *b)
{
    printf("  %-8s %12s %12s %12s %12s %12s\n", name, in_bytes(b->params).text,
           in_bytes(b->grads).text, in_bytes(b->state).text, in_bytes(b->slots).text,
           in_bytes(b->total).text);
}

void plan_print(const struct arguments *a, const struct zero_plan *p, const struct own_bytes *own)
{
    printf("plan of rank 0: %s, %s of state, %d of them kept in memory\n",
           counted(p->units, "unit").text, counted(p->chunks, "chunk").text, p->chunks_in_ram);
    printf("  %-8s %12s %12s %12s %12s %12s\n", "place", "params", "grads", "state", "slots",
           "total");
    print_place("device", &p->device);
    print_place("host", &p->host);
    print_place("nvme", &p->nvme);
    if (p->host.checks > 0)
        printf("  of the host's total %s are checksums of the files' pages\n",
               in_bytes(p->host.checks).text);
    if (own->gpu > 0)
        printf("  the program's own memory on the device: activations, scratch and workspace %s\n",
               in_bytes(own->gpu).text);
    printf("  the program's own memory: %s %s, data %s, buffers %s, total %s\n",
           own->gpu > 0 ? "registered memory" : "activations and scratch",
           in_bytes(own->model).text, in_bytes(own->data).text, in_bytes(own->buffers).text,
           in_bytes(own->total).text);
    printf("  all ranks of the node: device %s, host %s, nvme %s\n", in_bytes(p->node_device).text,
           in_bytes(p->node_host).text, in_bytes(p->node_nvme).text);
    struct launch l = launch_find();
    int64_t host = p->node_host + l.local * own->total;
    printf("  the node's memory for all that (--mem): %s, code and libraries of each rank%s\n",
           in_bytes(host + (a->device == ZERO_CPU ? p->node_device : 0)).text,
           p->node_nvme > 0 ? ", and files that are on a tmpfs" : "");
    printf("  each step: %s read and %s written by updates, %s read for each gather of all units\n",
           in_bytes(p->read_bytes).text, in_bytes(p->written_bytes).text,
           in_bytes(p->param_read_bytes).text);
    if (a->checkpoint)
        printf("  a checkpoint: %s, beside the one before while it is written\n",
               in_bytes(checkpoint_bytes(&a->shape)).text);
    bool far = a->stage == 3 && l.ranks > l.local; /* over the network */
    if ((far || p->param_read_bytes > 0) && a->sample > 0 && !a->quiet)
        printf("  the sample: each of its %d tokens gathers all units once; --sample 0 leaves it "
               "out\n",
               a->sample);
}

/* ------------------------------------------------------------------- --plan */

static int plan_make(const struct arguments *a, const struct launch *l, struct zero_plan *plan,
                     char *error, size_t error_size)
{
    struct zero_config config = arguments_config(a);
    struct zero_param *params;
    int count;
    if (gpt_params(&a->shape, (uint64_t)a->seed, &params, &count)) {
        snprintf(error, error_size,
                 "A model of %d layers and %d channels cannot be described. "
                 "Give a smaller one.",
                 a->shape.layers, a->shape.channels);
        return -1;
    }
    int status =
        zero_plan_make(params, count, &config, l->ranks, l->local, plan, error, error_size);
    free(params);
    return status == ZERO_OK ? 0 : -1;
}

/* How long an update takes by itself, on this node; a GPU's own is not known without it. */
static void print_prediction(const struct arguments *a, const struct launch *l, int threads,
                             const struct zero_plan *plan)
{
    struct zero_config config = arguments_config(a);
    struct zero_probe probe = {0};
    int all = threads * l->local, cpus = l->local * launch_threads(l);
    if (predict_is_gpus(config.device, plan)) {
        puts("  an update's seconds are not predicted: the state is in the GPU's memory, and the "
             "GPU updates it");
        return;
    }
    fflush(stdout); /* the plan stands, also where memory ends here */
    double stream = stream_rate_apart(all < cpus ? all : cpus, launch_bound(l->local));
    char advice[3 * sizeof(probe.nvme_path) + 120];
    if (zero_probe_known(&config, &probe, advice, sizeof(advice)) != ZERO_OK) {
        printf("  an update's seconds are not predicted: %s\n", advice);
        return;
    }
    struct prediction p = predict_update(plan, l->local, &probe, stream);
    if (p.files && p.disk <= 0)
        printf("  an update's seconds are not predicted: %s\n",
               predict_unknown(probe.nvme_path, advice, sizeof(advice)));
    else if (p.seconds <= 0)
        puts("  an update's seconds are not predicted: too little memory is free to measure in");
    if (p.seconds <= 0)
        return;
    printf("  an update by itself: %s (memory ", in_seconds(p.seconds).text);
    if (stream > 0)
        printf("%s at %s/s", in_seconds(p.memory).text, in_bytes((int64_t)stream).text);
    else
        printf("not measured, as too little is free");
    if (p.disk > 0)
        printf(", files %s at %s/s read and written at once, as probed earlier",
               in_seconds(p.disk).text, in_bytes((int64_t)probe.both).text);
    puts(")");
}

int plan_run(struct arguments *a, char *error, size_t error_size)
{
    struct launch l = launch_find();
    struct data data;
    struct zero_plan plan;
    int threads = a->threads ? a->threads : launch_threads(&l);
    if (run_find(a, &data, error, error_size))
        return -1;
    int status = plan_make(a, &l, &plan, error, error_size);
    if (status == 0) {
        struct own_bytes own = own_planned(a, &data, threads);
        printf("gpt2 with libzero %s, planned: %s, %d on this node, %s each\n", ZERO_VERSION,
               counted(l.ranks, "rank").text, l.local, counted(threads, "thread").text);
        plan_print_task(a, &data, l.ranks);
        plan_print(a, &plan, &own);
        print_prediction(a, &l, threads, &plan);
    }
    data_free(&data);
    if (status == 0 && !file_printed()) {
        snprintf(error, error_size, "Standard output could not be written.");
        status = -1;
    }
    return status;
}
