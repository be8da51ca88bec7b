// SPDX-License-Identifier: Apache-2.0
/* Command lines: the parser of options.h on a table of its own, then the
 * trainer's options, their defaults, ranges and contradictions. */
#include <check.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "examples/common/options.h"
#include "examples/gpt2/arguments.h"
#include "tests/support/suite.h"

/* ------------------------------------------------------------ a small table */

struct values {
    bool flag;
    int whole, choice;
    int64_t size;
    double real;
    const char *text;
    struct option_list list;
};

static const struct option_choice colours[] = {{.name = "red", .value = 7},
                                               {.name = "green", .value = 8},
                                               {.name = "rot", .value = 7, .hidden = true},
                                               {.name = NULL}};

#define OPTIONS_OF struct values

static const struct option table[] = {
    {"flag", FLAG(flag), .help = "a flag"},
    {"whole", WHOLE(whole, -3, 9), .initial = "5", .value = "N", .help = "a whole number"},
    {"size", SIZE(size, 0, 0x1p53), .initial = "2K", .value = "SIZE", .help = "a size"},
    {"real", REAL(real), .initial = "0.5", .max = 1, .range = "a part of one", .value = "X",
     .help = "a real number"},
    {"colour", CHOICE(choice, colours), .shown = "the sky's", .help = "a choice"},
    {"text", TEXT(text), .value = "WORD", .help = "a word"},
    {"list", LIST(list), .initial = "nothing", .value = "WORD...", .help = "words"},
};
enum { COUNT = sizeof(table) / sizeof(*table), ARGUMENTS = 32 };

static struct values values;
static bool given[COUNT];
static char error[512];

/* Cuts line at blanks into argv, in storage that lives until the next call. */
static int split(const char *line, char **argv)
{
    static char words[512];
    int argc = 0;
    snprintf(words, sizeof(words), "program %s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        ck_assert_int_lt(argc, ARGUMENTS);
        argv[argc++] = word;
    }
    return argc;
}

static int parse(const char *line)
{
    char *argv[ARGUMENTS];
    int argc = split(line, argv);
    values = (struct values){0};
    error[0] = 0;
    return options_parse(table, COUNT, argc, argv, &values, given, error, sizeof(error));
}

static void refused(const char *line, const char *sentence)
{
    ck_assert_int_eq(parse(line), -1);
    ck_assert_str_eq(error, sentence);
}

START_TEST(defaults)
{
    ck_assert_int_eq(parse(""), 0);
    ck_assert(!values.flag && values.whole == 5 && values.size == 2048);
    ck_assert(values.real == 0.5 && values.choice == 0 && values.text == NULL);
    ck_assert_int_eq(values.list.count, 1);
    ck_assert_str_eq(values.list.items[0], "nothing");
    for (int i = 0; i < COUNT; i++)
        ck_assert(!given[i]);
}
END_TEST

START_TEST(every_kind)
{
    ck_assert_int_eq(parse("--flag --whole -3 --size=3M --real .1 --colour green --text=a=b"), 0);
    ck_assert(values.flag && values.whole == -3 && values.size == 3 << 20);
    ck_assert(values.real == 0.1 && values.choice == 8);
    ck_assert_str_eq(values.text, "a=b");
    for (int i = 0; i < COUNT; i++)
        ck_assert(given[i] == (i != options_index(table, COUNT, "list")));
    ck_assert_int_eq(parse("--colour rot --size 1G --whole 9 --whole 2"), 0);
    ck_assert(values.choice == 7 && values.size == 1 << 30 && values.whole == 2);
    ck_assert_int_eq(parse("--size 1T"), 0);
    ck_assert_int_eq(values.size, (int64_t)1 << 40);
    ck_assert_int_eq(parse("--size 4096"), 0);
    ck_assert_int_eq(values.size, 4096);
}
END_TEST

START_TEST(lists)
{
    ck_assert_int_eq(parse("--list a b --flag --list=c d"), 0);
    ck_assert_int_eq(values.list.count, 4);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(values.list.items[i][0], "abcd"[i]);
    ck_assert(values.flag);
}
END_TEST

