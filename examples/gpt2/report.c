// SPDX-License-Identifier: Apache-2.0
/* Text for people and rows for programs. Planned figures are the library's
 * plan; measured ones come from the kernel's own accounts. */
#include "examples/gpt2/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/clock.h"
#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/launch.h"
#include "examples/common/terminal.h"
#include "examples/gpt2/device.h"
#include "examples/gpt2/limits.h"
#include "examples/gpt2/matmul.h"

enum {
    EVERY_STEP = 200, /* runs up to this long get a line per step in a job's log, */
    LINE_SECONDS = 1, /* longer ones at most one in this time */
    RANKS_SHOWN = 8,  /* more ranks than this are summed up */
};

static uint32_t float_bits(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static int64_t step_tokens(const struct run *r)
{
    return (int64_t)r->a->batch * r->a->shape.seq * r->a->accumulate * zero_size(r->z);
}

/* ---------------------------------------------------------------- the start */

/* A line that a watched one takes the place of, unless it stays. */
static void say(struct run *r, const char *line, bool stays)
{
    r->printed = clock_now();
    r->live = terminal_watched() && !stays;
    if (terminal_watched())
        terminal_line(line, stays);
    else
        puts(line);
    fflush(stdout);
}

void report_part(struct run *r, const char *what, const char *done, int64_t bytes, int64_t all)
{
    char line[96];
    bool late = clock_now() - r->printed >= LINE_SECONDS;
    if (r->a->quiet || zero_rank(r->z) != 0 || !(late || (r->live && bytes == all)))
        return;
    snprintf(line, sizeof(line), "%s: %s of %s are %s", what, in_bytes(bytes).text,
             in_bytes(all).text, done);
    say(r, line, bytes == all);
}

void report_kept(struct run *r, const char *done, int64_t step)
{
    char line[96];
    if (r->a->quiet || zero_rank(r->z) != 0)
        return;
    snprintf(line, sizeof(line), "checkpoint: step %lld is %s", (long long)step, done);
    say(r, line, true);
}

/* What goes to standard error is not written into a watched line. */
static void end_live(struct run *r)
{
    if (r->live)
        putchar('\n');
    r->live = false;
    fflush(stdout);
}

void report_aside(struct run *r, const char *then)
{
    end_live(r);
    fprintf(stderr, "rank %d: %s %s\n", zero_rank(r->z), r->error, then);
}

static void print_machine(const struct run *r, const struct zero_stats *s)
{
    printf("gpt2 with libzero %s: %s, %s each (%s allowed), %s kernels\n", ZERO_VERSION,
           counted(zero_size(r->z), "rank").text, counted(s->threads, "thread").text,
           counted(launch_cpus(), "CPU").text, s->isa);
    if (r->gpu)
        printf("rank 0 computes on %s; products by %s, TF32 %s\n", r->gpu->name, r->gpu->products,
               r->a->tf32 ? "on" : "off");
    else
        printf("products by %s\n", matmul_backend((enum zero_dtype)r->a->dtype));
    if (s->nvme_path[0])
        printf("files: %s (%s), %s, %s, blocks of %s, %d at once%s%s\n", s->nvme_path, s->nvme_type,
               s->nvme_direct ? "O_DIRECT" : "through the page cache", s->ring,
               in_bytes(s->ring_block).text, s->ring_depth,
               s->ring_registered ? ", registered buffers" : "",
               r->a->verify_spill ? ", pages checked" : "");
    else if (r->a->nvme_path)
        printf("files: none in %s, as %s\n", r->a->nvme_path,
               arguments_ask_for_files(r->a)
                   ? "--host-bytes keeps all of the state in memory"
                   : "nothing is offloaded to nvme; give --offload nvme to use it");
    if (s->huge_bytes)
        printf("host memory: %s in huge pages", in_bytes(s->huge_bytes).text);
    if (s->huge_bytes && s->numa_nodes > 1)
        printf(", from %d of %d NUMA nodes", s->numa_mine, s->numa_nodes);
    if (s->huge_bytes)
        putchar('\n');
}

void report_start(struct run *r)
{
    struct zero_stats s;
    if (r->a->quiet || zero_rank(r->z) != 0 || zero_stats(r->z, &s) != ZERO_OK)
        return;
    print_machine(r, &s);
    plan_print_task(r->a, &r->data, zero_size(r->z));
    plan_print(r->a, &s.plan, &r->own);
    putchar('\n');
    fflush(stdout);
}

/* ------------------------------------------------------------------- a step */

static const char log_header[] =
    "step,loss,loss_bits,norm,norm_bits,lr,eval_loss,tokens_per_s,step_ms,forward_ms,backward_ms,"
    "update_ms,wait_ms,read_bytes,written_bytes\n";

int report_log_header(FILE *log)
{
    fputs(log_header, log);
    return fflush(log) || ferror(log) ? -1 : 0;
}

long report_log_rows(const char *path, int64_t steps)
{
    FILE *f = steps > 0 ? file_to_read(path) : NULL;
    char *line = NULL;
    size_t size = 0;
    long bytes = 0;
    if (f && getline(&line, &size, f) > 0 && strcmp(line, log_header) == 0)
        do
            bytes = ftell(f);
        while (getline(&line, &size, f) > 0 && strchr(line, '\n') && atoll(line) <= steps);
    free(line);
    if (f)
        fclose(f);
    return bytes;
}

/* Said while somebody may still make room for the next run; run_finish says it again. */
static void log_ends(struct run *r, int64_t step)
{
    const char *reason = file_reason(errno);
    end_live(r);
    fprintf(stderr,
            "rank 0: '%s' could not be written from the row of step %lld on: %s. Training goes on "
            "without it, and the run will end with status 1.\n",
            r->a->log, (long long)step, reason);
}

/* Flushed row by row: whoever watches the run reads this file. What could not be written
 * stays the log's end: a later row might continue half of another one. */
void report_row(struct run *r, const struct step_record *s)
{
    if (!r->log || ferror(r->log))
        return;
    char eval[32] = "";
    if (s->evaluated)
        snprintf(eval, sizeof(eval), "%.6f", s->eval_loss);
    fprintf(r->log, "%lld,%.6f,%08x,%.6g,%08x,%.6g,%s,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f,%lld,%lld\n",
            (long long)s->step, s->loss, float_bits(s->loss), s->norm, float_bits(s->norm), s->lr,
            eval, (double)step_tokens(r) / s->seconds, 1e3 * s->seconds, 1e3 * s->times.forward,
            1e3 * s->times.backward, 1e3 * s->update, 1e3 * s->wait, (long long)s->read_bytes,
            (long long)s->written_bytes);
    if (fflush(r->log) || ferror(r->log))
        log_ends(r, s->step);
}

static void progress_line(const struct run *r, const struct step_record *s, char *line, size_t size)
{
    char eval[40] = "", scale[40] = "";
    if (s->evaluated)
        snprintf(eval, sizeof(eval), " | held out %.4f", s->eval_loss);
    if (r->a->dtype == ZERO_FP16)
        snprintf(scale, sizeof(scale), " | scale %.6g", s->loss_scale);
    snprintf(line, size,
             "step %lld/%d | loss %.4f | norm %.2f | lr %.1e | %s ktok/s | "
             "%.0f ms (fwd %.0f bwd %.0f update %.0f, waited %.0f)%s%s%s",
             (long long)s->step, r->a->steps, s->loss, s->norm, s->lr,
             in_thousands((double)step_tokens(r) / s->seconds).text, 1e3 * s->seconds,
             1e3 * s->times.forward, 1e3 * s->times.backward, 1e3 * s->update, 1e3 * s->wait, scale,
             eval, s->skipped ? " | skipped: not finite" : "");
}

/* A run leaves nothing but what it writes. Where standard output will never be read (SIGPIPE may
 * be ignored) and no file tells of the training, it would train for nobody. A disk that is full
 * may have space again. */
static void listen(struct run *r)
{
    bool well = fflush(stdout) == 0 && !ferror(stdout);
    if (well || (errno != EPIPE && errno != EBADF) || r->a->log || r->a->trace || r->a->checkpoint)
        return;
    r->unheard = true;
    snprintf(r->error, sizeof(r->error),
             "Standard output could not be written: %s. Without it this run would leave no result: "
             "keep the program that reads it running, or give --log a file.",
             strerror(errno));
}

void report_step(struct run *r, const struct step_record *s)
{
    char line[320];
    if (r->a->quiet || zero_rank(r->z) != 0)
        return;
    progress_line(r, s, line, sizeof(line));
    /* A stream that failed once says so for ever; errno tells whether it is now. */
    errno = 0;
    if (terminal_watched()) { /* a measured or skipped step stays */
        r->live = !s->evaluated && !s->skipped && !r->stopped && s->step < r->a->steps;
        terminal_line(line, !r->live);
        listen(r);
        return;
    }
    bool due = r->a->steps <= EVERY_STEP || s->step == 1 || s->step == r->a->steps || s->skipped ||
               r->stopped || s->evaluated || clock_now() - r->printed >= LINE_SECONDS;
    if (!due)
        return;
    puts(line); /* where lines go out one by one, it is this that fails */
    r->printed = clock_now();
    listen(r);
}

/* ------------------------------------------------------------------ the end */

static void print_row(const char *name, int64_t planned, int64_t measured)
{
    printf("  %-34s %12s %12s\n", name, in_bytes(planned).text, in_bytes(measured).text);
}

static int report_range(struct run *r, const char *name, const int64_t value[2])
{
    int64_t most[2], below[2]; /* the least is so much below the most */
    char label[64];
    for (int k = 0; k < 2; k++)
        if (run_most(r, value[k], &most[k]) || run_most(r, most[k] - value[k], &below[k]))
            return -1;
    if (zero_rank(r->z) != 0)
        return 0;
    snprintf(label, sizeof(label), "least of %d ranks, %s", zero_size(r->z), name);
    print_row(label, most[0] - below[0], most[1] - below[1]);
    snprintf(label, sizeof(label), "most of %d ranks, %s", zero_size(r->z), name);
    print_row(label, most[0], most[1]);
    return 0;
}

/* One quantity of every rank; of many ranks the least and the most. */
static int report_ranks(struct run *r, const char *name, int64_t planned, int64_t measured)
{
    int ranks = zero_size(r->z), rank = zero_rank(r->z);
    const int64_t value[2] = {planned, measured};
    char label[64];
    if (ranks > RANKS_SHOWN)
        return report_range(r, name, value);
    for (int i = 0; i < ranks; i++) {
        int64_t of_rank[2];
        for (int k = 0; k < 2; k++)
            if (run_sum(r, i == rank ? value[k] : 0, &of_rank[k]))
                return -1;
        snprintf(label, sizeof(label), "rank %d, %s", i, name);
        if (rank == 0)
            print_row(label, of_rank[0], of_rank[1]);
    }
    return 0;
}

/* What all processes use of a GPU, and what they are linked with. */
static int report_gpu_memory(struct run *r, const struct zero_plan *p)
{
    struct zero_gpu now = {0}; /* 0: it does not tell */
    if (!r->gpu)
        return 0;
    zero_gpu_use(-1, &now, NULL, 0);
    return report_ranks(r, "GPU memory used", p->device.total + r->own.gpu,
                        now.memory - now.memory_free);
}

/* On the CPU, device and host memory are the same: a process has one peak, its
 * code and libraries included. */
static int report_memory(struct run *r, const struct zero_stats *s)
{
    const struct zero_plan *p = &s->plan;
    if (zero_rank(r->z) == 0) {
        printf("planned memory of rank 0: device %s, host %s, the program itself %s; code and "
               "libraries of the process come on top\n",
               in_bytes(p->device.total).text, in_bytes(p->host.total).text,
               in_bytes(r->own.total + r->own.gpu).text);
        printf("  %-34s %12s %12s\n", r->gpu ? "(of a GPU: by all its processes)" : "", "planned",
               "measured");
    }
    int64_t planned = (r->gpu ? 0 : p->device.total) + p->host.total + r->own.total;
    if (report_ranks(r, "memory (VmHWM)", planned, usage_peak()) || report_gpu_memory(r, p))
        return -1;
    return report_ranks(r, "nvme", p->nvme.total, usage_files(s->nvme_path));
}

/* What the same model would have taken without the library's help. */
static void print_unsharded(const struct run *r, const struct zero_plan *p)
{
    struct zero_config config = arguments_config(r->a);
    struct zero_plan whole;
    config.stage = 0;
    config.offload = ZERO_DEVICE;
    config.offload_optimizer = config.offload_param = config.offload_grad = ZERO_AUTO;
    config.host_bytes = 0;
    int ranks = zero_size(r->z);
    if (zero_plan_make(r->params, r->count, &config, ranks, ranks, &whole, NULL, 0) == ZERO_OK)
        printf("at stage 0 without offload each rank would need %s on its device; here it has %s\n",
               in_bytes(whole.device.total).text, in_bytes(p->device.total).text);
}

/* One kind of traffic, over all ranks; planned is -1 where there is no plan. */
static int report_traffic(struct run *r, const char *name, int64_t mine, int64_t planned)
{
    int64_t sum, plan = -1;
    if (run_sum(r, mine, &sum) || (planned >= 0 && run_sum(r, planned, &plan)))
        return -1;
    if (zero_rank(r->z) == 0 && (sum || plan > 0))
        printf("  %-34s %12s %12s\n", name, plan >= 0 ? in_bytes(plan).text : "",
               in_bytes(sum).text);
    return 0;
}

/* How long each line of rank 0's engine was busy, and how fast it was then. */
static void print_lanes(const struct zero_stats *s)
{
    printf("%-36s %12s %12s %12s\n", "engine lanes of rank 0, whole run", "bytes", "busy", "rate");
    for (int i = 0; i < ZERO_LANES; i++) {
        const struct zero_lane_stats *lane = &s->lanes[i];
        if (lane->bytes == 0 || lane->busy_seconds <= 0)
            continue;
        double rate = (double)lane->bytes / lane->busy_seconds;
        printf("  %-34s %12s %10.2f s %10s/s\n",
               i == ZERO_LANE_UPDATE ? "update (bytes of fp32 masters)" : zero_lane_name(i),
               in_bytes(lane->bytes).text, lane->busy_seconds, in_bytes((int64_t)rate).text);
    }
}

/* Whether the engine's threads take CPUs that the program's are ready for: from the first
 * step to the end of the last update, evaluations apart. */
static void print_cpus(const struct run *r)
{
    const struct run_mark *a = &r->begun, *b = &r->ended;
    if (b->program.ran <= a->program.ran)
        return;
    printf("CPU time of rank 0 over %.3g s: the program's threads ran %.3g s and waited %.3g s for "
           "a free CPU; the engine's ran %.3g s and waited %.3g s\n",
           b->when - a->when, b->program.ran - a->program.ran, b->program.ready - a->program.ready,
           b->library.ran - a->library.ran, b->library.ready - a->library.ready);
}

static int report_retries(struct run *r, const struct zero_stats *s)
{
    int64_t sum;
    if (run_sum(r, s->io_retried, &sum))
        return -1;
    if (zero_rank(r->z) == 0 && sum > 0)
        printf("transfers that failed and were tried again: %lld; look into the kernel's log "
               "(dmesg) on the nodes of the ranks that warned\n",
               (long long)sum);
    return 0;
}

/* The engine has written its state once before the first step, and, unless the
 * run was stopped, read it once more for the digest: one walk over it more than
 * there were updates. A step that is skipped has read some of it ahead: how much, no
 * plan knows. Nor what checkpoints read and write. */
static int report_io(struct run *r, const struct zero_stats *s)
{
    int64_t writes = s->steps + 1, reads = r->stopped ? s->steps : writes;
    if (zero_rank(r->z) == 0)
        printf("%-36s %12s %12s\n", "traffic of all ranks, whole run", "planned", "measured");
    const struct {
        const char *name;
        int64_t bytes, planned;
    } kinds[] = {
        {"state read from files", s->io.state_read,
         s->skipped || r->a->checkpoint ? -1 : reads * s->plan.read_bytes},
        {"written to files", s->io.state_written + s->io.param_written,
         r->a->checkpoint ? -1 : writes * s->plan.written_bytes},
        {"parameters read from files", s->io.param_read, -1},
        {"copied host to device", s->to_device_bytes, -1},
        {"copied device to host", s->to_host_bytes, -1},
        {"sent to other ranks", s->sent_bytes, -1},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (report_traffic(r, kinds[i].name, kinds[i].bytes, kinds[i].planned))
            return -1;
    if (zero_rank(r->z) == 0)
        printf("rank 0 waited %.2f s for the engine in %.2f s of steps; %lld acquires, %lld of "
               "them without a gather, %lld units gathered ahead and not used\n",
               r->waited, r->seconds, (long long)s->acquires, (long long)s->served,
               (long long)s->missed);
    if (zero_rank(r->z) == 0)
        print_lanes(s);
    if (zero_rank(r->z) == 0)
        print_cpus(r);
    return report_retries(r, s);
}

static void print_result(const struct run *r, const struct zero_stats *s)
{
    int count = r->made < RECENT ? (int)r->made : RECENT;
    char made[32] = "", held[64] = "";
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += r->recent[i];
    if (r->stopped)
        snprintf(made, sizeof(made), "%lld of ", (long long)r->made);
    if (r->held_step)
        snprintf(held, sizeof(held), ", held out after step %lld: %.4f", (long long)r->held_step,
                 r->held_loss);
    printf("\n%s%s in %.1f s (%s ktok/s), %lld skipped; mean loss of the last %d: %.4f%s\n\n", made,
           counted(r->stopped ? r->a->steps - r->before : r->made, "step").text, r->seconds,
           in_thousands((double)step_tokens(r) * (double)r->made / r->seconds).text,
           (long long)s->skipped, count, sum / count, held);
}

int report_end(struct run *r)
{
    struct zero_stats s;
    if (run_check(r, zero_stats(r->z, &s)))
        return -1;
    bool speaks = zero_rank(r->z) == 0;
    if (speaks)
        print_result(r, &s);
    if (report_memory(r, &s))
        return -1;
    if (speaks)
        print_unsharded(r, &s.plan);
    struct roofline roofline;
    if (report_io(r, &s))
        return -1;
    if (speaks && r->gpu) {
        printf("products of rank 0, each by the first algorithm that cuBLASLt names\n");
        r->gpu->plugin->algorithms(r->gpu, stdout);
    }
    if (limits_find(r, !r->stopped, &roofline))
        return -1;
    if (speaks)
        roofline_print(&roofline, stdout);
    fflush(stdout);
    return 0;
}
