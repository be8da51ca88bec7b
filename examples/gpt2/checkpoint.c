// SPDX-License-Identifier: Apache-2.0
/* A header of JSON, then fp32. What the run is comes first in it, then tensor by tensor master and
 * moments, in the order of the model: a header is read by comparing it with the one that this
 * model would have. Values pass through all ranks piece by piece; rank 0 writes, every rank reads.
 * Others wait for a rank's disk no longer than for LEFT_MOST of them. */
#include "examples/gpt2/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "examples/common/clock.h"
#include "examples/common/counter.h"
#include "examples/common/figure.h"
#include "examples/common/file.h"
#include "examples/common/part.h"
#include "examples/common/ranks.h"
#include "examples/common/refuse.h"
#include "examples/gpt2/report.h"

enum {
    PIECE = 1 << 20,       /* elements */
    LEFT_MOST = 1 << 24,   /* elements that are not on the disk yet: 64 MiB */
    HEADER_MOST = 1 << 26, /* bytes, far beyond that of 10000 layers */
    KINDS = 3,             /* arrays of a tensor, in the order of enum zero_what */
};

static const char beginning[] = "{\"__metadata__\":{\"format\":\"libzero gpt2 1\",";
static const char *const prefixes[KINDS] = {"", "exp_avg.", "exp_avg_sq."};

int64_t checkpoint_room(const struct arguments *a)
{
    return a->checkpoint ? PIECE * (int64_t)sizeof(float) : 0;
}

int64_t checkpoint_bytes(const struct gpt_shape *shape)
{
    return KINDS * (int64_t)sizeof(float) * gpt_param_count(shape);
}

static bool fail(struct run *r, const char *what)
{
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' %s: %s. Give --checkpoint a file of its own, in a folder with free space that all "
           "nodes share.",
           r->a->checkpoint, what, errno ? file_reason(errno) : "no memory");
    return false;
}

/* ------------------------------------------------------------------- header */

/* What no tensor tells. */
struct state {
    int64_t step; /* of the program's count, skipped ones too */
    bool dynamic; /* the loss scale was: the rest of progress counts, beside its steps */
    struct zero_progress progress;
    struct zero_digest digest;
};

static int64_t elements_of(const struct zero_param *p)
{
    int64_t elements = 1;
    for (int d = 0; d < p->ndim; d++)
        elements *= p->shape[d];
    return elements;
}

/* All that other steps could come from, and whether there is another model then. */
static int words_of(const struct run *r, struct argument_value words[ARGUMENTS_ALIKE + 2])
{
    struct argument_value all[ARGUMENTS_ALIKE];
    int count = 0, options = arguments_alike(r->a, all);
    for (int i = 0; i < options; i++)
        if (all[i].use != ARGUMENT_OF_RUN)
            words[count++] = all[i];
    double sums = (double)r->a->accumulate * zero_size(r->z);
    double data = (double)(data_hash(&r->data) >> 12);
    words[count++] = (struct argument_value){"ranks x --accumulate", sums, true, ARGUMENT_OF_STEPS};
    words[count++] =
        (struct argument_value){"--data or --eval-data", data, false, ARGUMENT_OF_STEPS};
    return count;
}

static void tensors_write(const struct run *r, FILE *f)
{
    int64_t at = 0;
    for (int t = 0; t < r->count; t++)
        for (int k = 0; k < KINDS; k++) {
            const struct zero_param *p = &r->params[t];
            int64_t bytes = elements_of(p) * (int64_t)sizeof(float);
            fprintf(f, ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%lld", prefixes[k], p->name,
                    (long long)p->shape[0]);
            for (int d = 1; d < p->ndim; d++)
                fprintf(f, ",%lld", (long long)p->shape[d]);
            fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + bytes));
            at += bytes;
        }
}

/* The tensors' part, without what fills it up. */
static const char *header_tensors(char *header)
{
    size_t length = strlen(header);
    while (length > 0 && header[length - 1] == ' ')
        header[--length] = 0;
    return strchr(header, '}');
}

/* The text, filled up to whole words of 8 bytes; NULL with errno. To be freed. */
static char *header_make(const struct run *r, const struct state *s, size_t *bytes)
{
    struct argument_value words[ARGUMENTS_ALIKE + 2];
    char *text = NULL;
    FILE *f = open_memstream(&text, bytes);
    if (!f)
        return NULL;
    fputs(beginning, f);
    for (int i = 0, count = words_of(r, words); i < count; i++)
        fprintf(f, "\"%s\":\"%.17g\",", words[i].option, words[i].value);
    fprintf(f, "\"step\":\"%lld\",\"steps\":\"%lld\",\"loss_scale\":\"%.17g\",", (long long)s->step,
            (long long)s->progress.steps, s->progress.loss_scale);
    fprintf(f, "\"dynamic\":\"%d\",\"since_skip\":\"%lld\",\"forgiven\":\"%lld\",", s->dynamic,
            (long long)s->progress.since_skip, (long long)s->progress.forgiven);
    fprintf(f, "\"digest\":\"%016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\"}", s->digest.master,
            s->digest.moment1, s->digest.moment2);
    tensors_write(r, f);
    fputc('}', f);
    while (ftell(f) % 8)
        fputc(' ', f);
    return fclose(f) ? NULL : text;
}