START_TEST(list_overflow)
{
    char *argv[OPTION_LIST_MAX + 3];
    argv[0] = argv[2] = (char[]){"x"};
    argv[1] = (char[]){"--list"};
    for (int i = 2; i < OPTION_LIST_MAX + 3; i++)
        argv[i] = argv[2];
    ck_assert_int_eq(options_parse(table, COUNT, OPTION_LIST_MAX + 2, argv, &values, given, error,
                                   sizeof(error)),
                     0);
    ck_assert_int_eq(values.list.count, OPTION_LIST_MAX);
    ck_assert_int_eq(options_parse(table, COUNT, OPTION_LIST_MAX + 3, argv, &values, given, error,
                                   sizeof(error)),
                     -1);
    ck_assert_ptr_nonnull(strstr(error, "more than 4096 values"));
}
END_TEST

START_TEST(bad_values)
{
    const char *whole = "--whole cannot be '%s'. Give a whole number from -3 to "
                        "9.";
    const char *const words[] = {"10", "-4", "x", "4x", "1.5", "1K", "+", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        char line[64], sentence[160];
        snprintf(line, sizeof(line), "--whole %s", words[i]);
        snprintf(sentence, sizeof(sentence), whole, words[i]);
        refused(line, sentence);
    }
    const char *size = "Give a whole number from 0 to 9007199254740992, such as 4096, 64K, 512M or "
                       "4G.";
    const char *const sizes[] = {
        "8193T",          "4k",           "-1K", "2KK", "9007199254740993",
        "9999999999999G", "17179869185G", "K",   "+4",  "99999999999999999999"};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char line[64];
        snprintf(line, sizeof(line), "--size %s", sizes[i]);
        ck_assert_int_eq(parse(line), -1);
        ck_assert_ptr_nonnull(strstr(error, size));
    }
    refused("--real nan", "--real cannot be 'nan'. Give a part of one.");
    refused("--real inf", "--real cannot be 'inf'. Give a part of one.");
    refused("--real 1.01", "--real cannot be '1.01'. Give a part of one.");
    refused("--real 0.5f", "--real cannot be '0.5f'. Give a part of one.");
    refused("--colour blue", "--colour cannot be 'blue'. Give red or green.");
    refused("--text=", "--text cannot be ''. Give a value that is not empty.");
    ck_assert_int_eq(parse("--whole 9 --size 9007199254740992 --real 1"), 0); /* the last good */
}
END_TEST

START_TEST(sizes_of_variables)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0: refused */
    } rows[] = {{"4096", 4096},
                {"2k", 2048},
                {"3M", 3 << 20},
                {"8589934591G", INT64_MAX >> 30 << 30},
                {"8589934592G", 0},
                {"17179869185G", 0},
                {"9223372036854775808", 0},
                {"0", 0},
                {"-1", 0},
                {"", 0},
                {"1T", 0},
                {"1GG", 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t bytes;
        bool is = options_size(rows[i].text, &bytes);
        ck_assert_msg(is == (rows[i].bytes > 0) && (!is || bytes == rows[i].bytes), "%s",
                      rows[i].text);
    }
}
END_TEST

/* What --help does not show is no hint either. */
START_TEST(hidden)
{
    static const struct option secret = {"secret", OPTION_FLAG, FIELD(flag)};
    char *argv[] = {"program", "--secre"};
    ck_assert_int_eq(options_parse(&secret, 1, 2, argv, &values, given, error, sizeof(error)), -1);
    ck_assert_str_eq(error, "There is no option --secre. See --help for those there are.");
}
END_TEST

START_TEST(bad_shape)
{
    refused("--hole 3", "There is no option --hole. Did you mean --whole? See --help for all.");
    refused("--penguins", "There is no option --penguins. See --help for those there are.");
    refused("word", "'word' is no option. Options begin with --; see --help.");
    refused("--", "'--' is no option. Options begin with --; see --help.");
    refused("--flag word", "'word' is no option. Options begin with --; see "
                           "--help.");
    refused("--flag=1", "--flag takes no value, but '--flag=1' gives one. Leave it out.");
    refused("--whole", "--whole needs a value (--whole N).");
    refused("--whole --flag", "--whole needs a value (--whole N).");
    refused("--list --flag", "--list needs a value (--list WORD...).");
    refused("--colour", "--colour needs a value (--colour red).");
}
END_TEST

