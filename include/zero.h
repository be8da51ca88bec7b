// SPDX-License-Identifier: Apache-2.0
/*
 * libzero: train models whose state does not fit where it is computed.
 *
 * A model is a list of tensors (struct zero_param), grouped into units: the tensors that are used
 * together, such as one transformer block. The engine cuts every unit into one shard per rank and
 * keeps parameters, gradients and optimizer state sharded as the ZeRO stage says, in device memory,
 * in host memory or in NVMe files. You keep the training loop: acquire a unit before you compute
 * with it, release it afterwards, hand over its gradients with reduce, and step once per update.
 * That is all, at every stage and place:
 *
 *   zero_init(&z, params, count, .stage = 3, .offload = ZERO_NVME, .dtype = ZERO_BF16);
 *   zero_set_adam(z, 0, &(struct zero_adam){.lr = 3e-4, .beta1 = .9,
 *                 .beta2 = .95, .eps = 1e-8, .weight_decay = .1});
 *   for (int step = 0; step < steps; step++) {
 *       for (int u = 0; u < units; u++) {                  // forward
 *           zero_acquire(z, u);
 *           forward(u, zero_param_data(z, tensor_of(u)));
 *           zero_release(z, u);
 *       }
 *       for (int u = units - 1; u >= 0; u--) {             // backward
 *           zero_acquire(z, u);
 *           backward(u, zero_param_data(z, tensor_of(u)), zero_grad_data(z, tensor_of(u)));
 *           zero_release(z, u);
 *           zero_reduce(z, u);
 *       }
 *       zero_step(z, &info);
 *   }
 *   zero_destroy(z);
 *
 * examples/quickstart.c is this program, complete.
 *
 * The law of equal bits: for a given model, initialisation and global batch the parameters after
 * any number of steps are the same bits whatever the stage, the places, the format of the optimizer
 * state, chunk and slot sizes, engine threads, instruction set, I/O ring and number of ranks. Deal
 * micro-batches round-robin (micro-step a of rank r takes micro-batch a * ranks + r) and debug a
 * large run with a small one.
 *
 * Rules for all calls
 *  - COLLECTIVE calls are made by all ranks, in the same order, with equal arguments. A rank that
 *    differs is an error on all of them.
 *  - Call an engine from one thread at a time, one that rounds to nearest (fenv.h), and not from a
 *    signal handler. Several engines in one process are independent (but with NCCL: see .comm).
 *    Ranks that share several make collective calls, also to destroy them, in one order over all of
 *    them. After fork() the child must not use them: it has neither them nor their memory.
 *  - Calls return ZERO_OK or an enum zero_status; zero_last_error has the sentence. A call that
 *    fails with ZERO_ERR_ARGUMENT, ZERO_ERR_STATE or ZERO_ERR_UNSUPPORTED has changed nothing.
 *    After any other error the engine has failed: calls that do something return that first error
 *    from then on; only zero_destroy is left of them.
 *  - The library never exits, never aborts on bad input, and prints only through the log.
 */
#ifndef ZERO_H
#define ZERO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZERO_API __attribute__((visibility("default")))
#else
#define ZERO_API
#endif

#define ZERO_VERSION "0.1.0"

/* ------------------------------------------------------------- vocabulary */

enum zero_status {
    ZERO_OK = 0,
    ZERO_ERR_ARGUMENT,    /* a value that can never be right: correct the call */
    ZERO_ERR_STATE,       /* the right call at the wrong time */
    ZERO_ERR_UNSUPPORTED, /* this build or machine cannot do it */
    ZERO_ERR_MEMORY,      /* device or host memory does not suffice */
    ZERO_ERR_IO,          /* a file could not be made, read or written, or held other bytes */
    ZERO_ERR_COMM,        /* the communication layer failed, or a peer did */
    ZERO_ERR_MISMATCH,    /* ranks made different calls */
    ZERO_ERR_DEADLINE,    /* a peer did not answer in time: .deadline_seconds */
    ZERO_ERR_OVERFLOW,    /* gradients overflow although the loss is not scaled any more */
    ZERO_ERR_DEVICE,      /* the GPU failed, or a kernel on it did */
};

/* Type of parameters and gradients; optimizer state is always fp32. FP16 is
 * IEEE binary16, and its gradients need a loss scale: see zero_loss_scale. */
enum zero_dtype { ZERO_FP32 = 0, ZERO_BF16, ZERO_FP16 };

/* How the fp32 master is kept. SPLIT (bf16 models only): as the bf16 weight and a
 * 16-bit remainder: 10 bytes of optimizer state an element, not 12, and the same bits. */
enum zero_state { ZERO_STATE_FP32 = 0, ZERO_STATE_SPLIT };

/* Where gradients accumulate over the micro-steps of a step. SHARD: each is reduced as it comes.
 * LOCAL (stages 0 and 1): each rank keeps whole fp32 sums on its device and reduces them in the
 * last: less is sent, more is stored, and bits are equal only with one micro-step or one rank. */
enum zero_accumulate { ZERO_SHARD = 0, ZERO_LOCAL };

/* Who adds gradients up over the ranks. ORDERED: the engine, in fp32 and in the order of the
 * ranks. NCCL (with ZERO_CUDA alone): ncclReduceScatter, in the gradients' type (fp32 with
 * ZERO_LOCAL) and in NCCL's own order, so the law of equal bits does not hold. It takes no memory
 * for other ranks' parts. Its result joins the fp32 sums over micro-steps as usual; 16-bit
 * gradients are rounded while NCCL adds them, and ZERO_FP16 overflows sooner. */
enum zero_reduction { ZERO_REDUCE_ORDERED = 0, ZERO_REDUCE_NCCL };