/* What the header says of a name: up to its end. NULL: nothing. */
static const char *header_find(const char *header, const char *name)
{
    char key[64];
    const char *end = strchr(header, '}');
    int length = snprintf(key, sizeof(key), "\"%s\":\"", name);
    const char *found = strstr(header, key);
    return found && end && found < end ? found + length : NULL;
}

static int64_t header_whole(const char *header, const char *name)
{
    const char *value = header_find(header, name);
    return value ? strtoll(value, NULL, 10) : -1;
}

static bool state_of(const char *header, struct state *s)
{
    const char *digest = header_find(header, "digest"), *scale = header_find(header, "loss_scale");
    s->step = header_whole(header, "step");
    s->progress.steps = header_whole(header, "steps");
    s->dynamic = header_whole(header, "dynamic") > 0;
    s->progress.since_skip = header_whole(header, "since_skip");
    s->progress.forgiven = header_whole(header, "forgiven");
    s->progress.loss_scale = scale ? strtod(scale, NULL) : 0;
    return s->step >= 0 && digest &&
           sscanf(digest, "%" SCNx64 " %" SCNx64 " %" SCNx64, &s->digest.master, &s->digest.moment1,
                  &s->digest.moment2) == 3;
}

/* --------------------------------------------------------------------- load */

static bool refuse_file(struct run *r, const char *why)
{
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' %s. Give --checkpoint another file, or move this one away to begin anew.",
           r->a->checkpoint, why);
    return false;
}

/* Where a word of that use was another when the file was written: what it says, in text. */
static bool word_differs(const char *header, const struct argument_value *word,
                         enum argument_use use, char *text, size_t size)
{
    const char *found = header_find(header, word->option);
    double value = found ? strtod(found, NULL) : 0;
    if (word->use != use || (found && value == word->value))
        return false;
    int used = snprintf(text, size, "was written by a run with another %s", word->option);
    if (found && word->number)
        snprintf(text + used, size - (size_t)used, ": it was %.10g, and is %.10g now", value,
                 word->value);
    return true;
}

static bool is_same_model(struct run *r, const char *header)
{
    struct argument_value words[ARGUMENTS_ALIKE + 2];
    char text[200];
    for (int i = 0, count = words_of(r, words); i < count; i++)
        if (word_differs(header, &words[i], ARGUMENT_OF_MODEL, text, sizeof(text)))
            return refuse_file(r, text);
    return true;
}

static void tell_other_steps(const struct run *r, const char *header)
{
    struct argument_value words[ARGUMENTS_ALIKE + 2];
    char text[200];
    for (int i = 0, count = words_of(r, words); i < count; i++)
        if (word_differs(header, &words[i], ARGUMENT_OF_STEPS, text, sizeof(text)))
            fprintf(
                stderr,
                "rank 0: '%s' %s. The run goes on from it, and may not end as that one would.\n",
                r->a->checkpoint, text);
}

/* Reads the header; NULL: r->error says why not. To be freed. */
static char *header_read(struct run *r, FILE *f)
{
    uint64_t bytes = 0;
    char *text = NULL;
    bool well = fread(&bytes, sizeof(bytes), 1, f) == 1 && bytes >= sizeof(beginning) &&
                bytes <= HEADER_MOST && (text = calloc(1, bytes + 1)) &&
                fread(text, 1, bytes, f) == bytes &&
                strncmp(text, beginning, sizeof(beginning) - 1) == 0;
    if (well)
        return text;
    free(text);
    refuse_file(r, "is not a checkpoint of gpt2");
    return NULL;
}

