// SPDX-License-Identifier: Apache-2.0
/* Text: which files count, in which order, what is held out, and where the
 * sequences of a run begin. Then the text a model writes. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/common/text.h"
#include "examples/gpt2/sample.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

static char folder[TREE_ROOT];
static struct text text;
static char error[512];

static void setup(void)
{
    tree_make(folder);
}

static void teardown(void)
{
    text_free(&text);
    tree_remove(folder);
}

/* A path below the folder, in storage that lives until the fourth call from here. */
__attribute__((format(printf, 1, 2))) static const char *below(const char *format, ...)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    int used = snprintf(path, sizeof(paths[0]), "%s/", folder);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof(paths[0]) - (size_t)used, format, args);
    va_end(args);
    return path;
}

static void put_word(const char *path, const char *word)
{
    tree_write(path, word, strlen(word));
}

/* held: what is held out, or NULL. */
static int load_held(const char *const *paths, int count, const char *held, int length)
{
    struct paths files;
    text_free(&text);
    error[0] = 0;
    int status = paths_collect(&files, paths, count, error, sizeof(error));
    if (status == 0 && held)
        status = paths_hold(&files, &held, 1, error, sizeof(error));
    if (status == 0)
        status = text_find(&text, &files, length, error, sizeof(error));
    struct text found = text;
    if (status == 0)
        status = text_read(&text, &files, error, sizeof(error));
    if (status == 0) {
        ck_assert_ptr_null(found.train);
        found.train = text.train;
        found.held = text.held;
        ck_assert_mem_eq(&found, &text, sizeof(text));
    }
    paths_free(&files);
    return status;
}

static int load_all(const char *const *paths, int count, int length)
{
    return load_held(paths, count, NULL, length);
}

static int load(const char *path, int length)
{
    return load_all(&path, 1, length);
}

static void is_train(const char *expect)
{
    ck_assert_int_eq(text.train_bytes, (int64_t)strlen(expect));
    ck_assert_mem_eq(text.train, expect, strlen(expect));
}

/* Bytewise by whole path: '-' < '/' < 'a', and capitals come first. */
START_TEST(order)
{
    mkdir(below("a"), 0700);
    mkdir(below("a/deep"), 0700);
    put_word(below("b"), "five ");
    put_word(below("a/z"), "four ");
    put_word(below("a/deep/x"), "three ");
    put_word(below("a-b"), "two ");
    put_word(below("Z"), "one ");
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_int_eq(text.files, 5);
    is_train("one two three four five"); /* one byte of 23 is held out */
    ck_assert_int_eq(load(below("a//"), 1), 0);
    is_train("three four ");
}
END_TEST

START_TEST(several_paths)
{
    put_word(below("x"), "xxxx");
    put_word(below("y"), "yyyy");
    char x[256], y[256];
    snprintf(x, sizeof(x), "%s", below("x"));
    snprintf(y, sizeof(y), "%s", below("y"));
    const char *paths[] = {y, x, y};
    ck_assert_int_eq(load_all(paths, 3, 1), 0);
    is_train("yyyyxxxxyyyy");
}
END_TEST

START_TEST(links)
{
    put_word(below("file"), "words");
    mkdir(below("inner"), 0700);
    ck_assert_int_eq(symlink(below("file"), below("inner/link")), 0);
    ck_assert_int_eq(symlink(folder, below("inner/loop")), 0);
    ck_assert_int_eq(symlink("nowhere", below("inner/broken")), 0);
    ck_assert_int_eq(mkfifo(below("inner/fifo"), 0600), 0);
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_int_eq(text.files, 1);
    ck_assert_int_eq(text.passed_over, 4);
    is_train("words");
    ck_assert_int_eq(load(below("inner/link"), 1), 0); /* named: followed */
    is_train("words");
    ck_assert_int_eq(load(below("inner"), 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "No file was found under --data "));
    ck_assert_ptr_nonnull(strstr(error, "(links and folders passed over: 4)."));
    ck_assert_int_eq(load(below("inner/fifo"), 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "is neither a file nor a folder."));
}
END_TEST