/* What the model is computed on. */
enum zero_device {
    ZERO_CPU = 0, /* its "device memory" is limited by ZERO_DEVICE_MEMORY=512M, say, if set */
    ZERO_CUDA,    /* an NVIDIA GPU */
};

/* Where bytes rest. */
enum zero_place {
    ZERO_AUTO = 0, /* follow .offload */
    ZERO_DEVICE,   /* where the model is computed */
    ZERO_HOST,     /* host memory */
    ZERO_NVME,     /* files in .nvme_path */
};

enum zero_phase { ZERO_TRAIN = 0, ZERO_EVAL };

/* The I/O engine for files. AUTO: io_uring, or pread/pwrite (logged) where
 * the site has disabled io_uring or files are on FUSE, where Linux continues a
 * transfer that ended short at the wrong place. URING: ZERO_ERR_UNSUPPORTED there. */
enum zero_ring { ZERO_RING_AUTO = 0, ZERO_RING_URING, ZERO_RING_POSIX };

enum zero_log_level { ZERO_LOG_WARNING = 0, ZERO_LOG_INFO, ZERO_LOG_SILENT };

struct zero;      /* the engine: one per rank */
struct zero_comm; /* how ranks reach each other: end of this file */

/* ----------------------------------------------------------------- tensors */

#define ZERO_MAX_DIMS 8

/* Flags of a tensor. */
#define ZERO_NO_DECAY 1u /* weight decay does not apply (biases, norms) */
#define ZERO_FROZEN   2u /* never updated: no gradient, no optimizer state, no part in the norm */

/*
 * Writes elements [first, first + count) of one tensor as fp32 into out. Elements are numbered
 * row-major from 0. Called once per element and rank that needs it, within zero_create, from one
 * library thread at a time, in pieces: so a model is initialised that no rank could hold. Values
 * must be finite in the tensor's dtype, and the same on all ranks: zero_create compares the
 * arguments of ready-made fills, zero_digest at stage 0 what all gave. Returns 0, or anything else
 * to end zero_create with ZERO_ERR_ARGUMENT.
 */
typedef int zero_fill_fn(void *arg, int64_t first, int64_t count, float *out);

struct zero_param {
    const char *name;             /* unique, printable, 1 to 200 characters; copied */
    int unit;                     /* 0 .. units-1, in forward order, each used at least once */
    int ndim;                     /* 0 (a scalar) .. ZERO_MAX_DIMS */
    int64_t shape[ZERO_MAX_DIMS]; /* elements per dimension, >= 0; behind ndim: 0 or 1 */
    uint8_t group;                /* hyper-parameter group, 0 unless you use several */
    uint32_t flags;               /* ZERO_NO_DECAY, ZERO_FROZEN, both or 0 */
    zero_fill_fn *fill;           /* initial values; NULL: zeros */
    void *fill_arg;               /* read until zero_create returns, not copied: each its own */
};

/* Ready-made fills. The values depend on (seed, stream, element) alone. */
struct zero_normal {
    uint64_t seed, stream; /* give each tensor its own stream */
    float mean, std;
};
ZERO_API int zero_fill_normal(void *normal, int64_t first, int64_t count, float *out);
ZERO_API int zero_fill_constant(void *f32, int64_t first, int64_t count, float *out);

/* ----------------------------------------------------------- configuration */

typedef void zero_log_fn(void *arg, enum zero_log_level level, const char *line);

/* The engine's lines of work: each starts what it is given in order. */
enum zero_lane {
    ZERO_LANE_COMM,       /* between ranks */
    ZERO_LANE_PARAM_DISK, /* parameters from files, to be gathered */
    ZERO_LANE_STATE_DISK, /* optimizer state from and to files, new parameters to files */
    ZERO_LANE_UPDATE,     /* walks over optimizer state: Adam, and what reads or sets it */
    ZERO_LANE_TO_DEVICE,  /* copies from host to device memory */
    ZERO_LANE_TO_HOST,
    ZERO_LANES,
};

/* One piece of work that is done. Spans of a lane may overlap: several can be
 * under way. An update's, of a chunk, begins before a thread is free for it. */
struct zero_span {
    enum zero_lane lane;
    const char *name;  /* "gather", "state-read", ...: constant strings */
    int unit;          /* -1: none */
    int64_t chunk;     /* -1: none */
    int64_t bytes;     /* moved */
    int64_t step;      /* that asked for it: zero_step calls made before */
    double begin, end; /* seconds of CLOCK_MONOTONIC */
};

/* Called on an engine thread as each of them ends: return soon, call nothing of this header. */
typedef void zero_trace_fn(void *arg, const struct zero_span *span);

ZERO_API const char *zero_lane_name(int lane); /* "comm", "state-disk", ... */

/* Every field has a default, chosen by 0 (or NULL). A value out of its range is
 * ZERO_ERR_ARGUMENT. */
struct zero_config {
    size_t size;           /* sizeof(struct zero_config); zero_init sets it */
    int stage;             /* 0: nothing is sharded; 1: optimizer state; 2: and gradients;
                              3: and parameters. Default 0 */
    enum zero_dtype dtype; /* default ZERO_FP32 */

    /* Default ZERO_CPU. ZERO_CUDA: the calling thread's current GPU, by cudaSetDevice (behind which
     * CUDA 11 needs cudaFree(NULL)) or zero_gpu_use; other threads that call the engine choose it
     * too, else CUDA opens GPU 0 for them. Parameters and gradients are in its memory: their
     * addresses are for kernels, not for the host. Needs the plugin libzero_cuda.so beside the
     * library or the program, from there in ../lib, where the loader looks, or named by
     * $ZERO_CUDA_PLUGIN. An engine has a dozen streams: CUDA runs 8 at once unless a program sets
     * CUDA_DEVICE_MAX_CONNECTIONS=32 before its first call */
    enum zero_device device;
    void *stream; /* with ZERO_CUDA: the cudaStream_t that the program computes on, and keeps until
                     zero_destroy; cudaStreamLegacy: CUDA's default one. Default: the engine's own
                     (zero_stream), in order with cudaStreamLegacy, not cudaStreamPerThread */

