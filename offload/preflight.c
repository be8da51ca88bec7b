// SPDX-License-Identifier: Apache-2.0
/* Limits of memory and of space are judged alike: what the ranks that share one
 * need is added up and compared with the least that any of them saw left. */
#include "offload/preflight.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ----------------------------------------------------------------- the facts */

/* The machine's boot, which containers share and namesakes do not; else its
 * name. */
static void node_read(struct preflight_facts *facts, const char *root)
{
    char path[PATH_MAX], key[128] = "";
    gethostname(facts->name, sizeof(facts->name) - 1);
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", root);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(key, sizeof(key), file) == NULL)
        snprintf(key, sizeof(key), "%s", facts->name);
    if (file != NULL)
        fclose(file);
    facts->node = 14695981039346656037u; /* FNV-1a */
    for (const char *c = key; *c != '\0'; c++)
        facts->node = (facts->node ^ (uint8_t)*c) * 1099511628211u;
}

/* A new limit, or the one that has this id. The end of a long name says more
 * than its start. */
static struct preflight_limit *limit_of(struct preflight_facts *facts, uint64_t id,
                                        const char *type, const char *name)
{
    for (int i = 0; i < facts->limits; i++)
        if (facts->limit[i].id == id && strcmp(facts->limit[i].type, type) == 0)
            return &facts->limit[i];
    assert(facts->limits < PREFLIGHT_LIMITS);
    struct preflight_limit *limit = &facts->limit[facts->limits++];
    size_t length = strlen(name), most = sizeof(limit->name) - 1;
    limit->id = id;
    snprintf(limit->type, sizeof(limit->type), "%s", type);
    if (length <= most)
        memcpy(limit->name, name, length);
    else
        snprintf(limit->name, sizeof(limit->name), "...%s", name + length - most + 3);
    return limit;
}

/* The file system under a folder and what this rank wants of it. */
static void path_collect(struct preflight_facts *facts, const char *path, int64_t bytes)
{
    struct stat st;
    char type[SPILL_TYPE];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0) {
        spill_type_read(fd, type);
        struct preflight_limit *limit = limit_of(facts, (uint64_t)st.st_dev, type, path);
        limit->need += bytes;
        limit->available = spill_space(fd);
        if (spill_type_is_memory(type))
            facts->memory_files += bytes;
    }
    close(fd);
}

void preflight_collect(struct preflight_facts *facts, const char *root,
                       const struct preflight_need *need, const struct spill_paths *paths,
                       int64_t stripe)
{
    memset(facts, 0, sizeof(*facts));
    facts->need = *need;
    node_read(facts, root);
    if (need->files > 0) {
        struct stripes stripes;
        stripes_deal(&stripes, paths->count, paths->weight, stripe);
        for (int i = 0; i < paths->count; i++)
            path_collect(facts, paths->path[i], stripes_file_bytes(&stripes, i, need->files));
    }
    struct memory_bound bound[MEMORY_BOUNDS];
    int count = memory_bounds(root, bound);
    for (int i = 0; i < count; i++) {
        struct preflight_limit *limit = limit_of(facts, bound[i].id, "", bound[i].source);
        limit->available = bound[i].available;
        limit->need = need->arena + need->device + need->program + facts->memory_files;
    }
}

void preflight_shrink(struct preflight_facts *facts, int64_t bytes)
{
    facts->need.arena -= bytes;
    for (int i = 0; i < facts->limits; i++)
        if (!facts->limit[i].type[0]) /* of memory */
            facts->limit[i].need -= bytes;
}

bool preflight_same_node(const struct preflight_facts *a, const struct preflight_facts *b)
{
    return a->node == b->node;
}

bool preflight_same_folders(const struct preflight_facts *a, const struct preflight_facts *b)
{
    int64_t i = 0;
    /* Folders come first, then limits of memory, which have no type. */
    while (i < a->limits && i < b->limits && a->limit[i].type[0] &&
           a->limit[i].id == b->limit[i].id)
        i++;
    return (i == a->limits || !a->limit[i].type[0]) && (i == b->limits || !b->limit[i].type[0]);
}

/* --------------------------------------------------------------- the judgment */

struct amount {
    char text[32];
};

static struct amount amount(int64_t bytes)
{
    struct amount a;
    if (bytes >= 1000000000)
        snprintf(a.text, sizeof(a.text), "%.3f GB", 1e-9 * (double)bytes);
    else if (bytes >= 1000000)
        snprintf(a.text, sizeof(a.text), "%.3f MB", 1e-6 * (double)bytes);
    else
        snprintf(a.text, sizeof(a.text), "%" PRId64 " bytes", bytes);
    return a;
}

/* The ranks that share a limit, together. */
struct sum {
    int ranks;
    int64_t need, available;
    struct preflight_need parts;
    int64_t memory_files;
};

static const struct preflight_facts *facts_of(const struct preflight_ranks *ranks, int rank)
{
    return (const void *)((const char *)ranks->first + (size_t)rank * ranks->stride);
}

/* Of a node's ranks by its id; a mount has another one on each node, so there a network's folder
 * goes by its name. */
static const struct preflight_limit *shared(const struct preflight_facts *facts, uint64_t node,
                                            const struct preflight_limit *limit)
{
    bool here = facts->node == node;
    if (!here && !spill_type_is_network(limit->type))
        return NULL;
    for (int i = 0; i < facts->limits; i++)
        if ((here ? facts->limit[i].id == limit->id
                  : strcmp(facts->limit[i].name, limit->name) == 0) &&
            strcmp(facts->limit[i].type, limit->type) == 0)
            return &facts->limit[i];
    return NULL;
}