/* What this user may not read is counted by itself. */
START_TEST(not_allowed)
{
    mkdir(below("closed"), 0700);
    put_word(below("closed/x"), "xxxx");
    put_word(below("file"), "words");
    put_word(below("other"), "other words");
    tree_write(below("data"), "", 1);
    mkdir(below("inner"), 0755);
    put_word(below("inner/y"), "yyyy");
    chmod(below("inner/y"), 0);
    chmod(below("other"), 0);
    chmod(folder, 0755);
    if (geteuid())
        chmod(below("closed"), 0);
    else
        ck_assert_int_eq(seteuid(65534), 0);
    bool comes_there = faccessat(AT_FDCWD, folder, R_OK | X_OK, AT_EACCESS) == 0;
    char sentence[sizeof(error)];
    load(below("inner"), 1);
    strcpy(sentence, error);
    int status = load(folder, 1), back = seteuid(getuid());
    chmod(below("closed"), 0700);
    ck_assert_int_eq(back, 0);
    if (!comes_there) {
        puts("skipped: files that cannot be read: another user does not come to them");
        return;
    }
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(text.files, 1);
    ck_assert_int_eq(text.passed_over, 4);
    ck_assert_int_eq(text.unreadable, 3);
    is_train("words");
    ck_assert_str_eq(sentence,
                     "No text was found in 1 file: each has NUL bytes or cannot be read (links and "
                     "folders passed over: 0). Give --data files or folders of text.");
}
END_TEST

/* A NUL decides when it is among the first 4096 bytes, and only there. */
START_TEST(nul)
{
    static char bytes[3 * TEXT_HEAD];
    memset(bytes, 'a', sizeof(bytes));
    bytes[TEXT_HEAD] = 0;
    tree_write(below("late"), bytes, sizeof(bytes));
    bytes[TEXT_HEAD] = 'a';
    bytes[TEXT_HEAD - 1] = 0;
    tree_write(below("early"), bytes, sizeof(bytes));
    tree_write(below("tiny"), "", 1);
    tree_write(below("empty"), "", 0);
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_int_eq(text.files, 2);
    ck_assert_int_eq(text.passed_over, 2);
    ck_assert_int_eq(text.train_bytes + text.held_bytes, (int64_t)sizeof(bytes));
    ck_assert_int_eq(text.train[TEXT_HEAD], 0);
    ck_assert_int_eq(load(below("early"), 1), -1);
    ck_assert_str_eq(
        error, "No text was found in 1 file: each has NUL bytes or cannot be read (links and "
               "folders passed over: 0). Give --data files or folders of text, or token files "
               "with llm.c's header of 1024 bytes (magic 20240520), which nanoGPT's train.bin "
               "lacks.");
}
END_TEST

/* Files 19 and 39 of text are held out; what is not text does not count. */
START_TEST(held_out)
{
    for (int i = 0; i < 45; i++) {
        char word[8];
        snprintf(word, sizeof(word), "<%02d>", i);
        put_word(below("f%02d", i), word);
    }
    tree_write(below("f05nul"), "a\0b", 3);
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_int_eq(text.files, 45);
    ck_assert_int_eq(text.held_files, 2);
    ck_assert_int_eq(text.held_bytes, 8);
    ck_assert(memcmp(text.held, "<39><19>", 8) == 0);
    ck_assert_int_eq(text.train_bytes, 43 * 4);
    ck_assert_mem_eq(text.train + 18 * 4, "<18><20>", 8);
    ck_assert_mem_eq(text.train + 42 * 4, "<44>", 4);
}
END_TEST

START_TEST(held_tail)
{
    char bytes[200];
    for (int i = 0; i < 200; i++)
        bytes[i] = (char)(i + 1);
    tree_write(below("one"), bytes, sizeof(bytes));
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_int_eq(text.train_bytes, 190);
    ck_assert_int_eq(text.held_bytes, 10);
    ck_assert_mem_eq(text.held, bytes + 190, 10);
    ck_assert_int_eq(text.held_files, 0);
}
END_TEST