    enum zero_place offload;           /* default ZERO_DEVICE. ZERO_HOST and ZERO_NVME: optimizer
                                          state there, at stage 3 parameters too, gradients in
                                          host memory (on the device with ZERO_LOCAL) */
    enum zero_place offload_optimizer; /* these three override .offload */
    enum zero_place offload_param;     /* other than ZERO_DEVICE needs stage 3 */
    enum zero_place offload_grad;      /* ZERO_DEVICE or ZERO_HOST */

    enum zero_state state; /* default ZERO_STATE_FP32 */
    /* Gradient sums at rest. ZERO_BF16: rounded once, when the last micro-step's sum is complete;
     * the norm is taken before that. Default ZERO_FP32 */
    enum zero_dtype grad_dtype;
    enum zero_accumulate accumulate_in; /* default ZERO_SHARD */
    enum zero_reduction reduction; /* default ZERO_REDUCE_ORDERED. ZERO_REDUCE_NCCL where several
                                      ranks do not reach each other by NCCL (.comm):
                                      ZERO_ERR_UNSUPPORTED */
    int accumulate;    /* micro-steps per step until zero_set_accumulate, 1 or more. Default 1.
                          With .grad_dtype = ZERO_BF16 gradient sums take 2 bytes an element only
                          with 1 and ZERO_SHARD; else 4, as sums are fp32 until complete */
    double loss_scale; /* a fixed loss scale, 2^-64 to 2^64. Default: dynamic with ZERO_FP16,
                          else 1 */

    const char *nvme_path; /* a folder, or up to 8 separated by ':', which share the bytes by
                              their bandwidth. Default, one: $SLURM_TMPDIR, $TMPDIR, /var/tmp,
                              first one set. Bandwidth, and the best size and number of operations,
                              come from a probe of two seconds, kept in $XDG_CACHE_HOME/libzero
                              for each drive: zero_create makes one where files hold 1 GiB a
                              rank, or 256 MiB in several folders. ZERO_PROBE=1 makes it anew,
                              and 0 neither makes nor uses one */
    int64_t host_bytes;    /* per rank: how much optimizer state whose place is ZERO_NVME may stay
                              in host memory; where its place is another, anything but 0 is
                              ZERO_ERR_ARGUMENT. Default 0 */
    int64_t chunk;         /* elements of optimizer state moved at once, a multiple of 64, up to
                              2^30. Default ZERO_CHUNK_NVME where it is in files, else (ZERO_CUDA)
                              ZERO_CHUNK_CUDA or ZERO_CHUNK, or 1/80000 of a rank's if larger */
    int chunk_slots;       /* chunks in memory at once, 2 to 64. Of state in files so many are
                              read early, while gradients are still reduced, and written late,
                              when nothing waits. The other chunks use only four of the slots
                              for each folder (or an eighth, if more), so that these stay in the
                              CPU's cache. Default: as many as hold 2^22 elements of files (4 to
                              32; with .chunk's default 32), else 4 */
    int gather_slots;      /* stage 3: units whose parameters are whole at once, 1 to 64.
                              Default 3 */
    int grad_slots;        /* units whose gradients are whole at once, 1 to 64. Default 3 */
    enum zero_ring ring;
    bool verify_spill; /* every page of 4 KiB that is read from files is compared with a checksum
                          taken when it was written: 0.2 % of the files' bytes more in host
                          memory. A page that differs (flipped bits, a lost or misplaced write) is
                          ZERO_ERR_IO and nothing computed from it is used. Default false */

    int64_t program_bytes; /* host memory that this rank's program is yet to take for itself, for
                              activations say: ranks that do not fit into their node with it are
                              refused by zero_create, not killed later. Up to 2^50. Default 0 */

    int threads;            /* of the engine's update, on the CPUs of the thread that creates it,
                               1 to 1024. Default: as many as these CPUs, or as a control group's
                               quota allows, divided by the node's ranks that share them.
                               OMP_PROC_BIND narrows that thread to one: unset it, or widen the mask
                               by sched_setaffinity around zero_create */
    int deadline_seconds;   /* how long a rank waits for another (see zero_set_deadline), for all
                               ranks to come where zero_create starts MPI, and, but 10 at least,
                               for a disk that moves nothing. Up to 2^30. Default 300 */
    struct zero_comm *comm; /* borrowed. Default: MPI when the job was launched under it (started if
                               need be), else this rank is alone. An MPI that zero_create has
                               started is finalized at exit, which waits for all ranks. So that this
                               ends, an alarm ends the process (with the exit status of an error, if
                               it had one; what its open files still buffer is lost) after the
                               longest deadline of the engines that it destroyed, 12 s at least, or
                               after 10 s where it exits with an error while it has an engine; it
                               takes the place of the program's alarm and SIGALRM handler. After an
                               engine has failed (not by ZERO_ERR_OVERFLOW or zero_digest), a
                               process that exits with an error waits for nobody: the launcher ends
                               the other ranks. Destroy engines before exit: otherwise ranks that
                               wait for this one get an error, even if it exits with success.
                               A program that starts MPI itself does so before zero_create, with
                               MPI_THREAD_MULTIPLE, and destroys its engines before MPI_Finalize
                               (calls after that are ZERO_ERR_COMM, and so are other ranks' that
                               wait for it).
                               With ZERO_CUDA, units go from GPU to GPU by NCCL, beside it, where
                               each rank has a GPU of its own and the plugin was built with NCCL;
                               else by it, through host memory. Equal bits; the log says which. NCCL
                               wants one user of a GPU at a time: where a process has several
                               engines, or calls NCCL itself, each comes to rest (zero_wait on all
                               ranks) before the next is called. Ranks started by torchrun, or by
                               srun without PMI and PMIx (in a build without MPI: with them too),
                               reach each other by TCP and NCCL; where that cannot be, as on the
                               CPU, they are ZERO_ERR_UNSUPPORTED */

