// SPDX-License-Identifier: Apache-2.0
/*
 * A disk that fails where it is told to: bad_disk FOLDER [RULE...], as root.
 * It mounts a file system at FOLDER whose files live in its own memory, and
 * serves it until it is unmounted; then it prints the names of what was left and
 * ends, with status 3 if that was anything. When it is killed the disk vanishes.
 * It speaks the kernel's FUSE protocol itself, so no package is needed. There
 * are no folders, nameless files nor fallocate, as on poor file systems.
 *
 * RULE is KIND:WHERE[:AFTER]. KIND: eio-read, eio-write, full-write (ENOSPC),
 * end-read (nothing is there), short-read, short-write (of more than a page half).
 * WHERE: any, or the page (4 KiB) of a file that is first, middle or last.
 * AFTER: how many such transfers go well before, default 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    TRANSFER_MAX = 1 << 20,
    BUFFER = TRANSFER_MAX + 2 * PAGE, /* the kernel's header comes first */
    NODES = 256,                      /* files that there ever are */
    RULES = 8,
};

enum kind { EIO_READ, EIO_WRITE, FULL_WRITE, END_READ, SHORT_READ, SHORT_WRITE, KINDS };
static const char *const kinds[KINDS] = {"eio-read", "eio-write",  "full-write",
                                         "end-read", "short-read", "short-write"};
enum where { ANY, FIRST, MIDDLE, LAST, WHERES };
static const char *const wheres[WHERES] = {"any", "first", "middle", "last"};

struct rule {
    enum kind kind;
    enum where where;
    long after;
};

struct node { /* number FUSE_ROOT_ID + 1 + its index */
    char name[NAME_MAX + 1];
    int fd; /* of memory */
};

struct disk {
    int fuse;
    struct rule rule[RULES];
    int rules;
    struct node node[NODES];
    int nodes;
    char in[BUFFER], out[TRANSFER_MAX];
};

/* ------------------------------------------------------------------ the files */

static int64_t size_of(const struct node *n)
{
    struct stat st;
    return fstat(n->fd, &st) == 0 ? st.st_size : 0;
}

static struct node *node_of(struct disk *d, uint64_t id)
{
    uint64_t index = id - FUSE_ROOT_ID - 1;
    return index < (uint64_t)d->nodes ? &d->node[index] : NULL;
}

static uint64_t id_of(const struct disk *d, const struct node *n)
{
    return (uint64_t)(n - d->node) + FUSE_ROOT_ID + 1;
}

static struct node *node_named(struct disk *d, const char *name)
{
    for (int i = 0; i < d->nodes; i++)
        if (strcmp(d->node[i].name, name) == 0)
            return &d->node[i];
    return NULL;
}

static struct node *node_make(struct disk *d, const char *name)
{
    if (d->nodes == NODES || strlen(name) > NAME_MAX)
        return NULL;
    struct node *n = &d->node[d->nodes];
    n->fd = memfd_create("bad_disk", MFD_CLOEXEC);
    if (n->fd < 0)
        return NULL;
    snprintf(n->name, sizeof(n->name), "%s", name);
    d->nodes++;
    return n;
}

static struct fuse_attr attributes(const struct disk *d, const struct node *n)
{
    struct fuse_attr a = {.ino = FUSE_ROOT_ID, .nlink = 2, .blksize = PAGE, .mode = S_IFDIR | 0777};
    if (n == NULL)
        return a;
    a.ino = id_of(d, n);
    a.nlink = n->name[0] != '\0';
    a.mode = S_IFREG | 0666;
    a.size = (uint64_t)size_of(n);
    a.blocks = a.size / 512;
    return a;
}

/* ------------------------------------------------------------------ the rules */

static bool touches(enum where where, int64_t size, int64_t from, int64_t bytes)
{
    int64_t page = where == FIRST    ? 0
                   : where == MIDDLE ? size / 2 / PAGE * PAGE
                                     : (size - 1) / PAGE * PAGE;
    return where == ANY || (from < page + PAGE && page < from + bytes);
}