/* All that is named for it and nothing else, also where it lies among the others. */
START_TEST(held_apart)
{
    char inner[256];
    const char *path = folder;
    mkdir(below("in"), 0700);
    for (int i = 0; i < 45; i++) {
        char word[8];
        snprintf(word, sizeof(word), "<%02d>", i);
        put_word(below(i % 22 == 7 ? "in/f%02d" : "f%02d", i), word);
    }
    tree_write(below("in/nul"), "a\0b", 3);
    ck_assert_int_eq(link(below("in/f07"), below("f07")), 0); /* by whatever name */
    snprintf(inner, sizeof(inner), "%s//", below("in"));
    ck_assert_int_eq(load_held(&path, 1, inner, 1), 0);
    ck_assert(text.files == 45 && text.held_files == 2 && text.passed_over == 1);
    ck_assert_int_eq(text.held_bytes, 8);
    ck_assert(memcmp(text.held, "<29><07>", 8) == 0);
    ck_assert_int_eq(text.train_bytes, 43 * 4);
    ck_assert_mem_eq(text.train + 6 * 4, "<06><08>", 8);
    ck_assert_mem_eq(text.train + 18 * 4, "<19><20>", 8);
    put_word(below("one"), "0123456789012345678901234567890123456789");
    path = below("one");
    ck_assert_int_eq(load_held(&path, 1, inner, 1), 0); /* whole: the end is not held out */
    is_train("0123456789012345678901234567890123456789");
    ck_assert_int_eq(text.held_bytes, 8);
}
END_TEST

START_TEST(held_apart_refusals)
{
    char file[256];
    const char *path = file;
    snprintf(file, sizeof(file), "%s", below("file"));
    put_word(path, "0123456789");
    put_word(below("other"), "0123456789");
    tree_write(below("nul"), "a\0b", 3);
    mkdir(below("empty"), 0700);
    ck_assert_int_eq(load_held(&path, 1, below("nul"), 1), -1);
    ck_assert_str_eq(error, "No text was found in 1 file of --eval-data: each has NUL bytes or "
                            "cannot be read. Give --eval-data files or folders of text.");
    ck_assert_int_eq(load_held(&path, 1, below("empty"), 1), -1);
    ck_assert_str_eq(error, "No file was found under --eval-data (links and folders passed over: "
                            "0). Give --eval-data files, or folders with some.");
    ck_assert_int_eq(load_held(&path, 1, path, 1), -1);
    ck_assert_str_eq(error, "No file was found under --data that --eval-data does not name (links "
                            "and folders passed over: 0). Give --data files or folders of text.");
    ck_assert_int_eq(load_held(&path, 1, below("other"), 9), -1);
    ck_assert_ptr_nonnull(strstr(error, "The text of 1 file leaves 10 bytes to train on"));
    path = below("nul");
    ck_assert_int_eq(load_held(&path, 1, below("other"), 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "No text was found in 1 file: each has NUL bytes"));
    path = below("empty");
    ck_assert_int_eq(load_held(&path, 1, below("none"), 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "Give --eval-data files and folders that can be read."));
}
END_TEST

START_TEST(too_little)
{
    put_word(below("f"), "0123456789");
    ck_assert_int_eq(load(folder, 8), 0);
    ck_assert_int_eq(load(folder, 9), -1);
    ck_assert_str_eq(error, "The text of 1 file leaves 10 bytes to train on, and one sequence of 9 "
                            "tokens needs 11. Give more with --data or a smaller --seq.");
    ck_assert_ptr_null(text.train);
    ck_assert_int_eq(load(below("none"), 1), -1);
    ck_assert_ptr_nonnull(strstr(error, "No such file or directory"));
    mkdir(below("empty"), 0700);
    ck_assert_int_eq(load(below("empty"), 1), -1);
    ck_assert_str_eq(error, "No file was found under --data (links and folders passed over: 0). "
                            "Give --data files or folders of text.");
}
END_TEST