    zero_trace_fn *trace; /* default: none */
    void *trace_arg;

    zero_log_fn *log; /* called by the thread that calls the engine. Default: standard error, where
                         rank 0 prints what concerns all ranks, each what concerns it alone */
    void *log_arg;
    enum zero_log_level log_level; /* default ZERO_LOG_WARNING */
};

#define ZERO_CHUNK      ((int64_t)1 << 20)
#define ZERO_CHUNK_NVME ((int64_t)1 << 17)
#define ZERO_CHUNK_CUDA ((int64_t)1 << 22)

/* -------------------------------------------------------- create, destroy */

/*
 * COLLECTIVE. Makes an engine for count tensors, allocates all it will ever need, and initialises
 * the parameters with each tensor's fill. Params, their names and config are copied. Returns when
 * this rank's state is in place. On failure *z is still set (NULL only without memory for it): ask
 * it zero_last_error, then destroy it. Ranks may only differ in .stream, .nvme_path, .ring,
 * .program_bytes, .threads, .deadline_seconds, .comm (each its own), .trace, .log and .log_level.
 *   ZERO_ERR_ARGUMENT     a field, a tensor, a fill's value or a variable is out of range
 *   ZERO_ERR_STATE        another engine uses .comm, or this process is a fork of one
 *                         that had started MPI
 *   ZERO_ERR_UNSUPPORTED  this build or machine cannot do what was asked for
 *   ZERO_ERR_MEMORY       device or host memory does not suffice
 *   ZERO_ERR_IO           .nvme_path cannot be used or has not enough space
 *   ZERO_ERR_DEVICE       the GPU failed
 *   ZERO_ERR_COMM         MPI failed, or another rank did
 *   ZERO_ERR_MISMATCH     the ranks' models or configurations differ
 *   ZERO_ERR_DEADLINE     a rank did not come, or MPI did not start, in time
 */
ZERO_API int zero_create(struct zero **z, const struct zero_param *params, int count,
                         const struct zero_config *config);

#ifndef __cplusplus
/* The same in C with the fields of struct zero_config as arguments:
 * zero_init(&z, params, count, .stage = 3, .dtype = ZERO_BF16). */
#define zero_init(z, params, count, ...)                                                           \
    zero_create((z), (params), (count),                                                            \
                &(struct zero_config){.size = sizeof(struct zero_config), __VA_ARGS__})
#endif

/* COLLECTIVE; local where the engine has failed, or was not created. Waits for what was asked for
 * before and for the other ranks (no longer than zero_set_deadline says, and with NCCL 10 s; the
 * log warns of what failed), frees everything, removes the files. Transfers that a disk has not
 * answered are waited for: they use the memory. A rank that leaves where the others go on, as after
 * a call that was refused to it alone, is an error on all of them; of several engines it first
 * leaves the one that they are in, else they wait for each other. NULL is fine. */
ZERO_API void zero_destroy(struct zero *z);

/* The sentence for the last call of this engine, where that failed: what happened, with
 * the values, then what to do. Else "": a call that succeeds clears it, but for those of a
 * const engine, so read it at once. Of an engine that has failed, its first error; of
 * NULL, that there is no engine. Valid until the next call. */
ZERO_API const char *zero_last_error(const struct zero *z);
ZERO_API const char *zero_status_name(int status);

/* Local: this rank and the number of ranks. */
ZERO_API int zero_rank(const struct zero *z);
ZERO_API int zero_size(const struct zero *z);

/* ---------------------------------------------------------------- training */

/* COLLECTIVE, between micro-steps. ZERO_EVAL: acquire and release only, in
 * any order. A new engine is in ZERO_TRAIN.
 *   ZERO_ERR_STATE  a unit is acquired, holds gradients, or is reduced in this
 *                   micro-step */
ZERO_API int zero_phase(struct zero *z, enum zero_phase phase);

/*
 * COLLECTIVE. Makes the parameters of a unit usable until its release, and starts gathering the
 * units that come next (as in the last micro-step). Acquires nest. Returns when the parameters are
 * there; at stage 0 the ranks meet here behind a long update.
 *   ZERO_ERR_STATE  every gather slot that is large enough holds an acquired
 *                   unit. Slots have the sizes of the largest units: any
 *                   .gather_slots units fit at once where none was acquired before
 */
ZERO_API int zero_acquire(struct zero *z, int unit);

/* COLLECTIVE. Ends one acquire: what reads the parameters is done, or stands in the
 * program's stream (zero_stream). Returns at once.
 *   ZERO_ERR_STATE  the unit is not acquired */
ZERO_API int zero_release(struct zero *z, int unit);

/* Local. Tensor i's parameters while its unit is acquired, else NULL: read only, row-major in the
 * engine's dtype (bf16 as uint16_t), zero_from_fp32 of the masters bit for bit, 64-byte aligned. */
ZERO_API const void *zero_param_data(struct zero *z, int param);

/* Local. Tensor i's gradients, shaped and typed as its parameters, zeroed at the unit's first call
 * in a micro-step (on ZERO_CUDA by the program's stream): add d(mean loss of this rank's
 * micro-batch * zero_loss_scale) here until the unit's reduce. The engine divides by micro-steps,
 * ranks and scale. A tensor that a rank never asks for adds zeros. (Where no more gradients come,
 * moments shrink to denormals, which CPUs update several times slower.) A unit's first call in a
 * micro-step waits until the last reduce of its slot is done, on all ranks. NULL on failure: tensor
 * frozen, out of phase, unit already reduced, the engine has failed, or all slots that are large
 * enough hold units not reduced yet (any .grad_slots units fit where none was held before). */