/* The rule that this transfer breaks, or KINDS. */
static enum kind broken(struct disk *d, bool write, int64_t size, int64_t from, int64_t bytes)
{
    for (int i = 0; i < d->rules; i++) {
        struct rule *r = &d->rule[i];
        bool writes = r->kind == EIO_WRITE || r->kind == FULL_WRITE || r->kind == SHORT_WRITE;
        if (writes != write || !touches(r->where, size, from, bytes))
            continue;
        if (r->after == 0)
            return r->kind;
        r->after--;
    }
    return KINDS;
}

/* Not a multiple of anything. A page is moved whole: who asks for aligned rests
 * alone would never get its end. */
static uint32_t half(uint32_t bytes)
{
    return bytes > PAGE ? bytes / 2 | 1 : bytes;
}

/* ---------------------------------------------------------------- the answers */

static void answer(struct disk *d, const struct fuse_in_header *h, int errnum, const void *data,
                   size_t bytes)
{
    struct fuse_out_header out = {.unique = h->unique, .error = -errnum};
    struct iovec parts[2] = {{&out, sizeof(out)}, {(void *)(uintptr_t)data, errnum ? 0 : bytes}};
    out.len = (uint32_t)(sizeof(out) + parts[1].iov_len);
    ssize_t sent = writev(d->fuse, parts, 2);
    (void)sent; /* who asked may be gone */
}

static void answer_entry(struct disk *d, const struct fuse_in_header *h, const struct node *n,
                         bool open)
{
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out = {.open.open_flags = FOPEN_DIRECT_IO};
    out.entry.nodeid = id_of(d, n);
    out.entry.attr = attributes(d, n);
    answer(d, h, 0, &out, open ? sizeof(out) : sizeof(out.entry));
}

static void answer_init(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_init_in *in = (const void *)(h + 1);
    struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION,
        .minor = in->minor < FUSE_KERNEL_MINOR_VERSION ? in->minor : FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = in->max_readahead,
        .flags = in->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES),
        .max_write = TRANSFER_MAX,
        .max_pages = TRANSFER_MAX / PAGE};
    answer(d, h, 0, &out, sizeof(out));
}

static void answer_read(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_read_in *in = (const void *)(h + 1);
    struct node *n = node_of(d, h->nodeid);
    uint32_t bytes = in->size < TRANSFER_MAX ? in->size : TRANSFER_MAX;
    enum kind kind = broken(d, false, size_of(n), (int64_t)in->offset, bytes);
    if (kind == SHORT_READ)
        bytes = half(bytes);
    else if (kind == END_READ)
        bytes = 0;
    ssize_t moved = pread(n->fd, d->out, bytes, (off_t)in->offset);
    bool failed = kind == EIO_READ || moved < 0;
    answer(d, h, failed ? EIO : 0, d->out, failed ? 0 : (size_t)moved);
}

static void answer_write(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_write_in *in = (const void *)(h + 1);
    struct node *n = node_of(d, h->nodeid);
    uint32_t bytes = in->size;
    enum kind kind = broken(d, true, size_of(n), (int64_t)in->offset, bytes);
    if (kind == EIO_WRITE || kind == FULL_WRITE) {
        answer(d, h, kind == EIO_WRITE ? EIO : ENOSPC, NULL, 0);
        return;
    }
    if (kind == SHORT_WRITE)
        bytes = half(bytes);
    ssize_t moved = pwrite(n->fd, in + 1, bytes, (off_t)in->offset);
    struct fuse_write_out out = {.size = (uint32_t)moved};
    answer(d, h, moved < 0 ? errno : 0, &out, sizeof(out));
}

static void answer_attributes(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_setattr_in *in = (const void *)(h + 1);
    struct node *n = node_of(d, h->nodeid);
    bool cut = h->opcode == FUSE_SETATTR && n != NULL && (in->valid & FATTR_SIZE) != 0;
    int errnum = cut && ftruncate(n->fd, (off_t)in->size) != 0 ? errno : 0;
    struct fuse_attr_out out = {.attr = attributes(d, n)};
    answer(d, h, errnum, &out, sizeof(out));
}