/* What was found and is no longer there is told, and what has come is not read. */
START_TEST(changed)
{
    struct paths files;
    const char *path = folder;
    put_word(below("a"), "0123456789");
    put_word(below("b"), "abcdefghij");
    ck_assert_int_eq(paths_collect(&files, &path, 1, error, sizeof(error)), 0);
    ck_assert_int_eq(text_find(&text, &files, 1, error, sizeof(error)), 0);
    put_word(below("b"), "abcdefghij, and more");
    ck_assert_int_eq(text_read(&text, &files, error, sizeof(error)), 0);
    text_free(&text);
    put_word(below("b"), "abcdefghij");
    ck_assert_int_eq(text_find(&text, &files, 1, error, sizeof(error)), 0);
    put_word(below("a"), "0123");
    ck_assert_int_eq(text_read(&text, &files, error, sizeof(error)), -1);
    ck_assert_ptr_nonnull(strstr(error, "20 bytes of text were found, and 14 could be read: some "
                                        "files are shorter now, or have NUL bytes. "));
    ck_assert_ptr_null(text.train);
    put_word(below("a"), "0123456789");
    ck_assert_int_eq(text_find(&text, &files, 1, error, sizeof(error)), 0);
    put_word(below("a"), "0123456789, and more");
    ck_assert_int_eq(text_read(&text, &files, error, sizeof(error)), -1);
    ck_assert_ptr_nonnull(strstr(error, "20 could be read: some files are longer now. "));
    struct rlimit limit;
    ck_assert_int_eq(text_find(&text, &files, 1, error, sizeof(error)), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit few = {.rlim_cur = 3, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(text_read(&text, &files, error, sizeof(error)), -1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_ptr_nonnull(
        strstr(error, " 0 could be read: no more files may be open (ulimit -n). Raise"));
    paths_free(&files);
}
END_TEST

START_TEST(hash)
{
    put_word(below("f"), "0123456789abcdef0123456789abcdef");
    ck_assert_int_eq(load(folder, 1), 0);
    uint64_t first = text_hash(&text);
    ck_assert_int_eq(load(folder, 1), 0);
    ck_assert_uint_eq(text_hash(&text), first);
    for (int i = 0; i < 32; i++) {
        unsigned char *at = text.train + i; /* what is held out follows */
        *at ^= 1;
        ck_assert_uint_ne(text_hash(&text), first);
        *at ^= 1;
    }
    text.train_bytes--;
    text.held_bytes++;
    text.held--;
    ck_assert_uint_ne(text_hash(&text), first);
    unsigned char zeros[8] = {0};
    struct text three = {.train = zeros, .train_bytes = 3};
    struct text four = {.train = zeros, .train_bytes = 4};
    ck_assert_uint_ne(text_hash(&three), text_hash(&four));
}
END_TEST

/* -------------------------------------------------------------- sequences */

/* The numbers are part of the program's promise: the same run tomorrow. */
START_TEST(starts)
{
    enum { BYTES = 1000, LENGTH = 100, DRAWS = 20000, STARTS = BYTES - LENGTH - 1 };
    int seen[STARTS] = {0}, missing = 0, differ = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        int64_t at = text_start(1, i, BYTES, LENGTH);
        ck_assert(at >= 0 && at < STARTS);
        ck_assert_int_eq(at, text_start(1, i, BYTES, LENGTH));
        differ += at != text_start(2, i, BYTES, LENGTH);
        seen[at]++;
    }
    for (int i = 0; i < STARTS; i++)
        missing += seen[i] == 0;
    ck_assert_int_eq(missing, 0); /* 899 * exp(-20000 / 899): one in 5 million runs would fail */
    ck_assert_int_gt(differ, DRAWS * 99 / 100);
    ck_assert_int_eq(text_start(1, 0, 1 << 20, 128), 917683);
    ck_assert_int_eq(text_start(1, 1, 1 << 20, 128), 1020178);
    ck_assert_int_eq(text_start(5, 0, text_needs(7), 7), 0);
}
END_TEST

/* However the sequences are cut into micro-batches, they are the same ones. */
START_TEST(batches)
{
    enum { BYTES = 5000, LENGTH = 12, ALL = 24 };
    unsigned char bytes[BYTES];
    int32_t tokens[ALL * LENGTH], targets[ALL * LENGTH], some[2][ALL * LENGTH];
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 37 + i / 256);
    text_batch(bytes, BYTES, 9, 0, ALL, LENGTH, tokens, targets);
    for (int s = 0; s < ALL; s++)
        for (int i = 0; i < LENGTH; i++) {
            int64_t at = text_start(9, s, BYTES, LENGTH) + i;
            ck_assert_int_eq(tokens[s * LENGTH + i], bytes[at]);
            ck_assert_int_eq(targets[s * LENGTH + i], bytes[at + 1]);
        }
    for (int batch = 1; batch <= ALL; batch *= 2)
        for (int number = 0; number < ALL / batch; number++) {
            size_t first = (size_t)(number * batch * LENGTH), count = (size_t)(batch * LENGTH);
            text_batch(bytes, BYTES, 9, number, batch, LENGTH, some[0], some[1]);
            ck_assert_mem_eq(some[0], tokens + first, count * sizeof(int32_t));
            ck_assert_mem_eq(some[1], targets + first, count * sizeof(int32_t));
        }
}
END_TEST

/* ------------------------------------------------------------------ sample */

START_TEST(pick)
{
    const float logits[] = {0, 1, -40, 1}; /* of 1 + 2e: 0.155, 0.422, 0, 0.422 */
    ck_assert_int_eq(sample_pick(logits, 4, 0, 0.99), 1);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 0), 0);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 0.15), 0);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 0.16), 1);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 0.57), 1);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 0.58), 3);
    ck_assert_int_eq(sample_pick(logits, 4, 1, 1 - 0x1p-53), 3);
    ck_assert_int_eq(sample_pick(logits, 4, 0.01, 0.001), 1); /* cold: the likeliest two */
    ck_assert_int_eq(sample_pick(logits, 4, 1e6, 0.74), 2);   /* hot: all alike */
    const float broken[] = {NAN, NAN};
    ck_assert_int_eq(sample_pick(broken, 2, 1, 0.5), 0);
}
END_TEST