static bool header_fits(struct run *r, FILE *f, char *header, struct state *s)
{
    size_t length = 0;
    struct stat st;
    if (!is_same_model(r, header))
        return false;
    char *own = state_of(header, s) ? header_make(r, s, &length) : NULL, why[120];
    bool same = own && strcmp(header_tensors(own), header_tensors(header)) == 0;
    free(own);
    if (!same)
        return refuse_file(r, "is damaged: its header is not this model's");
    int64_t whole = ftell(f) + checkpoint_bytes(&r->a->shape);
    if (fstat(fileno(f), &st) || st.st_size != whole) {
        snprintf(why, sizeof(why), "has %lld bytes instead of %lld", (long long)st.st_size,
                 (long long)whole);
        return refuse_file(r, why);
    }
    if (s->step < r->a->steps) {
        if (zero_rank(r->z) == 0)
            tell_other_steps(r, header);
        return true;
    }
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' has step %lld already, and --steps is %d. Give more --steps to go on from it, or "
           "--checkpoint another file.",
           r->a->checkpoint, (long long)s->step, r->a->steps);
    return false;
}

/* What a walk over all values is for. */
struct walk {
    FILE *file;    /* NULL: another rank's */
    int64_t bytes; /* done so far */
    int64_t left;  /* in memory: not yet on the disk for sure */
    bool well;     /* written so far */
};

typedef int piece_fn(struct run *r, struct walk *w, int param, enum zero_what what, int64_t first,
                     int64_t count);

static int pieces_walk(struct run *r, struct walk *w, piece_fn *piece, const char *done)
{
    int64_t all = checkpoint_bytes(&r->a->shape);
    for (int t = 0; t < r->count; t++)
        for (int k = 0; k < KINDS; k++) {
            int64_t elements = elements_of(&r->params[t]), count;
            for (int64_t first = 0; first < elements; first += count) {
                count = elements - first < PIECE ? elements - first : PIECE;
                if (piece(r, w, t, (enum zero_what)k, first, count))
                    return -1;
                w->bytes += count * (int64_t)sizeof(float);
                report_part(r, "checkpoint", done, w->bytes, all);
            }
        }
    return 0;
}

static int piece_load(struct run *r, struct walk *w, int param, enum zero_what what, int64_t first,
                      int64_t count)
{
    errno = 0;
    bool well = fread(r->piece, sizeof(float), (size_t)count, w->file) == (size_t)count;
    if (run_agree(r, well || fail(r, "could not be read to its end")))
        return -1;
    return run_check(r, zero_write(r->z, param, what, first, count, r->piece));
}

/* From here on all ranks have found that the file fits. */
static int state_load(struct run *r, FILE *f, const struct state *s)
{
    struct walk walk = {.file = f};
    struct zero_digest digest;
    struct zero_progress progress;
    if (pieces_walk(r, &walk, piece_load, "read") || run_check(r, zero_progress(r->z, &progress)))
        return -1;
    progress.steps = s->progress.steps;
    if (s->dynamic)
        progress = s->progress;
    if (run_check(r, zero_set_progress(r->z, &progress)) ||
        run_check(r, zero_digest(r->z, &digest)))
        return -1;
    if (memcmp(&digest, &s->digest, sizeof(digest))) {
        refuse_file(r, "is damaged: its values are not those that were saved");
        return -1;
    }
    r->before = s->step;
    report_kept(r, "read", s->step);
    return 0;
}

int checkpoint_load(struct run *r)
{
    struct state s = {0};
    int64_t found;
    bool alike = false;
    if (!r->a->checkpoint)
        return 0;
    if (run_most(r, zero_rank(r->z) == 0 && access(r->a->checkpoint, F_OK) == 0, &found))
        return -1;
    if (!found)
        return 0;
    r->printed = clock_now();
    FILE *f = file_to_read(r->a->checkpoint);
    char *header = f ? header_read(r, f) : NULL;
    bool well = f ? header && header_fits(r, f, header, &s) : fail(r, "cannot be read");
    uint64_t hash = header ? counter_hash(0, header, strlen(header)) : 0;
    free(header);
    int status = run_agree(r, well) || run_check(r, ranks_alike(r->z, hash, &alike)) ? -1 : 0;
    if (status == 0 && !alike)
        refuse_file(r, "is not the same on all ranks");
    status = status || !alike || state_load(r, f, &s) ? -1 : 0;
    if (f)
        fclose(f);
    return status;
}

/* --------------------------------------------------------------------- save */

static bool part_open(struct run *r)
{
    char part[PART_PATH];
    if (!r->saving)
        r->saving = part_create(r->a->checkpoint, beginning, sizeof(uint64_t));
    if (r->saving)
        return true;
    if (errno != EEXIST)
        return fail(r, "cannot be written");
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s', where the checkpoint is written first, exists already and is not one of gpt2. "
           "Move it away, or give --checkpoint another file.",
           part_name(r->a->checkpoint, part));
    return false;
}