ZERO_API void *zero_grad_data(struct zero *z, int param);

/* Local, needs no engine. Converts n elements from a type of parameters to fp32, and back: bf16 is
 * rounded to nearest, ties away from zero, with NaN 0x7FC0; fp16 to nearest, ties to even, infinite
 * from 65520 on, with NaN 0x7E00; fp32 is copied. in and out do not overlap.
 *   ZERO_ERR_ARGUMENT  another dtype, n < 0, or NULL where n is not 0 */
ZERO_API int zero_to_fp32(enum zero_dtype dtype, int64_t n, const void *in, float *out);
ZERO_API int zero_from_fp32(enum zero_dtype dtype, int64_t n, const float *in, void *out);

/* COLLECTIVE. The unit's gradients are complete, or will be when what the program's stream was
 * given is done: sum them over the ranks, in rank order. Exactly once per unit and micro-step, also
 * of a unit whose gradients nobody asked for, which counts as zeros (and needs a slot as
 * zero_grad_data does), and of one of frozen tensors alone, which moves nothing. A unit that is
 * used twice, with a tied embedding say, is acquired at each use, adds its gradients at each, and
 * is reduced once, after the last; as it keeps its gradient slot until then, .grad_slots is 2 or
 * more. Returns at once, but for a unit that zero_grad_data was not called for: then it waits for a
 * slot as that does.
 *   ZERO_ERR_STATE  out of phase, reduced already, or no slot */
ZERO_API int zero_reduce(struct zero *z, int unit);

struct zero_step_info {
    int64_t step;      /* updates performed so far, this one included */
    double norm;       /* of the mean gradient, before clipping; NaN where skipped */
    double factor;     /* the clip factor applied to it: 1 when not clipped */
    bool skipped;      /* a gradient was not finite, or the norm of the clipped ones would not be
                          in fp32 (once a .loss_scale below 1 is divided out), or that of their
                          sums in a .grad_dtype of bf16: nothing was updated, on any rank */
    double loss_scale; /* of this step's gradients */
    uint32_t votes;    /* bits that any rank voted for since the last step */
};

/*
 * COLLECTIVE. After the last micro-step's reduces: agrees on norm and health, and returns with this
 * verdict; Adam's update goes on while the next forward pass begins. info may be NULL.
 *   ZERO_ERR_STATE     a unit was not reduced, is still acquired, or a group's
 *                      hyper-parameters were never set
 *   ZERO_ERR_OVERFLOW  a gradient was not finite, and a dynamic loss scale was
 *                      down to 1 already
 */
ZERO_API int zero_step(struct zero *z, struct zero_step_info *info);

/* Local. With ZERO_CUDA the cudaStream_t that the program computes on: acquire, release
 * and reduce are places in the order of its work (once it is 256 of them behind, the next waits),
 * not to be called while it is captured into a graph. NULL on the CPU: the calling thread. */
ZERO_API void *zero_stream(const struct zero *z);

/* Local. What to multiply the loss by before the next backward pass: 1 unless
 * the dtype is ZERO_FP16 or .loss_scale says so. Dynamic (DeepSpeed's rules): 2^16
 * at first; a skipped step halves it, but the first one after a rise or the start is
 * forgiven; 1000 steps without a skip double it, up to 2^64. Constant within a step. */
ZERO_API double zero_loss_scale(const struct zero *z);

/* COLLECTIVE. Drops what was reduced since the last step: the next micro-step is a step's first.
 * For a batch that went wrong, which all ranks have to know: zero_mean of 0 or 1 tells them, also
 * within a step (votes come with the update). Waits for the last reduce.
 *   ZERO_ERR_STATE  a unit is acquired */
ZERO_API int zero_discard(struct zero *z);

/* Local. Votes for bit 0 to 31: the next zero_step tells all ranks which bits anyone voted for
 * (info.votes). How ranks that see different things act in the same step. What sees a signal sets a
 * flag, and the loop votes. */
ZERO_API int zero_vote(struct zero *z, int bit);

/*
 * Local. From now on this rank waits at most so many seconds for another, instead of
 * .deadline_seconds: also in a wait that is under way, from its start. What is counted is the time
 * in which a call stands still for the oldest message that another rank has not answered, not that
 * in which the program computes; the time that NCCL takes once all ranks have come; none in which
 * this process is stopped. Where it is too long the engine fails with ZERO_ERR_DEADLINE, and the
 * sentence names the ranks that are known not to have arrived, and at what. Where they are several,
 * most may only be waiting for the one that is gone: this rank then waits a tenth longer, 1 second
 * at least, in which such a rank can give up first and name it.
 * A disk may move nothing for as long as the deadline, but 10 seconds at least.
 * One atomic store: a signal handler and any thread may call it, at any time
 * between zero_create's return and zero_destroy. It returns ZERO_OK, or
 * ZERO_ERR_ARGUMENT where z is NULL or seconds < 1 or > 2^30, and leaves
 * zero_last_error as it is.
 */
ZERO_API int zero_set_deadline(struct zero *z, int seconds);

/* AdamW as in Loshchilov and Hutter, arXiv 1711.05101: decoupled decay.
 * No field has a default. Computed in fp32: values, lr / (1 - beta1) and, without
 * l2, lr * weight_decay beyond its range are refused. */
struct zero_adam {
    double lr;           /* >= 0 */
    double beta1, beta2; /* in [0, 1) */
    double eps;          /* > 0, as fp32 too */
    double weight_decay; /* >= 0, per unit of lr; not for ZERO_NO_DECAY tensors */
    bool l2; /* Adam with L2 instead (Kingma and Ba, arXiv 1412.6980): decay joins the gradient;
                weight_decay times a master beyond fp32 makes that NaN */
};