START_TEST(print)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    sample_print((const unsigned char *)"a\tb\n\x1b[2J\xff~\x7f", 11, f);
    fclose(f);
    ck_assert_str_eq(out, "  | a\tb\n  | \\x1b[2J\\xff~\\x7f\n");
    free(out);
}
END_TEST

/* What sample_print makes of bytes, behind its bar and without the end of the line. */
static void is_printed(const char *bytes, size_t count, const char *expect)
{
    char *out = NULL, line[512];
    size_t size;
    FILE *f = open_memstream(&out, &size);
    sample_print((const unsigned char *)bytes, (int)count, f);
    fclose(f);
    snprintf(line, sizeof(line), "  | %s\n", expect);
    ck_assert_str_eq(out, line);
    free(out);
}

/* Cyrillic, an accent, an emoji, and the edges of each length from U+00A0 on. */
START_TEST(print_utf8)
{
    const char *whole = "\xd0\x9f\xd1\x80\xd0\xb8 caf\xc3\xa9 \xf0\x9f\x98\x80~ \xc2\xa0 \xdf\xbf "
                        "\xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 "
                        "\xf4\x8f\xbf\xbf";
    is_printed(whole, strlen(whole), whole);
}
END_TEST

/* C1 controls, what is longer than it need be, surrogates, what is beyond U+10FFFF, bytes that
 * begin nothing, and what ends early. */
START_TEST(print_no_utf8)
{
    const char *wrong = "\xc2\x80 \xc2\x9b \xc2\x9f \xc0\xaf \xc1\xbf \xe0\x80\xaf \xe0\x9f\xbf "
                        "\xf0\x8f\xbf\xbf \xed\xa0\x80 \xed\xbf\xbf \xf4\x90\x80\x80 "
                        "\xf5\x80\x80\x80 \xf8\x90\x80\x80 \x80 \xbf \xfe \xc3 \xe2\x82 "
                        "\xf0\x9f\x98 \xe2 \xf0";
    char escaped[512] = "", *end = escaped;
    for (const char *at = wrong; *at; at++)
        end += sprintf(end, *at & 0x80 ? "\\x%02x" : "%c", (unsigned char)*at);
    is_printed(wrong, strlen(wrong), escaped);
    is_printed("\xe2\x82\xac", 2, "\\xe2\\x82"); /* the sample ends within it */
    is_printed("\xe2\x82\xc3\xa9", 4, "\\xe2\\x82\xc3\xa9");
    is_printed("\xf0\x9f\n\x98\x80", 5, "\\xf0\\x9f\n  | \\x98\\x80");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *files = tcase_create("files"), *sequences = tcase_create("sequences");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, order);
    tcase_add_test(files, several_paths);
    tcase_add_test(files, links);
    tcase_add_test(files, not_allowed);
    tcase_add_test(files, nul);
    tcase_add_test(files, held_out);
    tcase_add_test(files, held_tail);
    tcase_add_test(files, held_apart);
    tcase_add_test(files, held_apart_refusals);
    tcase_add_test(files, too_little);
    tcase_add_test(files, changed);
    tcase_add_test(files, hash);
    suite_add_tcase(suite, files);
    tcase_add_test(sequences, starts);
    tcase_add_test(sequences, batches);
    tcase_add_test(sequences, pick);
    tcase_add_test(sequences, print);
    tcase_add_test(sequences, print_utf8);
    tcase_add_test(sequences, print_no_utf8);
    suite_add_tcase(suite, sequences);
    return suite_run_all(suite);
}