/* Neither a file that is written meanwhile, nor one that is no file. */
static bool place_fits(struct run *r)
{
    char part[PART_PATH], trace[PART_PATH];
    const char *path = r->a->checkpoint;
    const char *const others[][2] = {
        {"--log", r->a->log},
        {"--trace", r->a->trace},
        {"--trace", r->a->trace ? part_name(r->a->trace, trace) : NULL},
    };
    part_name(path, part);
    for (int i = 0; i < 3; i++)
        if (file_same(path, others[i][1]) || file_same(part, others[i][1])) {
            refuse((struct sink){r->error, sizeof(r->error)},
                   "'%s' is the file of %s, too. Give --checkpoint another one.", others[i][1],
                   others[i][0]);
            return false;
        }
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return refuse_file(r, "is not a regular file");
    return true;
}

static bool space_fits(struct run *r)
{
    struct statvfs fs;
    int64_t bytes = checkpoint_bytes(&r->a->shape);
    struct stat st; /* of what a run that was killed has left, which goes */
    if (fstatvfs(fileno(r->saving), &fs) || fs.f_blocks == 0 /* without a limit */ ||
        fstat(fileno(r->saving), &st))
        return true;
    double space = (double)fs.f_bavail * (double)fs.f_frsize + 512.0 * (double)st.st_blocks;
    if (space >= (double)bytes)
        return true;
    refuse((struct sink){r->error, sizeof(r->error)},
           "'%s' will take %s beside what is there, and %s are free in its folder. Give "
           "--checkpoint a file in a folder with more room.",
           r->a->checkpoint, in_bytes(bytes).text, in_bytes((int64_t)space).text);
    return false;
}

bool checkpoint_open(struct run *r)
{
    if (!r->a->checkpoint)
        return true;
    r->piece = malloc(PIECE * sizeof(float));
    if (!r->piece) {
        errno = 0;
        return fail(r, "cannot be written");
    }
    return zero_rank(r->z) != 0 || (place_fits(r) && part_open(r) && space_fits(r));
}

void checkpoint_close(struct run *r)
{
    part_abandon(r->a->checkpoint, r->saving);
    r->saving = NULL;
    free(r->piece);
}

/* On the disk, as a rank that waits for all of it at the end would be overdue. */
static bool flush(FILE *f)
{
    return fflush(f) == 0 && fdatasync(fileno(f)) == 0;
}

static int piece_save(struct run *r, struct walk *w, int param, enum zero_what what, int64_t first,
                      int64_t count)
{
    if (run_check(r, zero_read(r->z, param, what, first, count, r->piece)))
        return -1;
    if (!w->file || !w->well)
        return 0;
    errno = 0;
    w->well = fwrite(r->piece, sizeof(float), (size_t)count, w->file) == (size_t)count;
    w->left += count;
    if (w->well && w->left >= LEFT_MOST) {
        w->well = flush(w->file);
        w->left = 0;
    }
    if (!w->well)
        fail(r, "cannot be written");
    return 0;
}

static bool header_save(struct run *r, const struct state *s)
{
    size_t length = 0;
    errno = 0;
    char *text = header_make(r, s, &length);
    uint64_t bytes = length;
    bool well = text && file_cut(r->saving, 0) == 0 &&
                fwrite(&bytes, sizeof(bytes), 1, r->saving) == 1 &&
                fwrite(text, 1, length, r->saving) == length;
    free(text);
    return well || fail(r, "cannot be written");
}

/* The name is on the disk when its folder is. The next one is open before this is closed: other
 * runs find one of the two taken. */
static bool publish(struct run *r)
{
    char name[PART_PATH];
    FILE *whole = r->saving;
    if (!flush(whole) || part_publish(r->a->checkpoint))
        return fail(r, "cannot be written to its end");
    r->saving = file_create(part_name(r->a->checkpoint, name));
    fclose(whole);
    part_whole(r->a->checkpoint, name);
    part_folder(name);
    return true;
}

int checkpoint_save(struct run *r, int64_t step, const struct zero_digest *digest, bool *well)
{
    struct state s = {.step = step, .dynamic = arguments_scale_adapts(r->a), .digest = *digest};
    struct walk walk = {.well = true};
    int64_t failed;
    if (run_check(r, zero_progress(r->z, &s.progress)))
        return -1;
    r->printed = clock_now();
    if (zero_rank(r->z) == 0) {
        walk.well = part_open(r) && header_save(r, &s);
        walk.file = r->saving;
    }
    if (pieces_walk(r, &walk, piece_save, "written"))
        return -1;
    if (zero_rank(r->z) == 0) {
        walk.well = walk.well && publish(r);
        if (!walk.well && r->saving)
            file_cut(r->saving, 0); /* what is there only takes space */
    }
    if (run_most(r, !walk.well, &failed))
        return -1;
    *well = !failed;
    if (*well)
        report_kept(r, "written", step);
    return 0;
}
