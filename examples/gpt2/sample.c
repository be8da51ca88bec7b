// SPDX-License-Identifier: Apache-2.0
/* Every rank computes the same logits and draws the same token, because reading
 * the parameters is collective. There is no cache of keys and values: each
 * token costs a forward pass over what the model can see. */
#include "examples/gpt2/sample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/counter.h"
#include "examples/common/stop.h"

enum { STREAM = 1, LINE = 92 };

int64_t sample_bytes(const struct arguments *a)
{
    return (int64_t)a->sample * (a->tokenizer ? TOKENIZER_BYTES : 1);
}

int sample_pick(const float *logits, int count, double temperature, double u)
{
    assert(count > 0);
    int best = 0;
    for (int i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature == 0)
        return best;
    double sum = 0, reached = 0;
    for (int i = 0; i < count; i++)
        sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
    for (int i = 0; i < count; i++) {
        reached += exp(((double)logits[i] - (double)logits[best]) / temperature);
        if (reached > u * sum)
            return i;
    }
    return best; /* only rounding, or logits that are not numbers, lead here */
}

/* The bytes of the character that begins here, of printable ASCII or of UTF-8 from U+00A0 on: below
 * are controls. 0: there is none that is whole within left bytes. */
static int printable(const unsigned char *bytes, int left)
{
    static const uint32_t least[] = {[2] = 0xA0, [3] = 0x800, [4] = 0x10000};
    const unsigned char first = bytes[0];
    if (first < 0x80)
        return first == '\t' || (first >= ' ' && first < 127);
    int length = first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF8 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    uint32_t code = first & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3F);
    }
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code >= least[length] && code <= 0x10FFFF && !surrogate ? length : 0;
}

void sample_print(const unsigned char *bytes, int count, FILE *out)
{
    fputs("  | ", out);
    for (int i = 0; i < count;) {
        int length = printable(bytes + i, count - i);
        if (length > 0)
            fwrite(bytes + i, 1, (size_t)length, out);
        else if (bytes[i] == '\n')
            fputs("\n  | ", out);
        else
            fprintf(out, "\\x%02x", (unsigned)bytes[i]);
        i += length > 0 ? length : 1;
    }
    fputc('\n', out);
}

void sample_print_ids(const int32_t *tokens, int count, FILE *out)
{
    int column = fprintf(out, "  |");
    for (int i = 0; i < count; i++) {
        if (column > LINE)
            column = fprintf(out, "\n  |") - 1;
        column += fprintf(out, " %d", (int)tokens[i]);
    }
    fputc('\n', out);
}

/* Appends tokens one at a time behind the first of seen, which has room: all, or those before
 * any rank was told to end. */
static int draw(struct run *r, float *logits, int32_t *seen, int *drawn)
{
    const struct arguments *a = r->a;
    int count = r->data.vocab;
    seen[0] = !r->data.is_tokens ? '\n' : r->tokenizer.vocab ? r->tokenizer.end : TOKENS_END;
    for (int i = *drawn = 0; i < a->sample; *drawn = ++i) {
        int64_t stops;
        if (run_sum(r, stop_asked() != 0, &stops))
            return -1;
        if (stops > 0)
            break;
        int length = i + 1 < a->shape.seq ? i + 1 : a->shape.seq;
        int status = gpt_logits(r->model, r->z, seen + i + 1 - length, length, logits);
        if (run_check(r, status))
            return -1;
        double u = counter_uniform((uint64_t)a->seed, STREAM, (uint64_t)i);
        seen[i + 1] = sample_pick(logits, count, a->temperature, u);
    }
    return 0;
}

/* The bytes that tokens stand for. */
static int bytes_of(const struct run *r, const int32_t *tokens, int count, unsigned char *out)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)tokens[i];
        const unsigned char *bytes = &byte;
        int length = 1;
        if (r->data.is_tokens)
            bytes = tokenizer_bytes(&r->tokenizer, tokens[i], &length);
        memcpy(out + used, bytes, (size_t)length);
        used += length;
    }
    return used;
}

static void print(const struct run *r, const int32_t *tokens, int count, unsigned char *bytes)
{
    const struct arguments *a = r->a;
    bool readable = !r->data.is_tokens || r->tokenizer.vocab;
    printf("\nsample of %d %s at temperature %g", count, r->data.is_tokens ? "tokens" : "bytes",
           a->temperature);
    if (count < a->sample)
        printf(", stopped before the %d that were asked for", a->sample);
    putchar('\n');
    if (readable)
        sample_print(bytes, bytes_of(r, tokens, count, bytes), stdout);
    else
        sample_print_ids(tokens, count, stdout);
    putchar('\n');
}

int sample_write(struct run *r)
{
    const struct arguments *a = r->a;
    if (a->sample == 0)
        return 0;
    assert(a->shape.vocab >= r->data.vocab);
    float *logits = malloc((size_t)a->shape.vocab * sizeof(*logits));
    int32_t *seen = malloc(((size_t)a->sample + 1) * sizeof(*seen));
    unsigned char *bytes = malloc((size_t)sample_bytes(a));
    bool well = logits && seen && bytes;
    if (!well)
        snprintf(r->error, sizeof(r->error),
                 "No memory is left for a sample of %d tokens. Give a smaller --sample.",
                 a->sample);
    int drawn, status = run_agree(r, well);
    if (status == 0)
        status = run_check(r, zero_phase(r->z, ZERO_EVAL));
    if (status == 0)
        status = draw(r, logits, seen, &drawn);
    if (status == 0)
        status = run_check(r, zero_phase(r->z, ZERO_TRAIN));
    if (status == 0 && zero_rank(r->z) == 0)
        print(r, seen + 1, drawn, bytes);
    free(logits);
    free(seen);
    free(bytes);
    return status;
}
