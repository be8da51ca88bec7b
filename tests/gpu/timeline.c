// SPDX-License-Identifier: Apache-2.0
/*
 * What a GPU did when, of any program: a library that the driver loads where
 * CUDA_INJECTION64_PATH names it, and CUPTI, which CUDA's toolkit brings. To the file that
 * TIMELINE names (timeline.tsv) it writes a line for each kernel, copy and clearing:
 *
 *     kernel|to-device|to-host|copy|clear  stream  start  end (ns)  bytes  name
 *
 * in the order in which CUPTI hands them over. tests/gpu/timeline.awk adds them up.
 */
#include <cupti.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define BUFFER_BYTES ((size_t)4 << 20)

int InitializeInjection(void); /* what the driver calls */

static FILE *out;

static void tell(const char *kind, uint32_t stream, uint64_t start, uint64_t end, uint64_t bytes,
                 const char *name)
{
    fprintf(out, "%s\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.200s\n", kind, stream,
            start, end, bytes, name);
}

static void tell_record(const CUpti_Activity *record)
{
    const void *at = record;
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel9 *k = at;
        tell("kernel", k->streamId, k->start, k->end, 0, k->name ? k->name : "");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy5 *c = at;
        tell(c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "to-device"
             : c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "to-host"
                                                              : "copy",
             c->streamId, c->start, c->end, c->bytes, "");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *s = at;
        tell("clear", s->streamId, s->start, s->end, s->bytes, "");
    }
}

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records_max)
{
    *buffer = aligned_alloc(64, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *records_max = 0; /* as many as fit */
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        tell_record(record);
    free(buffer);
}

static void finish(void)
{
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fflush(out); /* a buffer may be handed over yet */
}

int InitializeInjection(void)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET};
    const char *name = getenv("TIMELINE");
    out = fopen(name ? name : "timeline.tsv", "w");
    bool ok = out && cuptiActivityRegisterCallbacks(give, take) == CUPTI_SUCCESS;
    for (int i = 0; i < 3 && ok; i++)
        ok = cuptiActivityEnable(kinds[i]) == CUPTI_SUCCESS;
    if (ok)
        atexit(finish);
    else
        fprintf(stderr, "There is no timeline: no file, or CUPTI does not measure.\n");
    return ok;
}