/* COLLECTIVE, before the step's first reduce (a group that was never set: before
 * the step); holds until set again. Rank 0's values count; the next message
 * between ranks checks that the others agree. */
ZERO_API int zero_set_adam(struct zero *z, int group, const struct zero_adam *adam);

/* COLLECTIVE, likewise. Gradients whose norm exceeds max_norm are multiplied by max_norm /
 * (norm + 1e-6); 0: no clipping (the default). Without it an element beyond 1e19 may make its
 * second moment infinite: the parameter then only decays (with .l2: stays; with .beta2 of 0: is NaN
 * a step later). Where max_norm / norm / ranks / micro-steps is below 2^-126 they lose bits. */
ZERO_API int zero_set_clip(struct zero *z, double max_norm);

/* COLLECTIVE, likewise. Micro-steps per step, >= 1.
 *   ZERO_ERR_UNSUPPORTED  more than one, where .grad_dtype = ZERO_BF16 was
 *                         planned for one (.accumulate), with ZERO_SHARD */
ZERO_API int zero_set_accumulate(struct zero *z, int micro_steps);

/* COLLECTIVE, at any time. The mean over all ranks' values (each rank may bring another count):
 * their exact sum, rounded, divided by their number, so the same bits on any number of ranks.
 * Values lie within 2^-260 and 2^300 in magnitude, or are 0: smaller ones lose bits and may count
 * as 0; one of 2^318 or more, or not finite, makes the mean NaN, as do no values at all. */
ZERO_API int zero_mean(struct zero *z, const double *values, int count, double *mean);

/* --------------------------------------------------------- looking inside */

/* What zero_read and zero_write move. */
enum zero_what { ZERO_MASTER = 0, ZERO_MOMENT1, ZERO_MOMENT2, ZERO_GRAD };

/*
 * COLLECTIVE, between steps (ZERO_GRAD: also between the last reduce and the step; not after a
 * zero_discard that dropped it). Elements [first, first + count) of tensor param as fp32, on every
 * rank, from wherever they rest. ZERO_GRAD is the mean gradient before clipping, between steps that
 * of the last one; zero_write takes the other three only, uses every rank's own copy of in (finite,
 * and equal: the next message compares them), and rounds the new parameters from the master. A
 * frozen tensor's master is its parameter; moments it has none. For count 0 out and in may be NULL.
 *   ZERO_ERR_ARGUMENT  out of range; zero_write: a value is not finite (a master: nor once
 *                      rounded to the dtype), or a second moment below 0
 *   ZERO_ERR_STATE     within a step, or there is no gradient to read; zero_write: the
 *                      tensor's unit is acquired
 */
ZERO_API int zero_read(struct zero *z, int param, enum zero_what what, int64_t first, int64_t count,
                       float *out);
ZERO_API int zero_write(struct zero *z, int param, enum zero_what what, int64_t first,
                        int64_t count, const float *in);

/*
 * How far a run has come: what a next step depends on beside masters and moments and what the
 * program sets itself. A run goes on in another engine with the same bits, at any stage and place
 * and on any number of ranks, where zero_write takes over what zero_read gave of all tensors (but
 * it refuses infinities, and masters beyond the dtype), and zero_set_progress what zero_progress
 * gave. zero_digest is then the same again: one that was kept along tells a damaged checkpoint.
 * Without it Adam's bias corrections begin anew, whatever the moments. For moments from
 * elsewhere (PyTorch's exp_avg and exp_avg_sq) change .steps of what zero_progress gives. It is one
 * count for all tensors: where moments begin at 0 at a high one (tensors that were frozen, or new),
 * Adam's first steps are too large, so give these a group with a low lr. Of a run whose scale was
 * not dynamic leave the other three fields as they are. Steps that were skipped are not in it:
 * where a run is in its data, the program counts.
 */
struct zero_progress {
    int64_t steps;      /* performed, without those skipped: up to 2^53 */
    double loss_scale;  /* zero_loss_scale; these three count where the scale is dynamic */
    int64_t since_skip; /* steps since the last that was skipped, or since the start: up to 2^53 */
    int64_t forgiven;   /* skipped steps that would not halve the scale: 0 or 1 */
};

/* Local: as the last zero_step left it. */
ZERO_API int zero_progress(const struct zero *z, struct zero_progress *progress);

/* COLLECTIVE, between steps and before zero_grad_data. zero_step_info and zero_stats count from
 * there on. ZERO_ERR_ARGUMENT: a field is out of its range. */
ZERO_API int zero_set_progress(struct zero *z, const struct zero_progress *progress);

/* COLLECTIVE, between steps. Sums modulo 2^64 of a mix of (element index,
 * bits) over all masters, first and second moments: how two runs are compared. All NaN count
 * alike. At stage 0 replicas are compared with each other: ZERO_ERR_MISMATCH. */
struct zero_digest {
    uint64_t master, moment1, moment2;
};
ZERO_API int zero_digest(struct zero *z, struct zero_digest *digest);

/* ---------------------------------------------------------- bytes and time */

/* Bytes of one rank in one place. */
struct zero_bytes {
    int64_t params; /* the model's own weights at rest. In fp32 they are its masters where its
                       state is there, too; but in files masters count as state */
    int64_t grads;  /* gradient sums at rest */
    int64_t state;  /* optimizer state: master or its remainder, first and second moment */
    int64_t checks; /* .verify_spill: checksums of the files' pages */
    int64_t slots;  /* reusable buffers */
    int64_t total;
};