static void answer_space(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_statfs_out out = {.st = {.blocks = 1 << 18,
                                               .bfree = 1 << 18,
                                               .bavail = 1 << 18,
                                               .bsize = PAGE,
                                               .frsize = PAGE,
                                               .namelen = NAME_MAX}};
    answer(d, h, 0, &out, sizeof(out));
}

/* What is asked about a name. */
static void answer_name(struct disk *d, const struct fuse_in_header *h)
{
    const char *name = (const char *)(h + 1);
    bool create = h->opcode == FUSE_CREATE;
    if (create)
        name += sizeof(struct fuse_create_in);
    struct node *n = node_named(d, name);
    if (n == NULL && create)
        n = node_make(d, name);
    if (n == NULL)
        answer(d, h, create ? ENFILE : ENOENT, NULL, 0);
    else if (h->opcode == FUSE_UNLINK) {
        n->name[0] = '\0';
        answer(d, h, 0, NULL, 0);
    } else
        answer_entry(d, h, n, create);
}

static void serve(struct disk *d, const struct fuse_in_header *h)
{
    const struct fuse_open_out open = {.open_flags = FOPEN_DIRECT_IO};
    switch (h->opcode) {
    case FUSE_INIT: answer_init(d, h); break;
    case FUSE_LOOKUP:
    case FUSE_CREATE:
    case FUSE_UNLINK: answer_name(d, h); break;
    case FUSE_GETATTR:
    case FUSE_SETATTR: answer_attributes(d, h); break;
    case FUSE_READ: answer_read(d, h); break;
    case FUSE_WRITE: answer_write(d, h); break;
    case FUSE_STATFS: answer_space(d, h); break;
    case FUSE_OPEN:
    case FUSE_OPENDIR: answer(d, h, 0, &open, sizeof(open)); break;
    case FUSE_READDIR:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY: answer(d, h, 0, NULL, 0); break; /* no entries: nothing is listed */
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: break; /* want no answer */
    default: answer(d, h, ENOSYS, NULL, 0);
    }
}

/* -------------------------------------------------------------------- the disk */

static int find(const char *const *names, int count, const char *text, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0)
            return i;
    return -1;
}

static bool rule_read(struct disk *d, const char *text)
{
    size_t kind = strcspn(text, ":");
    const char *where = text + kind + (text[kind] == ':');
    size_t length = strcspn(where, ":");
    int k = find(kinds, KINDS, text, kind), w = find(wheres, WHERES, where, length);
    if (k < 0 || w < 0 || d->rules == RULES)
        return false;
    long after = where[length] == ':' ? atol(where + length + 1) : 0;
    d->rule[d->rules++] = (struct rule){(enum kind)k, (enum where)w, after};
    return true;
}

int main(int argc, char **argv)
{
    static struct disk disk;
    char options[128];
    bool well = argc > 1;
    for (int i = 2; i < argc && well; i++)
        well = rule_read(&disk, argv[i]);
    if (!well) {
        fprintf(stderr, "bad_disk FOLDER [KIND:WHERE[:AFTER]...]\n");
        return 2;
    }
    disk.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
             disk.fuse, getuid(), getgid());
    if (disk.fuse < 0 || mount("bad_disk", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("bad_disk: mount");
        return 1;
    }
    ssize_t bytes;
    while ((bytes = read(disk.fuse, disk.in, sizeof(disk.in))) > 0 || errno == EINTR ||
           errno == ENOENT)
        if (bytes > 0)
            serve(&disk, (const void *)disk.in);
    if (errno != ENODEV) /* unmounted */
        return 1;
    int left = 0;
    for (int i = 0; i < disk.nodes; i++)
        if (disk.node[i].name[0] != '\0' && ++left)
            printf("%s\n", disk.node[i].name);
    return left > 0 ? 3 : 0;
}