static struct sum sum_of(const struct preflight_ranks *ranks, uint64_t node,
                         const struct preflight_limit *limit)
{
    struct sum sum = {.available = INT64_MAX};
    for (int r = 0; r < ranks->count; r++) {
        const struct preflight_facts *facts = facts_of(ranks, r);
        const struct preflight_limit *other = shared(facts, node, limit);
        if (other == NULL || other->need == 0)
            continue;
        sum.ranks++;
        sum.need += other->need;
        sum.parts.arena += facts->need.arena;
        sum.parts.device += facts->need.device;
        sum.parts.program += facts->need.program;
        sum.memory_files += facts->memory_files;
        if (other->available < sum.available)
            sum.available = other->available;
    }
    return sum;
}

#define MOVE_STATE "Offload more to files (--offload nvme, .offload), shard more (--stage, .stage)"

static int refuse(const struct preflight_facts *facts, const struct preflight_limit *limit,
                  const struct sum *sum, struct error *error)
{
    char who[64];
    if (sum->ranks == 1)
        snprintf(who, sizeof(who), "A rank");
    else
        snprintf(who, sizeof(who), "The %d ranks", sum->ranks);
    const char *verb = sum->ranks == 1 ? "needs" : "need";
    if (spill_type_is_network(limit->type))
        return error_set(error, ZERO_ERR_IO,
                         "%s %s %s in %s (%s), which is the same for all nodes, but only %s are "
                         "free. Free some, or name a folder on a disk of each node (--nvme-path, "
                         ".nvme_path).",
                         who, verb, amount(sum->need).text, limit->name, limit->type,
                         amount(sum->available).text);
    if (limit->type[0] != '\0')
        return error_set(error, ZERO_ERR_IO,
                         "%s on node %s %s %s in %s (%s), but only %s are free. Free some, name "
                         "other folders (--nvme-path, .nvme_path), or use more nodes (at stage 0: "
                         "a higher stage, --stage, .stage).",
                         who, facts->name, verb, amount(sum->need).text, limit->name, limit->type,
                         amount(sum->available).text);
    char files[80] = "", program[80] = "";
    const char *advice = MOVE_STATE;
    if (sum->parts.program > 0) {
        advice = MOVE_STATE ", use smaller batches (--batch, .program_bytes)";
        snprintf(program, sizeof(program), ", program %s", amount(sum->parts.program).text);
    }
    if (sum->memory_files > 0) {
        advice = "Name folders on a disk (--nvme-path, .nvme_path)";
        snprintf(files, sizeof(files), ", files on tmpfs %s", amount(sum->memory_files).text);
    }
    return error_set(error, ZERO_ERR_MEMORY,
                     "%s on node %s %s %s of host memory (host %s, device %s%s%s), but only %s are "
                     "available (%s). %s, use more nodes, or ask for more memory.",
                     who, facts->name, verb, amount(sum->need).text, amount(sum->parts.arena).text,
                     amount(sum->parts.device).text, program, files, amount(sum->available).text,
                     limit->name, advice);
}

/* Whether a rank before this one has the same limit: near by where ranks of a node follow each
 * other, so that not all ranks are looked at for each rank. */
static bool is_judged(const struct preflight_ranks *ranks, int rank,
                      const struct preflight_limit *limit)
{
    uint64_t node = facts_of(ranks, rank)->node;
    while (rank-- > 0)
        if (shared(facts_of(ranks, rank), node, limit) != NULL)
            return true;
    return false;
}

int preflight_judge(const struct preflight_ranks *ranks, struct error *error)
{
    const struct preflight_facts *worst = NULL;
    const struct preflight_limit *worst_limit = NULL;
    struct sum worst_sum = {0};
    for (int r = 0; r < ranks->count; r++) {
        const struct preflight_facts *facts = facts_of(ranks, r);
        for (int i = 0; i < facts->limits; i++) {
            const struct preflight_limit *limit = &facts->limit[i];
            if (is_judged(ranks, r, limit))
                continue;
            struct sum sum = sum_of(ranks, facts->node, limit);
            if (sum.need - sum.available > worst_sum.need - worst_sum.available) {
                worst = facts;
                worst_limit = limit;
                worst_sum = sum;
            }
        }
    }
    return worst != NULL ? refuse(worst, worst_limit, &worst_sum, error) : ZERO_OK;
}

bool preflight_warning(const struct preflight_facts *facts, char text[PREFLIGHT_TEXT])
{
    for (int i = 0; i < facts->limits; i++) {
        const struct preflight_limit *limit = &facts->limit[i];
        bool memory = spill_type_is_memory(limit->type);
        if (limit->need == 0 || !(memory || spill_type_is_network(limit->type)))
            continue;
        snprintf(text, PREFLIGHT_TEXT,
                 memory ? "%s is memory (%s), not a disk: %s of files take as much host memory. "
                          "Name a folder on a disk (--nvme-path, .nvme_path)."
                        : "%s is on a server (%s), not a disk of this node: all nodes read and "
                          "write there, each rank %s in every step. Name a folder on a disk of the "
                          "node (--nvme-path, .nvme_path).",
                 limit->name, limit->type, amount(limit->need).text);
        return true;
    }
    return false;
}
