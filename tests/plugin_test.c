// SPDX-License-Identifier: Apache-2.0
/*
 * The plugin with the device for GPUs: where it is found, what is said where it is not,
 * and that nobody has it who does not ask. Each case is a process of its own; the plugins
 * are tests/fake (over fake GPUs, so an engine can be made), tests/other (of other
 * sources) and the real one, where this build has it.
 */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/support/toy.h"

#define CREATE "--create" /* this program again: makes an engine and prints what came of it, */
#define USE    "--use"    /* or makes a GPU the current one */

static char folder[PATH_MAX - 64]; /* of this program */

static int loaded(const char *name)
{
    char line[PATH_MAX];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found |= strstr(line, name) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

static int create(enum zero_device device)
{
    struct zero_param params[TOY_TENSORS];
    struct zero_digest digest = {0};
    struct zero *z;
    toy_describe(params);
    int status = zero_init(&z, params, TOY_TENSORS, .stage = 3, .device = device);
    if (!status)
        status = zero_digest(z, &digest);
    bool stream = zero_stream(z) != NULL;
    printf("%s|%016llx|%s|%d|%d\n", zero_status_name(status), (unsigned long long)digest.master,
           zero_last_error(z), stream, loaded("libzero_cuda"));
    zero_destroy(z);
    return 0;
}

/* The GPU is the one of the engine that is made then, and loses what that takes. */
static int use(int index)
{
    struct zero_gpu gpu = {.count = -1}, after;
    struct zero_param params[TOY_TENSORS];
    struct zero_stats stats = {0};
    struct zero *z = NULL;
    char error[512] = "";
    int status = zero_gpu_use(index, &gpu, error, sizeof(error));
    bool good = status || zero_gpu_use(-1, &after, NULL, 0) == ZERO_OK;
    toy_describe(params);
    if (!status)
        good = good && after.index == gpu.index && gpu.memory_free == gpu.memory &&
               !zero_init(&z, params, TOY_TENSORS, .device = ZERO_CUDA) && !zero_stats(z, &stats) &&
               !strcmp(stats.device, gpu.name) && !zero_gpu_use(-1, &after, NULL, 0) &&
               after.index == gpu.index && !memcmp(after.uuid, gpu.uuid, sizeof(gpu.uuid)) &&
               after.memory_free == gpu.memory - stats.plan.device.total;
    printf("%s|%d of %d, %s, %lld|%s|%d\n", zero_status_name(status), gpu.index, gpu.count,
           gpu.name, (long long)gpu.memory, error, good);
    zero_destroy(z);
    return 0;
}

/* What such a process says; prefix: what stands before its name on the command line. */
static const char *line_of(const char *prefix, const char *program, const char *arguments)
{
    static char line[2000];
    char command[9 * PATH_MAX];
    snprintf(command, sizeof(command), "%s %s %s", prefix, program, arguments);
    FILE *out = popen(command, "r");
    ck_assert_ptr_nonnull(out);
    if (!fgets(line, sizeof(line), out))
        line[0] = '\0';
    ck_assert_msg(pclose(out) == 0, "%s", command);
    return line;
}

static const char *said(const char *prefix, const char *program, const char *device)
{
    char arguments[64];
    snprintf(arguments, sizeof(arguments), CREATE " %s", device);
    return line_of(prefix, program, arguments);
}

static void expect(const char *line, const char *status, const char *says)
{
    ck_assert_msg(!strncmp(line, status, strlen(status)) && strstr(line, says), "'%s', not '%s'",
                  line, says);
}

static const char *here(const char *format)
{
    static char text[4][2 * PATH_MAX];
    static int turn;
    char *to = text[turn++ % 4];
    snprintf(to, sizeof(text[0]), format, folder);
    return to;
}

/* Quoted, as all that commands name: a tree may lie in a folder with a blank in its name. */
static const char *self(void)
{
    return here("'%s/plugin_test'");
}

START_TEST(nobody_loads_it_unasked)
{
    const char *line = said("ZERO_CUDA_PLUGIN=/nowhere", self(), "cpu");
    expect(line, "ZERO_OK|", "||0|0");
}
END_TEST

START_TEST(named)
{
    char cpu[2000];
    snprintf(cpu, sizeof(cpu), "%s", said("", self(), "cpu"));
    const char *line = said(here("ZERO_CUDA_PLUGIN='%s/fake/libzero_cuda.so'"), self(), "cuda");
    expect(line, "ZERO_OK|", "||1|1");
    ck_assert_msg(!strncmp(line, cpu, strlen("ZERO_OK|0123456789abcdef")), "%s%s", line, cpu);
}
END_TEST

START_TEST(found_by_the_loader)
{
    expect(said(here("LD_LIBRARY_PATH='%s/fake':$LD_LIBRARY_PATH"), self(), "cuda"), "ZERO_OK|",
           "||1|1");
}
END_TEST

/* What this program says in DEEP/bin, beside a plugin that a command puts in DEEP/to. DEEP's name
 * is long, as those of package managers are: sentences have room for it. */
static const char *said_near(const char *to, const char *put, const char *file)
{
    static char found[2000];
    char place[] = "/tmp/plugin_test.XXXXXX", command[4 * PATH_MAX], program[PATH_MAX];
    char deep[256];
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(deep, sizeof(deep), "%s/%0150d", place, 0);
    snprintf(command, sizeof(command),
             "mkdir -p %s/bin %s/lib && cp %s %s/bin/p && %s %s %s/%s/libzero_cuda.so", deep, deep,
             self(), deep, put, file, deep, to);
    ck_assert_int_eq(system(command), 0);
    snprintf(program, sizeof(program), "%s/bin/p", deep);
    snprintf(found, sizeof(found), "%s", said("", program, "cuda"));
    snprintf(command, sizeof(command), "rm -r %s", place);
    ck_assert_int_eq(system(command), 0);
    return found;
}

START_TEST(found_beside_the_program)
{
    expect(said_near("bin", "ln -s", here("'%s/fake/libzero_cuda.so'")), "ZERO_OK|", "||1|1");
}
END_TEST

/* As make install places them. */
START_TEST(found_from_bin_in_lib)
{
    expect(said_near("lib", "ln -s", here("'%s/fake/libzero_cuda.so'")), "ZERO_OK|", "||1|1");
}
END_TEST

/* It is there, and lacks what it needs: that is what is said, not that there is none. */
START_TEST(found_but_broken)
{
    const char *line = said_near("bin", "cp", "/dev/null");
    expect(line, "ZERO_ERR_UNSUPPORTED|", "|The CUDA plugin /tmp/plugin_test.");
    expect(line, "ZERO_ERR_UNSUPPORTED|", "/libzero_cuda.so cannot be opened: file too short. ");
    expect(line, "ZERO_ERR_UNSUPPORTED|", "or add their folder to LD_LIBRARY_PATH.|");
}
END_TEST

START_TEST(refused_without)
{
    expect(said("", self(), "cuda"), "ZERO_ERR_UNSUPPORTED|",
           here("There is no CUDA plugin beside %s/plugin_test, nor could the loader open one ("));
    expect(said("ZERO_CUDA_PLUGIN=/nowhere/x.so", self(), "cuda"), "ZERO_ERR_UNSUPPORTED|",
           "The CUDA plugin that ZERO_CUDA_PLUGIN names cannot be opened: /nowhere/x.so: ");
    expect(said("ZERO_CUDA_PLUGIN=libm.so.6", self(), "cuda"), "ZERO_ERR_UNSUPPORTED|",
           "libm.so.6 is no plugin of libzero. Name libzero_cuda.so");
    expect(said(here("ZERO_CUDA_PLUGIN='%s/other/libzero_cuda.so'"), self(), "cuda"),
           "ZERO_ERR_UNSUPPORTED|",
           "/other/libzero_cuda.so is of libzero " ZERO_VERSION ", built from other "
           "sources than this library, " ZERO_VERSION "-");
}
END_TEST

/* Counted on behind the last; the GPU that the calling thread has; what is no GPU. */
START_TEST(gpus)
{
    char fake[2 * PATH_MAX]; /* here's turns come again */
    snprintf(fake, sizeof(fake), "ZERO_FAKE_GPUS=3 ZERO_FAKE_GPU_BYTES=9999999 %s",
             here("ZERO_CUDA_PLUGIN='%s/fake/libzero_cuda.so'"));
    struct zero_gpu gpu;
    expect(line_of(fake, self(), USE " 2"), "ZERO_OK|2 of 3, fake GPU 2, 9999999|", "||1\n");
    expect(line_of(fake, self(), USE " 4"), "ZERO_OK|1 of 3, fake GPU 1, 9999999|", "||1\n");
    expect(line_of(fake, self(), USE " -1"), "ZERO_OK|0 of 3, fake GPU 0, 9999999|", "||1\n");
    expect(line_of(fake, self(), USE " -2"), "ZERO_ERR_ARGUMENT|0 of -1, ,",
           "|zero_gpu_use of GPU -2 into a struct. Pass 0 or more,");
    expect(line_of(here("ZERO_FAKE_GPUS=0 ZERO_CUDA_PLUGIN='%s/fake/libzero_cuda.so'"), self(),
                   USE " 0"),
           "ZERO_ERR_UNSUPPORTED|0 of -1, ,", "|No GPU can be used: ");
    expect(line_of(here("ZERO_FAKE_GPU_BYTES=-1 ZERO_CUDA_PLUGIN='%s/fake/libzero_cuda.so'"),
                   self(), USE " 0"),
           "ZERO_ERR_UNSUPPORTED|0 of -1, ,",
           " 13.0. Look for another process that fills its memory (nvidia-smi).|");
    expect(line_of("", self(), USE " 0"), "ZERO_ERR_UNSUPPORTED|", "|There is no CUDA plugin ");
    ck_assert_int_eq(zero_gpu_use(0, NULL, NULL, 0), ZERO_ERR_ARGUMENT);
    ck_assert_int_eq(zero_gpu_use(-2, &gpu, NULL, 0), ZERO_ERR_ARGUMENT);
}
END_TEST

/* With a GPU it works, without one it says so. */
START_TEST(the_real_one)
{
    const char *line;
    if (access(here("%s/../libzero_cuda.so"), R_OK) != 0) {
        printf("skipped: this build has no CUDA toolkit\n");
        return;
    }
    line = said(here("ZERO_CUDA_PLUGIN='%s/../libzero_cuda.so'"), self(), "cuda");
    if (!strncmp(line, "ZERO_OK|", 8))
        return;
    expect(line, "ZERO_ERR_UNSUPPORTED|", "No GPU can be used: ");
    printf("without a GPU: %s", line);
}
END_TEST

/* A rank as torchrun starts it, of two. */
static const char *rank(int rank, const char *plugin)
{
    static char words[2][3 * PATH_MAX];
    snprintf(words[rank], sizeof(words[0]),
             "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=%d %s",
             rank, rank, 20000 + (int)(getpid() % 20000), plugin);
    return words[rank];
}

/* Two ranks that MPI has not started meet, and are told why that is not enough. */
static void expect_both(const char *plugin, const char *says)
{
    char other[8 * PATH_MAX];
    const char *first = rank(0, plugin), *second = rank(1, plugin);
    snprintf(other, sizeof(other), "%s %s " CREATE " cuda >'%s/other.out' & %s", second, self(),
             folder, first);
    expect(said(other, self(), "cuda; wait"), "ZERO_ERR_UNSUPPORTED|", says);
    expect(said("cat", here("'%s/other.out' #"), ""), "ZERO_ERR_UNSUPPORTED|", says);
    unlink(here("%s/other.out"));
}

START_TEST(several_without_mpi)
{
    expect_both(here("ZERO_CUDA_PLUGIN='%s/fake/libzero_cuda.so'"),
                "Units cannot go from rank to rank by NCCL: ranks 0 and 1 share a GPU. Start the "
                "ranks with mpirun -n 2 (srun: --mpi=pmix), then they go through host memory.");
    expect_both("ZERO_CUDA_PLUGIN=/nowhere/x.so",
                "The CUDA plugin that ZERO_CUDA_PLUGIN names cannot be opened: /nowhere/x.so: ");
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], CREATE))
        return create(strcmp(argv[2], "cuda") ? ZERO_CPU : ZERO_CUDA);
    if (argc == 3 && !strcmp(argv[1], USE))
        return use(atoi(argv[2]));
    char path[PATH_MAX];
    if (!realpath("/proc/self/exe", path))
        return 1;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
    unsetenv("ZERO_CUDA_PLUGIN");
    Suite *suite = suite_create("plugin");
    TCase *tests = tcase_create("plugin");
    tcase_add_test(tests, nobody_loads_it_unasked);
    tcase_add_test(tests, named);
    tcase_add_test(tests, found_by_the_loader);
    tcase_add_test(tests, found_beside_the_program);
    tcase_add_test(tests, found_from_bin_in_lib);
    tcase_add_test(tests, found_but_broken);
    tcase_add_test(tests, refused_without);
    tcase_add_test(tests, gpus);
    tcase_add_test(tests, the_real_one);
    tcase_add_test(tests, several_without_mpi);
    suite_add_tcase(suite, tests);
    return suite_run_all(suite);
}
