// SPDX-License-Identifier: Apache-2.0
/* Token files and the tokenizer: what is read of good ones, the sentence for
 * each way in which one is bad, what is held out, which tokens a batch has; then
 * every byte of small files changed and every length cut, which must be refused
 * or read, never more. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/data.h"
#include "examples/common/tokenizer.h"
#include "examples/gpt2/sample.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

static char folder[TREE_ROOT];
static struct data data;
static struct tokenizer tokenizer;
static char error[512];

static void setup(void)
{
    tree_make(folder);
}

static void teardown(void)
{
    data_free(&data);
    tokenizer_free(&tokenizer);
    tree_remove(folder);
}

/* A path below the folder, in storage that lives until the eighth call from here. */
static const char *below(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

/* A token file, of which cut bytes are missing at the end. */
static const char *put_tokens(const char *name, int32_t magic, int32_t version, int32_t says,
                              const uint16_t *tokens, int count, int cut)
{
    static unsigned char file[1024 + 2 * 5000];
    int32_t header[256] = {magic, version, says};
    const char *path = below(name);
    ck_assert_int_le(count, 5000);
    memcpy(file, header, sizeof(header));
    memcpy(file + sizeof(header), tokens, (size_t)count * sizeof(*tokens));
    tree_write(path, file, sizeof(header) + (size_t)(count * 2 - cut));
    return path;
}

/* Tokens first, first + 1, ... */
static const char *put_counting(const char *name, int first, int count)
{
    uint16_t tokens[5000];
    for (int i = 0; i < count; i++)
        tokens[i] = (uint16_t)(first + i);
    return put_tokens(name, 20240520, 1, count, tokens, count, 0);
}

static int load_names(int length, const struct data_names *names)
{
    data_free(&data);
    error[0] = 0;
    if (data_find(&data, names, length, error, sizeof(error)))
        return -1;
    int status = data_read(&data, 0, 1, error, sizeof(error));
    if (status)
        data_free(&data);
    return status;
}

static int load(int length, const char *a, const char *b)
{
    const char *paths[] = {a, b};
    return load_names(length, &(struct data_names){.paths = paths, .count = b ? 2 : 1});
}

/* a and b are trained on, and held, one or two, held out. */
static int load_held(int length, const char *a, const char *b, const char *held, const char *more)
{
    const char *paths[] = {a, b}, *apart[] = {held, more};
    return load_names(
        length, &(struct data_names){
                    .paths = paths, .count = b ? 2 : 1, .held = apart, .held_count = more ? 2 : 1});
}

/* What is refused, with % for the folder. */
static void refused(const char *path, const char *sentence)
{
    char expected[512];
    const char *at = strchr(sentence, '%');
    ck_assert_int_eq(load(4, path, NULL), -1);
    ck_assert_ptr_nonnull(at);
    snprintf(expected, sizeof(expected), "%.*s%s%s", (int)(at - sentence), sentence, folder,
             at + 1);
    ck_assert_str_eq(error, expected);
    ck_assert_ptr_null(data.tokens.list);
}

static void is_row(const struct token_row *row, int64_t first, int64_t count, int begin)
{
    int32_t tokens[5000];
    ck_assert_int_le(first + count, row->tokens);
    ck_assert_int_eq(tokens_copy(row, first, (int)count, tokens, error, sizeof(error)), 0);
    for (int64_t i = 0; i < count; i++)
        ck_assert_int_eq(tokens[i], begin + i);
}

START_TEST(one_file)
{
    ck_assert_int_eq(load(8, put_counting("a.bin", 100, 1000), NULL), 0);
    ck_assert(data.is_tokens && data.vocab == 50257 && data.files == 1);
    ck_assert_int_eq(data.train, 950);
    ck_assert_int_eq(data.held, 50);
    is_row(&data.tokens.train, 0, 950, 100);
    is_row(&data.tokens.held, 0, 50, 1050);
}
END_TEST

/* A file that others change while it is read: cut, written over, replaced, removed. */
START_TEST(a_file_changes)
{
    static const char *const commands[] = {
        "truncate -s 1500 $f", "printf x | dd of=$f bs=1 seek=1100 conv=notrunc status=none",
        "cp -p $f $f.new && mv $f.new $f", "rm $f",
        "cp -p $f $f.old && printf xx >>$f && touch -r $f.old $f"};
    char command[400];
    int32_t tokens[9];
    const char *path = put_counting("c.bin", 100, 1000);
    ck_assert_int_eq(load(8, path, NULL), 0);
    const struct token_row *row = &data.tokens.train;
    ck_assert_int_eq(tokens_copy(row, 900, 9, tokens, error, sizeof(error)), 0);
    snprintf(command, sizeof(command), "f=%s; %s", path, commands[_i]);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(tokens_copy(row, 900, 9, tokens, error, sizeof(error)), -1);
    ck_assert_msg(strstr(error, "c.bin' is not what it was when the run began"), "%s", error);
    ck_assert_int_eq(data_batch(&data, false, 9, 0, 1, 8, tokens, tokens, error, sizeof(error)),
                     -1);
}
END_TEST

/* What is in the way is told, not that the file had changed. */
START_TEST(a_file_that_cannot_be_opened)
{
    int32_t tokens[9];
    struct rlimit limit, none;
    ck_assert_int_eq(load(8, put_counting("o.bin", 100, 1000), NULL), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = tokens_copy(&data.tokens.train, 0, 9, tokens, error, sizeof(error));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(status, -1);
    ck_assert_ptr_nonnull(strstr(error, "o.bin' cannot be read any more: no more files may be "
                                        "open (ulimit -n). Give"));
}
END_TEST

/* One of a folder, beside token files. */
START_TEST(a_token_file_without_permission)
{
    put_counting("a.bin", 0, 100);
    ck_assert_int_eq(chmod(put_counting("b.bin", 100, 100), 0), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    bool root = geteuid() == 0;
    ck_assert_int_eq(root ? seteuid(65534) : 0, 0);
    int status = load(8, folder, NULL);
    ck_assert_int_eq(root ? seteuid(0) : 0, 0);
    ck_assert_int_eq(status, -1);
    ck_assert_ptr_nonnull(
        strstr(error, "b.bin' cannot be read (Permission denied), and beside a token file ('"));
    ck_assert_ptr_nonnull(strstr(error, "a.bin') no file is left out. "));
}
END_TEST

/* What is in it is not known. */
START_TEST(a_token_folder_without_permission)
{
    char inner[sizeof(folder) + 16];
    put_counting("a.bin", 0, 100);
    snprintf(inner, sizeof(inner), "%s/inner", folder);
    ck_assert_int_eq(mkdir(inner, 0), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    bool root = geteuid() == 0;
    ck_assert_int_eq(root ? seteuid(65534) : 0, 0);
    int status = load(8, folder, NULL);
    ck_assert_int_eq(root ? seteuid(0) : 0, 0);
    ck_assert_int_eq(rmdir(inner), 0);
    ck_assert_int_eq(status, -1);
    ck_assert_ptr_nonnull(
        strstr(error, "1 of the folders below --data cannot be read, and beside a token file ('"));
    ck_assert_ptr_nonnull(strstr(error, "a.bin') no file is left out. "));
}
END_TEST

/* In the order given, across the files' edges; empty ones do not matter. */
START_TEST(several_files)
{
    put_counting("b1.bin", 0, 0);
    put_counting("b2.bin", 10, 3);
    put_counting("b3.bin", 13, 1);
    put_counting("b4.bin", 14, 96);
    ck_assert_int_eq(load(8, put_counting("z.bin", 0, 10), folder), 0); /* z twice */
    ck_assert_int_eq(data.files, 6);
    ck_assert_int_eq(data.train, 120 - 6);
    is_row(&data.tokens.train, 0, 110, 0);
    is_row(&data.tokens.train, 9, 5, 9);
    is_row(&data.tokens.train, 110, 4, 0);
    is_row(&data.tokens.held, 0, 6, 4);
    ck_assert_int_eq(data.tokens.train.count, 5);
}
END_TEST

START_TEST(held_files)
{
    for (int i = 0; i < 41; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%02d", i);
        put_counting(name, 100 * i, 10);
    }
    ck_assert_int_eq(load(8, folder, NULL), 0);
    ck_assert_int_eq(data.held_files, 2);
    ck_assert_int_eq(data.held, 20);
    ck_assert_int_eq(data.train, 390);
    is_row(&data.tokens.held, 0, 10, 1900);
    is_row(&data.tokens.held, 10, 10, 3900);
    is_row(&data.tokens.train, 180, 10, 1800);
    is_row(&data.tokens.train, 190, 10, 2000);
}
END_TEST

/* Named for it: all of these and nothing of the others, also where they lie among these; ranks
 * that hold out others have another hash. */
START_TEST(held_apart)
{
    mkdir(below("all"), 0700);
    for (int i = 0; i < 25; i++) {
        char name[16];
        snprintf(name, sizeof(name), "all/f%02d", i);
        put_counting(name, 100 * i, 10);
    }
    const char *apart = put_counting("apart", 5000, 30);
    ck_assert_int_eq(load_held(8, below("all"), NULL, apart, below("all/f07")), 0);
    ck_assert(data.files == 26 && data.held_files == 2);
    ck_assert_int_eq(data.held, 40);
    ck_assert_int_eq(data.train, 240);
    is_row(&data.tokens.held, 0, 30, 5000);
    is_row(&data.tokens.held, 30, 10, 700);
    is_row(&data.tokens.train, 60, 10, 600);
    is_row(&data.tokens.train, 70, 10, 800);
    is_row(&data.tokens.train, 180, 10, 1900);
    const char *a = put_counting("a", 0, 40), *b = put_counting("b", 40, 50);
    ck_assert_int_eq(load_held(8, a, NULL, b, apart), 0);
    is_row(&data.tokens.train, 0, 40, 0);
    uint64_t hash = data_hash(&data);
    ck_assert_int_eq(load_held(8, a, b, apart, NULL), 0);
    is_row(&data.tokens.train, 0, 90, 0);
    is_row(&data.tokens.held, 0, 30, 5000);
    ck_assert_uint_ne(data_hash(&data), hash);
}
END_TEST

START_TEST(held_apart_refusals)
{
    const char *good = put_counting("good", 0, 40), *words = below("words");
    int32_t llama[257] = {20240801, 7, 1};
    tree_write(words, "words", 5);
    tree_write(below("llama"), llama, sizeof(llama));
    mkdir(below("empty"), 0700);
    ck_assert_int_eq(load_held(8, good, NULL, words, NULL), -1);
    ck_assert_ptr_nonnull(strstr(error, "/good' is a token file and '"));
    ck_assert_ptr_nonnull(strstr(error,
                                 "/words' is not. Give --data and --eval-data text, or token "
                                 "files, not both."));
    ck_assert_int_eq(load_held(8, good, NULL, below("llama"), NULL), -1);
    ck_assert_ptr_nonnull(strstr(error, "Give --eval-data token files with magic 20240520."));
    ck_assert_int_eq(load_held(8, good, NULL, below("empty"), NULL), -1);
    ck_assert_str_eq(error, "No file was found under --eval-data (links and folders passed over: "
                            "0). Give --eval-data files, or folders with some.");
    ck_assert_int_eq(load_held(8, good, NULL, below("no"), NULL), -1);
    ck_assert_ptr_nonnull(strstr(error, "/no' cannot be read: No such file or directory. Give "
                                        "--eval-data files and folders that can be read."));
    ck_assert_int_eq(load_held(8, good, NULL, good, NULL), -1);
    ck_assert_str_eq(error, "0 token files leave 0 tokens to train on, and one sequence of 8 needs "
                            "10. Give more with --data or a smaller --seq.");
}
END_TEST

START_TEST(batches)
{
    enum { LENGTH = 12, BATCH = 5 };
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    const char *first = put_counting("a", 0, 700);
    ck_assert_int_eq(load(LENGTH, first, put_counting("b", 700, 900)), 0);
    for (int held = 0; held < 2; held++)
        for (int number = 0; number < 40; number++) {
            ck_assert_int_eq(data_batch(&data, held, 9, number, BATCH, LENGTH, tokens, targets,
                                        error, sizeof(error)),
                             0);
            for (int b = 0; b < BATCH; b++) {
                int64_t row = held ? data.held : data.train, edge = held ? data.train : 0;
                int64_t at = edge + text_start(9, number * BATCH + b, row, LENGTH);
                for (int i = 0; i < LENGTH; i++) {
                    ck_assert_int_eq(tokens[b * LENGTH + i], at + i);
                    ck_assert_int_eq(targets[b * LENGTH + i], at + i + 1);
                }
            }
        }
}
END_TEST

START_TEST(refusals)
{
    const uint16_t good[] = {1, 2, 3, 50256}, bad[9] = {0, 50257, 3, 4};
    int32_t llama[257] = {20240801, 7, 1};
    tree_write(below("llama"), llama, sizeof(llama));
    refused(below("llama"), "'%/llama' holds tokens of Llama 3 (magic 20240801, uint32), and this "
                            "model is GPT-2. Give --data token files with magic 20240520.");
    refused(put_tokens("old", 20240520, 2, 4, good, 4, 0),
            "'%/old' is a token file of version 2, and version 1 is read here. Write it anew with "
            "llm.c's scripts.");
    refused(put_tokens("cut", 20240520, 1, 4, good, 4, 1),
            "'%/cut' says that it holds 4 tokens, which are 1032 bytes with its header, but it "
            "has 1031. It was cut or changed: write it anew.");
    refused(put_tokens("long", 20240520, 1, 3, good, 4, 0),
            "'%/long' says that it holds 3 tokens, which are 1030 bytes with its header, but it "
            "has 1032. It was cut or changed: write it anew.");
    refused(put_tokens("odd", 20240520, 1, 3, good, 4, 1),
            "'%/odd' says that it holds 3 tokens, which are 1030 bytes with its header, but it "
            "has 1031. It was cut or changed: write it anew.");
    refused(put_tokens("none", 20240520, 1, -1, good, 4, 10),
            "'%/none' has 1022 bytes, but the header of a token file has 1024. It was cut: write "
            "it anew.");
    refused(put_tokens("less", 20240520, 1, -4, good, 4, 0),
            "'%/less' says that it holds -4 tokens, which are 1016 bytes with its header, but "
            "it has 1032. It was cut or changed: write it anew.");
    refused(put_tokens("wide", 20240520, 1, 9, bad, 9, 0),
            "'%/wide' has 50257 as token 1, and GPT-2 has tokens 0 to 50256. Write the file anew "
            "with GPT-2's tokenizer.");
    static unsigned char long_file[1024 + 2 * 70001]; /* more than are read at once */
    const int32_t header[] = {20240520, 1, 70001};
    memcpy(long_file, header, sizeof(header));
    memcpy(long_file + 1024 + 2 * 70000, &bad[1], 2);
    tree_write(below("far"), long_file, sizeof(long_file));
    refused(below("far"), "'%/far' has 50257 as token 70000, and GPT-2 has tokens 0 to 50256. "
                          "Write the file anew with GPT-2's tokenizer.");
    tree_write(below("train.bin"), good, sizeof(good)); /* nanoGPT's */
    ck_assert_int_eq(load(1, below("train.bin"), NULL), -1);
    ck_assert_ptr_nonnull(strstr(error, "Give --data files or folders of text, or token files with "
                                        "llm.c's header of 1024 bytes (magic 20240520), which "
                                        "nanoGPT's train.bin lacks."));
    tree_write(below("few"), "text", 4);
    ck_assert_int_eq(load(1, put_counting("many", 0, 9), below("few")), -1);
    ck_assert_ptr_nonnull(strstr(error, "/many' is a token file and '"));
    ck_assert_ptr_nonnull(
        strstr(error, "/few' is not. Give --data text, or token files, not both."));
    ck_assert_int_eq(load(7, below("many"), NULL), 0);
    ck_assert_int_eq(load(8, below("many"), NULL), -1);
    ck_assert_str_eq(error, "1 token files leave 9 tokens to train on, and one sequence of 8 needs "
                            "10. Give more with --data or a smaller --seq.");
    ck_assert_int_eq(load(1, below("few"), NULL), 0);
    ck_assert(!data.is_tokens && data.vocab == 256 && data.train == 4 && data.bytes == 4);

    /* Of text the end is held out. */
    char text[100];
    int32_t in[2], out[2];
    for (int i = 0; i < 100; i++)
        text[i] = (char)(i + 1);
    tree_write(below("hundred"), text, sizeof(text));
    ck_assert_int_eq(load(2, below("hundred"), NULL), 0);
    ck_assert(data.bytes == 100 && data.held == 5);
    ck_assert_int_eq(data_batch(&data, true, 9, 0, 1, 2, in, out, error, sizeof(error)), 0);
    ck_assert_int_gt(in[0], 95);
}
END_TEST

/* Each rank looks at its part, so one alone meets what is not a token; who reads it later does. */
START_TEST(shares)
{
    enum { FILES = 2, COUNT = 60001, SHARES = 7 };
    static uint16_t file[512 + COUNT]; /* the middle of each: all look at its ends */
    const int32_t header[] = {20240520, 1, COUNT};
    const char *paths[] = {below("s0"), below("s1")};
    int32_t out[8];
    memcpy(file, header, sizeof(header));
    for (int i = 0; i < 3 * (SHARES - 1); i++) { /* around each share's beginning */
        int bad = FILES * COUNT * (i / 3 + 1) / SHARES + i % 3 - 1;
        ck_assert(bad % COUNT >= 4096 && bad % COUNT < COUNT - 4096);
        for (int f = 0; f < FILES; f++) {
            file[512 + bad % COUNT] = f == bad / COUNT ? 50257 : 7;
            tree_write(paths[f], file, sizeof(file));
        }
        file[512 + bad % COUNT] = 7;
        data_free(&data);
        const struct data_names names = {.paths = paths, .count = FILES};
        ck_assert_int_eq(data_find(&data, &names, 8, error, sizeof(error)), 0);
        for (int share = 0; share < SHARES; share++) {
            error[0] = 0;
            bool here =
                bad >= FILES * COUNT * share / SHARES && bad < FILES * COUNT * (share + 1) / SHARES;
            int status = data_read(&data, share, SHARES, error, sizeof(error));
            ck_assert_msg(status == -here, "%d of %d: %d (%s)", share, bad, status, error);
            ck_assert(!here || strstr(error, " has 50257 as token "));
        }
        ck_assert_int_eq(tokens_copy(&data.tokens.train, bad - 8, 8, out, error, sizeof(error)), 0);
        ck_assert_int_eq(tokens_copy(&data.tokens.train, bad, 8, out, error, sizeof(error)), -1);
        ck_assert_ptr_nonnull(strstr(error, " has 50257 as token "));
    }
}
END_TEST

/* Of all shares one hash, of what a file begins and ends with. */
START_TEST(hash_of_large_files)
{
    enum { COUNT = 60001 };
    static uint16_t file[512 + COUNT];
    const int32_t header[] = {20240520, 1, COUNT};
    const int changed[] = {0, 1, COUNT / 2, COUNT - 1};
    const char *path = below("large");
    uint64_t first = 0;
    memcpy(file, header, sizeof(header));
    for (int i = 0; i < 4; i++) {
        file[512 + changed[i]] = i > 0;
        tree_write(path, file, sizeof(file));
        file[512 + changed[i]] = 0;
        ck_assert_int_eq(load(8, path, NULL), 0);
        uint64_t whole = data_hash(&data);
        for (int share = 0; share < 3; share++) {
            ck_assert_int_eq(data_read(&data, share, 3, error, sizeof(error)), 0);
            ck_assert_uint_eq(data_hash(&data), whole);
        }
        first = i ? first : whole;
        ck_assert_int_eq(whole == first, i % 2 == 0);
    }
}
END_TEST

START_TEST(hash)
{
    put_counting("a", 0, 40);
    put_counting("b", 40, 41);
    ck_assert_int_eq(load(1, below("a"), below("b")), 0);
    uint64_t first = data_hash(&data);
    ck_assert_int_eq(load(1, below("a"), below("b")), 0);
    ck_assert_uint_eq(data_hash(&data), first);
    put_counting("b", 40, 40);
    ck_assert_int_eq(load(1, below("a"), below("b")), 0);
    ck_assert_uint_ne(data_hash(&data), first);
    put_counting("a", 0, 41);
    put_counting("b", 41, 40);
    ck_assert_int_eq(load(1, below("a"), below("b")), 0); /* the same row, cut elsewhere */
    ck_assert_uint_ne(data_hash(&data), first);
    const uint16_t zeros[12] = {0};
    uint64_t seen = 0;
    for (int count = 9; count <= 12; count++) {
        ck_assert_int_eq(load(1, put_tokens("zeros", 20240520, 1, count, zeros, count, 0), NULL),
                         0);
        ck_assert_uint_ne(data_hash(&data), seen);
        seen = data_hash(&data);
    }
}
END_TEST

/* ---------------------------------------------------------------- tokenizer */

enum { WORDS = 300 };

/* Word i has i % 7 letters, of the alphabet's i % 26th. */
static size_t tokenizer_make(unsigned char *file, uint32_t magic, uint32_t version, uint32_t end)
{
    uint32_t header[256] = {magic, version, WORDS, end};
    size_t used = sizeof(header);
    memcpy(file, header, sizeof(header));
    for (int i = 0; i < WORDS; i++) {
        file[used++] = (unsigned char)(i % 7);
        memset(file + used, 'a' + i % 26, (size_t)(i % 7));
        used += (size_t)(i % 7);
    }
    return used;
}

static int load_words(const unsigned char *file, size_t bytes, int vocab)
{
    tokenizer_free(&tokenizer);
    error[0] = 0;
    tree_write(below("words"), file, bytes);
    return tokenizer_load(&tokenizer, below("words"), vocab, error, sizeof(error));
}

START_TEST(words)
{
    unsigned char file[8192], expected[7];
    int length;
    size_t bytes = tokenizer_make(file, 20240328, 2, 299);
    ck_assert_int_eq(load_words(file, bytes, WORDS), 0);
    ck_assert_int_eq(tokenizer.end, 299);
    for (int i = 0; i < WORDS; i++) {
        const unsigned char *word = tokenizer_bytes(&tokenizer, i, &length);
        memset(expected, 'a' + i % 26, sizeof(expected));
        ck_assert_int_eq(length, i % 7);
        ck_assert_mem_eq(word, expected, (size_t)length);
    }
}
END_TEST

START_TEST(words_refused)
{
    unsigned char file[8192] = {0};
    size_t bytes = tokenizer_make(file, 20240328, 2, 299);
    ck_assert_int_eq(load_words(file, bytes - 1, WORDS), -1);
    ck_assert_ptr_nonnull(strstr(error, "ends within token 299 of 300. It was cut"));
    ck_assert_int_eq(load_words(file, bytes + 1, WORDS), -1);
    ck_assert_ptr_nonnull(strstr(error, "goes on after its 300 tokens."));
    ck_assert_int_eq(load_words(file, bytes, WORDS + 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "has 300 tokens and the model 301."));
    ck_assert_int_eq(load_words(file, 1023, WORDS), -1);
    ck_assert_ptr_nonnull(
        strstr(error, "has 1023 bytes, but the header of a tokenizer alone has 1024."));
    bytes = tokenizer_make(file, 20240328, 3, 299);
    ck_assert_int_eq(load_words(file, bytes, WORDS), -1);
    ck_assert_ptr_nonnull(
        strstr(error, "begins with the numbers 20240328 and 3, but a tokenizer begins with"));
    bytes = tokenizer_make(file, 20240328, 1, 0); /* GPT-2's own, which it does not name */
    ck_assert_int_eq(load_words(file, bytes, WORDS), -1);
    ck_assert_ptr_nonnull(strstr(error, "has token 50256 for the end of text, and 300 tokens."));
    bytes = tokenizer_make(file, 20240328, 2, 300);
    ck_assert_int_eq(load_words(file, bytes, WORDS), -1);
    ck_assert_ptr_nonnull(strstr(error, "has token 300 for the end of text, and 300 tokens."));
    ck_assert_int_eq(tokenizer_load(&tokenizer, below("no"), 9, error, sizeof(error)), -1);
    ck_assert_ptr_nonnull(strstr(error, "/no' cannot be read: No such file"));
    ck_assert_int_eq(mkfifo(below("pipe"), 0600), 0); /* is not waited for */
    ck_assert_int_eq(tokenizer_load(&tokenizer, below("pipe"), 9, error, sizeof(error)), -1);
    ck_assert_ptr_nonnull(strstr(error, "has 0 bytes"));
    ck_assert_int_eq(tokenizer_load(&tokenizer, folder, 9, error, sizeof(error)), -1);
    ck_assert_ptr_nonnull(strstr(error, "cannot be read: Is a directory"));
}
END_TEST

/* ---------------------------------------------------------------- any bytes */

/* Uses everything that a file that was not refused claims to hold. */
static void use_all(int status)
{
    int32_t tokens[5000];
    ck_assert(status == 0 || error[0]);
    if (status)
        return;
    int64_t all = 0;
    for (int i = 0; i < data.files; i++)
        all += (data.tokens.list[i].is.st_size - 1024) / 2;
    ck_assert_int_eq(data.train + data.held, all);
    ck_assert_int_eq(
        tokens_copy(&data.tokens.train, 0, (int)data.train, tokens, error, sizeof(error)), 0);
    ck_assert_int_eq(
        tokens_copy(&data.tokens.held, 0, (int)data.held, tokens, error, sizeof(error)), 0);
}

START_TEST(any_tokens)
{
    unsigned char file[1024 + 2 * 40] = {0};
    int32_t header[3] = {20240520, 1, 40};
    int good = 0;
    for (int cut = 0; cut <= 200; cut++) {
        memcpy(file, header, sizeof(header));
        tree_write(below("a"), file, sizeof(file) - (size_t)cut);
        good += load(4, below("a"), NULL) == 0;
        use_all(cut ? -1 : 0);
    }
    ck_assert_int_eq(good, 1);
    for (int at = 0; at < 12; at++)
        for (int bit = 0; bit < 8; bit++) {
            file[at] ^= (unsigned char)(1 << bit);
            tree_write(below("a"), file, sizeof(file));
            ck_assert_int_eq(load(4, below("a"), NULL), -1);
            file[at] ^= (unsigned char)(1 << bit);
        }
    for (int i = 0; i < 40; i++) { /* the high byte alone makes it too large, or not */
        file[1024 + 2 * i + 1] = 0xC5;
        tree_write(below("a"), file, sizeof(file));
        ck_assert_int_eq(load(4, below("a"), NULL), -1);
        file[1024 + 2 * i + 1] = 0xC4;
        tree_write(below("a"), file, sizeof(file));
        int status = load(4, below("a"), NULL);
        use_all(status);
        ck_assert_int_eq(status, 0);
    }
}
END_TEST

START_TEST(any_words)
{
    unsigned char file[8192];
    size_t bytes = tokenizer_make(file, 20240328, 2, 299);
    for (size_t at = 0; at < bytes; at++) {
        if (at == 16)
            at = 1024; /* the rest of the header says nothing */
        unsigned char was = file[at];
        file[at] = (unsigned char)(was ^ 0xFF);
        int status = load_words(file, bytes, WORDS), length, sum = 0;
        for (int i = 0; status == 0 && i < WORDS; i++) {
            const unsigned char *word = tokenizer_bytes(&tokenizer, i, &length);
            for (int j = 0; j < length; j++)
                sum += word[j];
        }
        ck_assert(status == 0 ? sum > 0 : error[0]);
        file[at] = was;
    }
}
END_TEST

START_TEST(ids)
{
    int32_t tokens[40];
    char *out = NULL;
    size_t size;
    for (int i = 0; i < 40; i++)
        tokens[i] = 50217 + i;
    FILE *f = open_memstream(&out, &size);
    sample_print_ids(tokens, 40, f);
    fclose(f);
    int lines = 0, count = 0, value, used;
    for (char *rest = out, *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        ck_assert_uint_le(strlen(line), 100);
        ck_assert(strncmp(line, "  |", 3) == 0);
        for (line += 3; sscanf(line, " %d%n", &value, &used) == 1; line += used)
            ck_assert_int_eq(value, tokens[count++]);
    }
    ck_assert_int_eq(count, 40);
    ck_assert_int_eq(lines, 3);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokens");
    TCase *t = tcase_create("files");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_file);
    tcase_add_test(t, several_files);
    tcase_add_loop_test(t, a_file_changes, 0, 5);
    tcase_add_test(t, a_file_that_cannot_be_opened);
    tcase_add_test(t, a_token_file_without_permission);
    tcase_add_test(t, a_token_folder_without_permission);
    tcase_add_test(t, held_files);
    tcase_add_test(t, held_apart);
    tcase_add_test(t, held_apart_refusals);
    tcase_add_test(t, batches);
    tcase_add_test(t, refusals);
    tcase_add_test(t, shares);
    tcase_add_test(t, hash);
    tcase_add_test(t, hash_of_large_files);
    tcase_add_test(t, words);
    tcase_add_test(t, words_refused);
    tcase_add_test(t, any_tokens);
    tcase_add_test(t, any_words);
    tcase_add_test(t, ids);
    suite_add_tcase(suite, t);
    return suite_run_all(suite);
}