struct zero_plan {
    int64_t params;                            /* elements of the model */
    int64_t frozen;                            /* of them in ZERO_FROZEN tensors */
    int64_t elements;                          /* all, padded to shards */
    int units, chunks, chunks_in_ram;          /* of optimizer state; of them those not in files */
    struct zero_bytes device, host, nvme;      /* this rank's */
    int64_t node_device, node_host, node_nvme; /* totals of the node's ranks */
    int64_t read_bytes, written_bytes; /* from and to files, per step and rank: optimizer state,
                                          published parameters, with ZERO_STATE_SPLIT the
                                          parameters that an update reads */
    int64_t param_read_bytes;          /* from files, to gather each unit once */
    int64_t gather_bytes; /* this rank sends to gather each unit once, as many it receives; at
                             stages 1 and 2 frozen tensors apart, which go but once in all */
    int64_t reduce_bytes; /* likewise to reduce each unit once */
    int64_t update_bytes; /* that Adam reads and writes where it runs, per step and rank */
};

/* Local, needs no engine. What zero_create would allocate on a rank of a job of ranks ranks,
 * local_ranks of them on this node, but for tables: 2 MiB, 2 KiB a chunk of up to 80000, 96 bytes a
 * unit and chunk slot, 648 a gather slot and chunk of the largest unit in files. It counts the host
 * memory that units of GPUs pass through without NCCL (.comm), of which it does not know; with it
 * up to 128 MiB more of each GPU are taken, and what NCCL takes itself. error (may be NULL): the
 * sentence, if not ZERO_OK. */
ZERO_API int zero_plan_make(const struct zero_param *params, int count,
                            const struct zero_config *config, int ranks, int local_ranks,
                            struct zero_plan *plan, char *error, size_t error_size);

/* What the drives of .nvme_path can do together, in bytes per second. */
struct zero_probe {
    double read, write;   /* alone; 0: not known */
    double both;          /* half of it read and half written, at once */
    char nvme_path[1024]; /* the folders that were meant: .nvme_path, or its default */
};

/* Local, needs no engine. What a probe has measured earlier (.nvme_path says when one
 * is made), as an engine of this configuration would find it; measures nothing, and
 * writes nothing. A folder that was never measured, or is not there: not known. error
 * (may be NULL) takes the sentence when the answer is not ZERO_OK. */
ZERO_API int zero_probe_known(const struct zero_config *config, struct zero_probe *probe,
                              char *error, size_t error_size);

/* A GPU as .device = ZERO_CUDA finds it. */
struct zero_gpu {
    int count, index;       /* GPUs that this process sees; the calling thread's current one */
    unsigned char uuid[16]; /* the same in two processes: the same GPU */
    char name[64];
    int64_t memory, memory_free; /* bytes; as its driver counts, for all processes */
};

/* Local, needs no engine, and comes before zero_create. Makes a GPU the calling thread's current
 * one, as cudaSetDevice does, for programs that are not linked with CUDA's runtime, and tells of
 * it. index counts the GPUs that this process sees from 0 on, and begins again behind the last: a
 * rank gives its number on the node (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID,
 * FLUX_TASK_LOCAL_ID, PMI_LOCAL_RANK, MV2_COMM_WORLD_LOCAL_RANK or SLURM_LOCALID: the first set).
 * -1: the thread's stays. The first call takes some of its memory. error (may be NULL): a sentence.
 *   ZERO_ERR_ARGUMENT     index < -1, or gpu is NULL
 *   ZERO_ERR_UNSUPPORTED  no plugin (.device says where it is looked for), no driver, no GPU
 *                         that answers */
ZERO_API int zero_gpu_use(int index, struct zero_gpu *gpu, char *error, size_t error_size);

/* Bytes from and to files. */
struct zero_io {
    int64_t state_read, state_written, param_read, param_written;
};

/* What a lane has done. */
struct zero_lane_stats {
    int64_t bytes;       /* moved; of an update, of the fp32 masters */
    double busy_seconds; /* something was under way; counted as parts of it end */
};

struct zero_stats {
    struct zero_plan plan;
    int64_t steps, skipped;    /* performed (zero_progress), skipped by this engine */
    int64_t acquires, gathers; /* of units */
    int64_t served, missed;    /* acquires that needed no gather; gathers made ahead in vain */
    int64_t sent_bytes;        /* to other ranks */
    struct zero_io io;         /* counted at the ring, what succeeded */
    int64_t io_retried;        /* times that a failed transfer was tried again, each twice at most;
                                  the log warns of them */
    /* What one step asked for, from the end of the zero_step before it to its own: [0] of the
     * last step but one, complete to its last write; [1] of the last step, complete once the
     * engine has waited for its update (zero_wait and zero_digest do). */
    struct zero_io step_io[2];
    struct zero_lane_stats lanes[ZERO_LANES];
    int64_t to_device_bytes, to_host_bytes; /* copies, without parts that sums of gradients take */
    double files_seconds;                   /* a transfer was under way, of parameters or state */
    double wait_seconds;                    /* the caller waited for the engine */
    int threads;
    const char *device;   /* what the model is computed on: "cpu", or a GPU's name */
    int64_t pinned_bytes; /* of host memory, registered with the GPU: copies are faster */
    const char *isa;      /* of the kernels: "scalar", "avx2", "avx512", "neon": the best that this
                             CPU has, or ZERO_ISA in the environment names. Equal bits */
    const char *ring;     /* "uring", "posix", or "none" */
    const char *nvme_path, *nvme_type; /* folders and their file systems, with ':' between them;
                                          "" when no file is used */
    bool nvme_direct;                  /* O_DIRECT is in use */
    bool ring_registered;              /* buffers are registered with io_uring */
    int ring_block, ring_depth;        /* bytes of an operation, operations under way at once */
    /* bytes per second that a probe of the folders measured, as in struct zero_probe; 0: none */
    double probe_read, probe_write, probe_both;
    int numa_nodes, numa_mine; /* of the machine (0: it does not say); that have this rank's CPUs */
    int64_t huge_bytes;        /* of the host arena in huge pages, when created */
};

