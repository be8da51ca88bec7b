// SPDX-License-Identifier: Apache-2.0
/* What control groups leave a process: of memory and of CPU time, in trees that stand in for
 * those of both versions, and what there is here. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "offload/groups.h"
#include "offload/memory.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

START_TEST(memory_groups)
{
    char root[TREE_ROOT], source[256];
    tree_make(root);
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), INT64_MAX);

    tree_put(root, "/proc/meminfo", "MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:  800 kB\n");
    tree_put(root, "/proc/self/cgroup", "4:cpu,memory:/job/step\n0::/job/step/task\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 800 * 1024);
    ck_assert_str_eq(source, "MemAvailable");

    /* Version 2: the limit is the job's, its cache can be dropped. */
    tree_put(root, "/sys/fs/cgroup/job/step/task/memory.max", "max\n");
    tree_put(root, "/sys/fs/cgroup/job/step/task/memory.current", "5\n");
    tree_put(root, "/sys/fs/cgroup/job/memory.max", "700000\n");
    tree_put(root, "/sys/fs/cgroup/job/memory.current", "300000\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 400000);
    tree_put(root, "/sys/fs/cgroup/job/memory.stat",
             "anon 9\nactive_file 50000\ninactive_file 40000\nslab_reclaimable 7001\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 493500);
    tree_put(root, "/sys/fs/cgroup/job/memory.stat",
             "anon 9\nactive_file 50000\ninactive_file 40000\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 490000);
    ck_assert_ptr_nonnull(strstr(source, "/sys/fs/cgroup/job"));

    /* What a site would rather have it stay below. */
    tree_put(root, "/sys/fs/cgroup/job/memory.high", "max\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 490000);
    tree_put(root, "/sys/fs/cgroup/job/memory.high", "-1\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 490000);
    tree_put(root, "/sys/fs/cgroup/job/memory.high", "900000\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 490000);
    tree_put(root, "/sys/fs/cgroup/job/memory.high", "600000\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 390000);
    tree_put(root, "/sys/fs/cgroup/job/step/memory.max", "max\n");
    tree_put(root, "/sys/fs/cgroup/job/step/memory.high", "150000\n");
    tree_put(root, "/sys/fs/cgroup/job/step/memory.current", "5\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 149995);

    /* Version 1, seen from a container that mounts its own group as the root. */
    tree_put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
    tree_put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "70000\n");
    tree_put(root, "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 3\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 30003);
    tree_put(root, "/sys/fs/cgroup/memory/memory.stat", "total_active_file 70001\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 100000);

    /* Already over it. */
    tree_put(root, "/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "100\n");
    tree_put(root, "/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes", "200\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 0);
    tree_remove(root);
}
END_TEST

/* Of a long group's name the end is kept, which says more. */
START_TEST(memory_long_names)
{
    char root[TREE_ROOT], line[320], path[400], source[256];
    tree_make(root);
    snprintf(line, sizeof(line), "0::/%0200d/%080d/end\n", 1, 2);
    tree_put(root, "/proc/self/cgroup", line);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/%0200d/%080d/end/memory.max", 1, 2);
    tree_put(root, path, "100000\n");
    snprintf(path, sizeof(path), "/sys/fs/cgroup/%0200d/%080d/end/memory.current", 1, 2);
    tree_put(root, path, "30000\n");
    ck_assert_int_eq(memory_available(root, source, sizeof(source)), 70000);
    ck_assert_uint_eq(strlen(source), sizeof(source) - 1);
    ck_assert_str_eq(source + strlen(source) - strlen("02/end"), "02/end");
    tree_remove(root);
}
END_TEST

/* Each of the limits, once; of many the tightest. */
START_TEST(memory_all_bounds)
{
    char root[TREE_ROOT], text[64];
    struct memory_bound bound[MEMORY_BOUNDS];
    tree_make(root);
    tree_put(root, "/proc/meminfo", "MemAvailable:  800 kB\n");
    tree_put(root, "/proc/self/cgroup", "4:memory:/\n0::/1/2/3/4/5/6/7/8/9\n");
    tree_put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
    tree_put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    ck_assert_int_eq(memory_bounds(root, bound), 2); /* "/" and "" are one */
    ck_assert(bound[0].id == 0);
    ck_assert_int_eq(bound[0].available, 800 * 1024);
    ck_assert(bound[1].id != 0);
    ck_assert_int_eq(bound[1].available, 99999);
    ck_assert(bound[0].limit == 0 && bound[1].limit == 100000);

    char path[128] = "/sys/fs/cgroup";
    for (int i = 1; i <= 9; i++) { /* 9 at the root, 1 at the leaf */
        snprintf(path + strlen(path), 8, "/%d", i);
        snprintf(text, sizeof(text), "%s/memory.max", path);
        tree_put(root, text, "1000\n");
        snprintf(text, sizeof(text), "%s/memory.current", path);
        char usage[8];
        snprintf(usage, sizeof(usage), "%d\n", 990 + i);
        tree_put(root, text, usage);
    }
    ck_assert_int_eq(memory_bounds(root, bound), MEMORY_BOUNDS);
    bool seen[11] = {false};
    for (int i = 0; i < MEMORY_BOUNDS; i++) {
        ck_assert_int_le(bound[i].available, 8);
        ck_assert(!seen[bound[i].available]);
        seen[bound[i].available] = true;
        for (int j = 0; j < i; j++)
            ck_assert(bound[i].id != bound[j].id);
    }
    tree_remove(root);
}
END_TEST

/* The tightest of all above, rounded up; of version 1 the folder is the controller's. */
START_TEST(quotas_of_cpus)
{
    char root[TREE_ROOT];
    uint64_t group, other;
    tree_make(root);
    ck_assert_int_eq(groups_cpus(root, &group), 0);
    tree_put(root, "/proc/self/cgroup", "4:cpu,cpuacct:/job/step\n3:memory:/m\n0::/job/task\n");
    tree_put(root, "/sys/fs/cgroup/job/task/cpu.max", "max 100000\n");
    tree_put(root, "/sys/fs/cgroup/m/cpu.max", "1 100000\n"); /* another controller's */
    ck_assert_int_eq(groups_cpus(root, &group), 0);
    tree_put(root, "/sys/fs/cgroup/job/cpu.max", "350001 50000\n");
    ck_assert_int_eq(groups_cpus(root, &group), 8);
    tree_put(root, "/sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "-1\n");
    tree_put(root, "/sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(groups_cpus(root, &other), 8);
    ck_assert(other == group);
    tree_put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
    ck_assert_int_eq(groups_cpus(root, &group), 8); /* without a period */
    tree_put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(groups_cpus(root, &group), 3);
    ck_assert(other != group);
    tree_put(root, "/sys/fs/cgroup/job/task/cpu.max", "1000 100000\n");
    ck_assert_int_eq(groups_cpus(root, &group), 1);
    tree_put(root, "/sys/fs/cgroup/job/task/cpu.max", "9223372036854775807 1\n");
    ck_assert_int_eq(groups_cpus(root, &group), 3);
    tree_remove(root);
}
END_TEST

START_TEST(memory_here)
{
    char source[256];
    int64_t bytes = memory_available("", source, sizeof(source));
    ck_assert_int_gt(bytes, 0);
    ck_assert_int_lt(bytes, INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("groups");
    TCase *c = tcase_create("memory");
    tcase_add_test(c, memory_groups);
    tcase_add_test(c, memory_all_bounds);
    tcase_add_test(c, memory_long_names);
    tcase_add_test(c, memory_here);
    tcase_add_test(c, quotas_of_cpus);
    suite_add_tcase(suite, c);
    return suite_run_all(suite);
}