/* ------------------------------------------------------------------ --help */

/* What a print function writes, in a buffer to be freed. */
static char *printed(void (*print)(FILE *))
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(f);
    print(f);
    fclose(f);
    return text;
}

static void print_table(FILE *out)
{
    options_help(table, COUNT, out);
}

START_TEST(help)
{
    char *text = printed(print_table);
    ck_assert_str_eq(text, "  --flag                        a flag\n"
                           "  --whole N                     a whole number (default: 5)\n"
                           "  --size SIZE                   a size (default: 2K)\n"
                           "  --real X                      a real number (default: 0.5)\n"
                           "  --colour red|green            a choice (default: the sky's)\n"
                           "  --text WORD                   a word\n"
                           "  --list WORD...                words (default: nothing)\n");
    free(text);
}
END_TEST

static size_t occurrences(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* What this build cannot do is not shown. */
static bool shown(const char *name)
{
#ifndef HAVE_XXHASH
    if (!strcmp(name, "verify-spill"))
        return false;
#endif
#ifndef HAVE_CUBLAS
    if (!strcmp(name, "device") || !strcmp(name, "tf32") || !strcmp(name, "reduction"))
        return false;
#endif
    return name != NULL;
}

static const char *const trainer_options[] = {
    "stage",
    "offload",
    "offload-optimizer",
    "offload-param",
    "offload-grad",
    "state",
    "grad-dtype",
    "accumulate-in",
    "loss-scale",
    "l2",
    "nvme-path",
    "host-bytes",
    "chunk",
    "slots",
    "ring",
    "verify-spill",
    "data",
    "eval-data",
    "tokenizer",
    "model",
    "layers",
    "channels",
    "heads",
    "seq",
    "dtype",
    "batch",
    "accumulate",
    "steps",
    "lr",
    "warmup",
    "decay",
    "final-lr",
    "clip",
    "weight-decay",
    "beta1",
    "beta2",
    "eps",
    "seed",
    "recompute",
    "device",
    "tf32",
    "bf16x3",
    "reduction",
    "threads",
    "deadline",
    "eval-every",
    "log",
    "trace",
    "checkpoint",
    "checkpoint-every",
    "sample",
    "temperature",
    "plan",
    "quiet",
    "help",
};

START_TEST(trainer_help)
{
    const char *const flags[] = {"l2",   "recompute",    "plan", "quiet",
                                 "help", "verify-spill", "tf32", "bf16x3"};
    const char *const *names = trainer_options;
    const size_t count = sizeof(trainer_options) / sizeof(*trainer_options);
    char *text = printed(arguments_help), *rest = text;
    size_t absent = 0, flagged = 0;
    for (size_t i = 0; i < count; i++) {
        char entry[64];
        bool flag = false;
        for (size_t j = 0; j < sizeof(flags) / sizeof(*flags); j++)
            flag = flag || strcmp(names[i], flags[j]) == 0;
        snprintf(entry, sizeof(entry), "\n  --%s%s", names[i], flag ? "  " : " ");
        ck_assert_int_eq(strstr(text, entry) != NULL, shown(names[i]));
        flagged += flag && shown(names[i]);
        absent += !shown(names[i]);
    }
    ck_assert_uint_eq(occurrences(text, "\n  --"), count - absent);
    ck_assert_uint_eq(occurrences(text, "(default:"), count - absent - flagged);
    for (char *line; (line = strsep(&rest, "\n"));)
        ck_assert_uint_le(strlen(line), 100);
    free(text);
}
END_TEST

/* ---------------------------------------------------- the trainer's options */

static struct arguments arguments;

static int train(const char *line)
{
    char *argv[ARGUMENTS];
    int argc = split(line, argv);
    error[0] = 0;
    return arguments_parse(&arguments, argc, argv, error, sizeof(error));
}

static void contradiction(const char *line, const char *sentence)
{
    ck_assert_int_eq(train(line), -1);
    ck_assert_str_eq(error, sentence);
}

START_TEST(trainer_defaults)
{
    ck_assert_int_eq(train(""), 0);
    const struct arguments *a = &arguments;
    ck_assert(a->stage == 0 && a->offload == ZERO_DEVICE && a->dtype == ZERO_BF16);
    ck_assert(a->offload_optimizer == ZERO_AUTO && a->offload_param == ZERO_AUTO);
    ck_assert(a->offload_grad == ZERO_AUTO && a->ring == ZERO_RING_AUTO && a->threads == 0);
    ck_assert_str_eq(a->data.items[0], "/usr/include");
    ck_assert_int_eq(a->shape.layers, 4);
    ck_assert_int_eq(a->shape.channels, 256);
    ck_assert_int_eq(a->shape.heads, 4);
    ck_assert_int_eq(a->shape.vocab, 256);
    ck_assert_int_eq(a->decay, a->steps);
    ck_assert_int_eq(a->warmup, a->steps / 10);
    ck_assert_int_eq(a->chunk, 0);
    ck_assert_str_eq(arguments_model(a), "d4");
    ck_assert(a->nvme_path == NULL && a->log == NULL && !a->quiet && !a->help);
}
END_TEST

START_TEST(trainer_config)
{
    ck_assert_int_eq(train("--stage 3 --offload nvme --offload-grad cpu --nvme-path /x "
                           "--host-bytes 1M --chunk 64K --slots 3 --ring posix"),
                     0);
    struct zero_config c = arguments_config(&arguments);
    ck_assert_uint_eq(c.size, sizeof(c));
    ck_assert(c.stage == 3 && c.dtype == ZERO_BF16 && c.offload == ZERO_NVME);
    ck_assert(c.offload_optimizer == ZERO_AUTO && c.offload_param == ZERO_AUTO);
    ck_assert(c.offload_grad == ZERO_HOST && c.host_bytes == 1 << 20 && c.chunk == 1 << 16);
    ck_assert(c.chunk_slots == 3 && c.ring == ZERO_RING_POSIX && c.deadline_seconds == 300);
    ck_assert_str_eq(c.nvme_path, "/x");
    ck_assert_int_eq(train("--stage 3 --dtype fp32 --offload-optimizer host --offload-param device "
                           "--threads 2 --deadline 9"),
                     0);
    c = arguments_config(&arguments);
    ck_assert(c.dtype == ZERO_FP32 && c.offload_optimizer == ZERO_HOST && c.threads == 2);
    ck_assert(c.offload_param == ZERO_DEVICE && c.deadline_seconds == 9);
    ck_assert(c.ring == ZERO_RING_AUTO);
    ck_assert(c.state == ZERO_STATE_FP32 && c.grad_dtype == ZERO_FP32 && c.accumulate == 1);
    ck_assert(c.accumulate_in == ZERO_SHARD && c.loss_scale == 0 && c.trace == NULL);
    ck_assert_int_eq(train("--stage 1 --state split --grad-dtype bf16 --accumulate-in local "
                           "--accumulate 3 --nvme-path /x:/y"),
                     0);
    c = arguments_config(&arguments);
    ck_assert(c.state == ZERO_STATE_SPLIT && c.grad_dtype == ZERO_BF16 && c.accumulate == 3);
    ck_assert(c.accumulate_in == ZERO_LOCAL);
    ck_assert_str_eq(c.nvme_path, "/x:/y");
    ck_assert_int_eq(train("--dtype fp16 --loss-scale 128 --l2"), 0);
    c = arguments_config(&arguments);
    ck_assert(c.dtype == ZERO_FP16 && c.loss_scale == 128 && arguments.l2);
    ck_assert_str_eq(arguments_dtype(&arguments), "fp16");
}
END_TEST

#define SETS(line, field, number)                                                                  \
    ck_assert_int_eq(train(line), 0);                                                              \
    ck_assert_msg(arguments.field == (number), "%s", line)

START_TEST(trainer_fields)
{
    SETS("--clip 0.25", clip, 0.25);
    SETS("--weight-decay 0.5", weight_decay, 0.5);
    SETS("--beta1 0.125", beta1, 0.125);
    SETS("--beta2 0.375", beta2, 0.375);
    SETS("--eps 0.0625", eps, 0.0625);
    SETS("--lr 0.75", lr, 0.75);
    SETS("--temperature 1.5", temperature, 1.5);
    SETS("--seed 7", seed, 7);
    SETS("--steps 11", steps, 11);
    SETS("--batch 12", batch, 12);
    SETS("--eval-every 13", eval_every, 13);
    SETS("--sample 14", sample, 14);
    SETS("--recompute", recompute, true);
    ck_assert(arguments_model_config(&arguments, 3).recompute);
    ck_assert_int_eq(arguments_model_config(&arguments, 3).threads, 3);
    SETS("", recompute, false);
    ck_assert(!arguments_model_config(&arguments, 1).recompute);
}
END_TEST

START_TEST(trainer_models)
{
    ck_assert_int_eq(train("--model gpt2"), 0);
    ck_assert_int_eq(arguments.shape.vocab, 50257);
    ck_assert_int_eq(arguments.shape.seq, 1024);
    ck_assert_int_eq(arguments.shape.heads, 12);
    ck_assert_int_eq(train("--model 1B --seq 64 --batch 3"), 0);
    ck_assert_int_eq(arguments.shape.layers, 20);
    ck_assert_int_eq(arguments.shape.channels, 2048);
    ck_assert_int_eq(arguments.shape.seq, 64);
    ck_assert_int_eq(arguments.batch, 3);
    ck_assert_int_eq(train("--layers 2 --channels 96 --heads 3"), 0);
    ck_assert_int_eq(arguments.shape.layers, 2);
    ck_assert_int_eq(arguments.shape.channels, 96);
    ck_assert_int_eq(arguments.shape.heads, 3);
    ck_assert_str_eq(arguments_model(&arguments), "own");
    ck_assert_int_eq(train("--channels 32"), 0);
    ck_assert_int_eq(arguments.shape.heads, 1);
    ck_assert_int_eq(train("--channels 200"), 0); /* not of 3 */
    ck_assert_int_eq(arguments.shape.heads, 2);
}
END_TEST

/* Parameters as those who named the models count them, in billions. */
START_TEST(trainer_sizes)
{
    static const struct {
        const char *name;
        int layers, channels, heads, vocab;
        double billions;
    } sizes[] = {
        {"d12", 12, 768, 12, 256, 0.085},
        {"gpt2", 12, 768, 12, 50257, 0.124},
        {"gpt2-medium", 24, 1024, 16, 50257, 0.355},
        {"gpt2-large", 36, 1280, 20, 50257, 0.774},
        {"gpt2-xl", 48, 1600, 25, 50257, 1.558},
        {"1B", 20, 2048, 16, 256, 1.01},
        {"2B", 40, 2048, 16, 256, 2.02},
        {"3B", 60, 2048, 16, 256, 3.03},
        {"4B", 64, 2304, 24, 256, 4.08},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char line[32];
        snprintf(line, sizeof(line), "--model %s", sizes[i].name);
        ck_assert_int_eq(train(line), 0);
        const struct gpt_shape *s = &arguments.shape;
        ck_assert_str_eq(arguments_model(&arguments), sizes[i].name);
        ck_assert_int_eq(s->layers, sizes[i].layers);
        ck_assert_int_eq(s->channels, sizes[i].channels);
        ck_assert_int_eq(s->heads, sizes[i].heads);
        ck_assert_int_eq(s->vocab, sizes[i].vocab);
        ck_assert_double_eq_tol(1e-9 * (double)gpt_param_count(s), sizes[i].billions,
                                0.01 * sizes[i].billions);
        if (i > 0) {
            ck_assert_int_eq(s->seq, 1024);
            ck_assert_int_eq(arguments.batch, 1);
        }
    }
}
END_TEST

START_TEST(trainer_contradictions)
{
    contradiction("--model d6 --heads 2", "--model d6 and --heads contradict each other. Give the "
                                          "model's name, or --layers, --channels and --heads.");
    contradiction("--channels 256 --heads 3", "--channels 256 cannot be divided among 3 heads. "
                                              "Give --channels a multiple of --heads.");
    contradiction("--batch 65536 --seq 1000",
                  "--batch 65536 of --seq 1000 are 65536000 tokens at once, but at most 16777216 "
                  "are possible. Give a smaller --batch and a larger --accumulate.");
    ck_assert_int_eq(train("--batch 16384 --seq 1024"), 0);
    contradiction("--stage 2 --offload-param nvme",
                  "--offload-param nvme contradicts --stage 2, "
                  "where every rank keeps whole parameters. Give --stage 3, or leave "
                  "--offload-param out.");
    contradiction("--offload cpu --host-bytes 1K",
                  "--host-bytes 1024 is for optimizer state on "
                  "nvme, but its place is cpu. Give --offload nvme, or leave --host-bytes out.");
    contradiction("--ring posix --offload cpu",
                  "--ring posix is for files, but neither optimizer state nor parameters are on "
                  "nvme. Give --offload nvme, or leave --ring out.");
    contradiction("--stage 3 --ring uring --offload nvme --offload-optimizer cpu --offload-param "
                  "none",
                  "--ring uring is for files, but neither optimizer state nor parameters are on "
                  "nvme. Give --offload-optimizer nvme, or leave --ring out.");
    contradiction("--offload nvme --offload-optimizer cpu --host-bytes 1K",
                  "--host-bytes 1024 is for optimizer state on nvme, but its place is cpu. Give "
                  "--offload-optimizer nvme, or leave --host-bytes out.");
    contradiction("--offload-param none --verify-spill",
                  "--verify-spill is for files, but neither optimizer state nor parameters are on "
                  "nvme. Give --offload nvme, or leave --verify-spill out.");
    ck_assert_int_eq(train("--ring auto --nvme-path /x"), 0);
    ck_assert_int_eq(train("--offload-optimizer nvme --verify-spill"), 0);
    ck_assert_int_eq(train("--stage 3 --ring posix --offload-param nvme"), 0);
    ck_assert_int_eq(train("--ring posix --offload-optimizer nvme"), 0);
    contradiction("--chunk 1000", "--chunk 1000 is not a multiple of 64. Give 960.");
    contradiction("--steps 5 --warmup 6", "--warmup 6 goes beyond step 5, where --decay ends. "
                                          "Give a shorter --warmup or a longer --decay.");
    contradiction("--offload-grad nvme", "--offload-grad cannot be 'nvme'. Give "
                                         "none or cpu.");
    contradiction("--dtype fp8", "--dtype cannot be 'fp8'. Give bf16, fp32 or "
                                 "fp16.");
    contradiction("--state split --dtype fp16",
                  "--state split keeps half of the master in a bf16 weight, but --dtype is fp16. "
                  "Give --dtype bf16, or leave --state out.");
    contradiction("--state split --dtype fp32",
                  "--state split keeps half of the master in a bf16 weight, but --dtype is fp32. "
                  "Give --dtype bf16, or leave --state out.");
    contradiction("--bf16x3", "--bf16x3 is for products of fp32 on a CPU, but --device is cpu and "
                              "--dtype bf16. Give --device cpu --dtype fp32, or leave --bf16x3 "
                              "out.");
    contradiction("--accumulate-in local --stage 2",
                  "--accumulate-in local contradicts --stage 2, where no rank has room for whole "
                  "gradient sums. Give --stage 0 or 1, or leave --accumulate-in out.");
    contradiction("--loss-scale -1", "--loss-scale cannot be '-1'. Give a number "
                                     "of at least 0.");
    contradiction("--beta2 1", "--beta2 cannot be '1'. Give a number of at "
                               "least 0 and below 1.");
    contradiction("--eps 0", "--eps cannot be '0'. Give 1.2e-38 to 3.4e38.");
    ck_assert_int_eq(train("--stage 2 --offload-param none"), 0);
    ck_assert_int_eq(train("--offload cpu --offload-optimizer nvme --host-bytes 1K"), 0);
    ck_assert_int_eq(train("--help --model d6 --heads 2"), 0);
    ck_assert(arguments.help);
    ck_assert_int_eq(train("--data LICENSE -h"), 0);
    ck_assert(arguments.help);
}
END_TEST

START_TEST(trainer_files)
{
    contradiction("--checkpoint-every 3",
                  "--checkpoint-every 3 says how often, but --checkpoint is missing. Give it a "
                  "file, or leave --checkpoint-every out.");
    contradiction("--trace x --checkpoint x",
                  "--trace and --checkpoint are both x. Give each a file of its own.");
    contradiction("--log x --checkpoint x",
                  "--checkpoint and --log are both x. Give each a file of its own.");
}
END_TEST

START_TEST(trainer_eval_data)
{
    contradiction("--eval-data /x /y",
                  "--eval-data is for --eval-every, but that is 0. Give --eval-every K, or leave "
                  "--eval-data out.");
    ck_assert_int_eq(train("--eval-data /x /y --eval-every 1000000 --data /z"), 0);
    ck_assert(arguments.eval_data.count == 2 && arguments.data.count == 1);
    ck_assert_int_eq(train("--eval-every 3"), 0);
    ck_assert_int_eq(arguments.eval_data.count, 0);
}
END_TEST

START_TEST(trainer_ranges)
{
    static const char *const rows[][3] = {
        {"lr", "nan", "a number from 0 to 3.4e38"},
        {"lr", "1e300", "a number from 0 to 3.4e38"},
        {"final-lr", "-1", "a number from 0 to 1"},
        {"final-lr", "1.5", "a number from 0 to 1"},
        {"clip", "-1", "a number of at least 0"},
        {"clip", "1e-400", "a number of at least 0"},
        {"batch", "0", "a whole number from 1 to 65536"},
        {"layers", "99999999999", "a whole number from 1 to 1024"},
        {"threads", "99999", "a whole number from 1 to 1024"},
        {"deadline", "-1", "a whole number from 1 to 1000000000"},
        {"chunk", "0", "a whole number from 64 to 1073741824, such as 4096, 64K or 1M"},
        {"host-bytes", "-1",
         "a whole number from 0 to 1125899906842624, such as 4096, 64K, 512M or 4G"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char line[64], sentence[160];
        snprintf(line, sizeof(line), "--%s %s", rows[i][0], rows[i][1]);
        snprintf(sentence, sizeof(sentence), "--%s cannot be '%s'. Give %s.", rows[i][0],
                 rows[i][1], rows[i][2]);
        contradiction(line, sentence);
    }
}
END_TEST

/* Up in a line to step 9, down a cosine from step 10, a tenth from step 50. */
START_TEST(learning_rate)
{
    ck_assert_int_eq(train("--steps 100 --lr 2 --warmup 10 --decay 50"), 0);
    ck_assert_double_eq(arguments_lr(&arguments, 0), 0.2);
    ck_assert_double_eq(arguments_lr(&arguments, 4), 1.0);
    ck_assert_double_eq(arguments_lr(&arguments, 9), 2.0);
    ck_assert_double_eq(arguments_lr(&arguments, 10), 2.0);
    ck_assert_double_eq_tol(arguments_lr(&arguments, 30), 1.1, 1e-12);
    for (int step = 10; step < 50; step++)
        ck_assert_double_gt(arguments_lr(&arguments, step), arguments_lr(&arguments, step + 1));
    ck_assert_double_eq(arguments_lr(&arguments, 50), 0.2);
    ck_assert_double_eq(arguments_lr(&arguments, 99), 0.2);
    ck_assert_int_eq(train("--steps 9 --lr 2 --warmup 5 --decay 5"), 0); /* one ends the other */
    ck_assert_double_eq(arguments_lr(&arguments, 4), 2.0);
    ck_assert_double_eq(arguments_lr(&arguments, 5), 0.2);
    ck_assert_int_eq(train("--warmup 0 --lr 3"), 0);
    ck_assert_double_eq(arguments_lr(&arguments, 0), 3.0);
}
END_TEST

/* The default's bits are those of all runs before there was a choice. */
START_TEST(final_learning_rate)
{
    static const struct {
        int step;
        double lr;
    } tenth[] = {{9, 0x1.3a92a30553261p-11},  {10, 0x1.3a92a30553261p-11},
                 {11, 0x1.3a22ecba214aap-11}, {23, 0x1.edf520df6e7b9p-12},
                 {30, 0x1.5a07b352a8437p-12}, {49, 0x1.fe4c69886f8ccp-15},
                 {50, 0x1.f75104d551d68p-15}, {99, 0x1.f75104d551d68p-15}};
    const char *const lines[] = {"--steps 100 --lr 6e-4 --warmup 10 --decay 50",
                                 "--steps 100 --lr 6e-4 --warmup 10 --decay 50 --final-lr 0.1"};
    for (size_t i = 0; i < 2 * sizeof(tenth) / sizeof(*tenth); i++) {
        ck_assert_int_eq(train(lines[i % 2]), 0);
        ck_assert_double_eq(arguments_lr(&arguments, tenth[i / 2].step), tenth[i / 2].lr);
    }
    ck_assert_int_eq(train("--steps 100 --lr 2 --warmup 10 --decay 50 --final-lr 0"), 0);
    ck_assert_double_eq(arguments_lr(&arguments, 9), 2.0);
    ck_assert_double_eq_tol(arguments_lr(&arguments, 30), 1.0, 1e-12);
    ck_assert_double_gt(arguments_lr(&arguments, 49), 0);
    ck_assert_double_eq(arguments_lr(&arguments, 50), 0);
    ck_assert_double_eq(arguments_lr(&arguments, 99), 0);
    ck_assert_int_eq(train("--steps 100 --lr 2 --warmup 10 --decay 50 --final-lr 1"), 0);
    for (int step = 9; step < 100; step++)
        ck_assert_double_eq(arguments_lr(&arguments, step), 2.0);
    ck_assert_int_eq(train("--steps 100 --lr 2 --warmup 10 --decay 50 --final-lr 0.5"), 0);
    ck_assert_double_eq_tol(arguments_lr(&arguments, 30), 1.5, 1e-12);
    ck_assert_double_eq(arguments_lr(&arguments, 50), 1.0);
}
END_TEST

/* Ranks agree on what shapes the run; how each of them computes is its own. */
START_TEST(alike)
{
    struct argument_value plain[ARGUMENTS_ALIKE], now[ARGUMENTS_ALIKE];
    ck_assert_int_eq(train(""), 0);
    ck_assert_int_eq(arguments_alike(&arguments, plain), ARGUMENTS_ALIKE);
    const char *const same[] = {"--threads 3", "--steps 100", "--deadline 7"};
    const char *const other[] = {
        "--seed 2",       "--steps 99",   "--batch 4",     "--lr 2e-3",
        "--quiet",        "--layers 3",   "--log x.csv",   "--accumulate 2",
        "--sample 7",     "--l2",         "--device cuda", "--bf16x3 --dtype fp32",
        "--checkpoint x", "--dtype fp32", "--final-lr 0",  "--eval-data x --eval-every 5"};
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        ck_assert_int_eq(train(same[i]), 0);
        arguments_alike(&arguments, now);
        for (int k = 0; k < ARGUMENTS_ALIKE; k++)
            ck_assert_msg(now[k].value == plain[k].value, "%s: %s", same[i], now[k].option);
    }
    for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
        size_t length = strcspn(other[i], " ");
        bool named = false;
        ck_assert_int_eq(train(other[i]), 0);
        arguments_alike(&arguments, now);
        for (int k = 0; k < ARGUMENTS_ALIKE; k++)
            named |= now[k].value != plain[k].value &&
                     strncmp(now[k].option, other[i], length) == 0 && !now[k].option[length];
        ck_assert_msg(named, "%s", other[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *parser = tcase_create("parser"), *trainer = tcase_create("trainer");
    tcase_add_test(parser, defaults);
    tcase_add_test(parser, every_kind);
    tcase_add_test(parser, lists);
    tcase_add_test(parser, list_overflow);
    tcase_add_test(parser, bad_values);
    tcase_add_test(parser, sizes_of_variables);
    tcase_add_test(parser, hidden);
    tcase_add_test(parser, bad_shape);
    tcase_add_test(parser, help);
    suite_add_tcase(suite, parser);
    tcase_add_test(trainer, trainer_help);
    tcase_add_test(trainer, trainer_defaults);
    tcase_add_test(trainer, trainer_config);
    tcase_add_test(trainer, trainer_fields);
    tcase_add_test(trainer, trainer_models);
    tcase_add_test(trainer, trainer_sizes);
    tcase_add_test(trainer, trainer_contradictions);
    tcase_add_test(trainer, trainer_files);
    tcase_add_test(trainer, trainer_eval_data);
    tcase_add_test(trainer, trainer_ranges);
    tcase_add_test(trainer, learning_rate);
    tcase_add_test(trainer, final_learning_rate);
    tcase_add_test(trainer, alike);
    suite_add_tcase(suite, trainer);
    return suite_run_all(suite);
}