/* Local. Returns when all that the engine was asked for is done, to the last write of the last
 * update: its bytes are all in step_io[1] then. Other ranks may take longer, within a deadline. */
ZERO_API int zero_wait(struct zero *z);

/* Local. Strings live as long as the engine, which was created, failed or not. */
ZERO_API int zero_stats(const struct zero *z, struct zero_stats *stats);

/* ----------------------------------------------------------- communication */

/*
 * How ranks reach each other: a table of two calls that matter, start and test, for four
 * collectives. zero_mpi.h makes one from an MPI communicator: write your own for something else.
 *
 * All calls come from one thread at a time: the engine's, or at creation and destroy the caller's.
 * One engine at a time uses a communicator: zero_create of a second one is ZERO_ERR_STATE until the
 * first is destroyed. One whose engine has failed, other than in what zero_create refuses, is of no
 * more use: destroy it, and make another. Collectives start in the same order on all ranks, with
 * increasing sequence; up to ZERO_COLLECTIVES are under way at once, and one that was started stays
 * where it is in memory until test reports it done, or abort returns: from then on no rank touches
 * it, or its data. A backend compares header on all ranks (byte by byte will do) before it moves a
 * byte into data, also where bytes is 0 and data is NULL (a GATHER, when ranks leave), and
 * allocates nothing after its creation.
 */
enum zero_collective_kind {
    ZERO_COLLECTIVE_GATHER = 1, /* data: size parts of bytes each; part r comes from rank r */
    ZERO_COLLECTIVE_REDUCE,     /* data: size parts of bytes each; part r goes to rank r, whose
                                   sum callback gets all ranks' parts, piece by piece */
    ZERO_COLLECTIVE_SUM,       /* data: bytes / 8 int64_t, summed over ranks (wrapping), in place */
    ZERO_COLLECTIVE_BROADCAST, /* data: bytes, copied from root to all */
    ZERO_COLLECTIVE_FAILED,    /* only in headers: a rank gave up (see abort) */
};

#define ZERO_COLLECTIVES   4
#define ZERO_SUM_BYTES_MAX 16384 /* of one ZERO_COLLECTIVE_SUM */

struct zero_collective_header {
    uint64_t sequence; /* 1, 2, 3, ... */
    int32_t kind;      /* enum zero_collective_kind */
    int32_t unit;      /* for messages; -1 when none */
    int64_t bytes;
    uint64_t arguments; /* a hash of what the ranks must agree on */
    char name[24];      /* of the call, for messages: "gather", "zero_step", ... */
};

struct zero_collective {
    struct zero_collective_header header;
    int root; /* BROADCAST */
    void *data;
    const void *own; /* GATHER: this rank's part, or NULL when it is in data already */
    /* REDUCE: pieces of piece_bytes (a multiple of 256) or of a smaller multiple, the last of any
     * length, offered once each, in order; parts[r] is rank r's piece and stays valid during the
     * callback. scratch has room for 2 * (size - 1) pieces. REDUCEs are summed one after the
     * other, in the order of their starts, so they may share it. */
    void (*sum)(void *arg, int64_t offset, int64_t bytes, const void *const *parts);
    void *sum_arg;
    int64_t piece_bytes;
    void *scratch;
    /* Units in a GPU's memory (device_memory): the cudaStream_t that sum appends its work to.
     * What is in data and own, and the end of earlier sums, stand in it at start. What comes of
     * GATHER is there when test says done; the sums are when the stream has done them. */
    void *stream;
    void *state; /* the backend's own */
};

struct zero_comm_ops {
    /* Begins a collective; never blocks. ZERO_OK or an error with comm->error set. */
    int (*start)(struct zero_comm *comm, struct zero_collective *c);
    /* Makes progress; never blocks for long. *done is set when c is complete. */
    int (*test)(struct zero_comm *comm, struct zero_collective *c, bool *done);
    /* The lowest rank that c is known to still wait for, and that is not below from, or -1: for
     * the message at the deadline. */
    int (*missing)(struct zero_comm *comm, const struct zero_collective *c, int from);
    /* Tells the other ranks that this one starts no collective from sequence on, and gives up
     * what is under way: no collective's memory is touched afterwards, or it sets holds. May be
     * called again; start returns an error from then on. */
    void (*abort)(struct zero_comm *comm, uint64_t sequence);
    /* Local and bounded in time, also with collectives under way. */
    void (*destroy)(struct zero_comm *comm);
    /* Optional, for one that moves units by itself and all else over this one (as NCCL's does):
     * whether a rank is known to have given up before message sequence, also while nothing is
     * under way. ZERO_OK, or what test would return for it, and comm->error. Never blocks. */
    int (*listen)(struct zero_comm *comm, uint64_t sequence);
    /* Optional: begins a REDUCE, as start does, of elements of dtype that the backend adds up
     * by itself, in an order of its own. What comes of them takes the place of this rank's part
     * in data, and that alone is offered to sum, in parts[0]. scratch is not used. */
    int (*reduce)(struct zero_comm *comm, struct zero_collective *c, enum zero_dtype dtype);
};

struct zero_comm {
    const struct zero_comm_ops *ops;
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node */
    bool device_memory; /* data and own of units (header.unit >= 0) may be a GPU's memory. Where
                           they may not, the engine takes them through host memory */
    uint64_t sequence;  /* the engine's: of the last collective started */
    bool taken;         /* the engine's: one uses it */
    bool holds;         /* abort's: what was given up may still move, and its memory stays */
    char error[496];    /* the sentence of the last failure */
};

#ifdef __cplusplus
}
#endif
#endif
