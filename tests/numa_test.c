// SPDX-License-Identifier: Apache-2.0
/*
 * NUMA nodes of made-up machines and of this one, and what the kernel says to
 * the wish for memory of some of them, granted and refused.
 */
#include <check.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "offload/numa.h"
#include "tests/support/deny.h"
#include "tests/support/suite.h"
#include "tests/support/tree.h"

#define NODE "/sys/devices/system/node"
#define MIB  ((int64_t)1 << 20)

static char root[TREE_ROOT];

static void machine_make(void)
{
    tree_make(root);
}

static void machine_remove(void)
{
    tree_remove(root);
}

static void cpus_set(cpu_set_t *set, int first, int last)
{
    CPU_ZERO(set);
    for (int cpu = first; cpu <= last; cpu++)
        CPU_SET((size_t)cpu, set);
}

static void expect(int first, int last, int nodes, int mine, uint64_t mine_mask)
{
    struct numa numa;
    cpu_set_t cpus;
    cpus_set(&cpus, first, last);
    numa_read(&numa, root, &cpus);
    ck_assert_int_eq(numa.nodes, nodes);
    ck_assert_int_eq(numa.mine, mine);
    ck_assert_uint_eq(numa.mine_mask[0], mine_mask);
}

/* Two sockets with two threads a core, as lscpu shows them, and a node of memory
 * without CPUs. */
START_TEST(reads_sockets)
{
    tree_put(root, NODE "/has_memory", "0-1,8\n");
    tree_put(root, NODE "/node0/cpulist", "0-15,32-47\n");
    tree_put(root, NODE "/node1/cpulist", "16-31,48-63\n");
    tree_put(root, NODE "/node8/cpulist", "\n");
    expect(0, 0, 3, 1, 1);
    expect(47, 47, 3, 1, 1);
    expect(16, 31, 3, 1, 2);
    expect(15, 16, 3, 2, 3);
    expect(64, 99, 3, 0, 0);
    expect(1, 0, 3, 0, 0); /* none at all */
}
END_TEST

START_TEST(reads_odd_machines)
{
    expect(0, 3, 0, 0, 0);                 /* says nothing */
    tree_put(root, NODE "/online", "0\n"); /* an older kernel */
    tree_put(root, NODE "/node0/cpulist", "0-1023\n");
    expect(3, 3, 1, 1, 1);
    tree_put(root, NODE "/has_memory", "63,5-6\n");
    tree_put(root, NODE "/node63/cpulist", "7");
    expect(7, 7, 3, 1, (uint64_t)1 << 63);
    static const char *const wrong[] = {"", "none\n", "-3\n", "0-", "2-1\n", "9999999999999999\n"};
    for (int i = 0; i < 6; i++) {
        struct numa numa;
        tree_put(root, NODE "/has_memory", wrong[i]);
        numa_read(&numa, root, NULL); /* no more than that it returns */
        ck_assert_int_le(numa.nodes, 1);
    }
}
END_TEST

START_TEST(reads_this_machine)
{
    struct numa numa;
    numa_read(&numa, "", NULL);
    if (access(NODE, F_OK) != 0) {
        printf("skipped: this kernel knows no nodes\n");
        return;
    }
    ck_assert_int_ge(numa.nodes, 1);
    ck_assert_int_ge(numa.mine, 1);
    ck_assert_int_le(numa.mine, numa.nodes);
}
END_TEST

/* ------------------------------------------------------------------ the wish */

static char *memory_map(void)
{
    char *memory =
        mmap(NULL, (size_t)MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(memory != MAP_FAILED);
    return memory;
}

static int policy_of(const char *memory)
{
    int mode = -1;
    ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, NULL, 0, memory, MPOL_F_ADDR), 0);
    return mode;
}

/* As if there were another node. */
static struct numa one_of_two(void)
{
    return (struct numa){.nodes = 2, .mine = 1, .mine_mask = {1}};
}

START_TEST(prefers)
{
    char *memory = memory_map();
    struct numa numa = one_of_two();
    if (syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0) != 0) {
        printf("skipped: no memory policies here: %s\n", strerror(errno));
        return;
    }
    ck_assert(numa_prefer(&numa, memory, MIB));
    ck_assert_int_ne(policy_of(memory), MPOL_DEFAULT);
    ck_assert_int_ne(policy_of(memory), MPOL_BIND);
    memory[0] = 1;

    /* Nothing to choose. */
    memory = memory_map();
    numa.mine = 2;
    ck_assert(!numa_prefer(&numa, memory, MIB));
    numa.mine = 0;
    ck_assert(!numa_prefer(&numa, memory, MIB));
    ck_assert_int_eq(policy_of(memory), MPOL_DEFAULT);
}
END_TEST

START_TEST(prefers_on_an_older_kernel)
{
    char *memory = memory_map();
    struct numa numa = one_of_two();
    if (!numa_prefer(&numa, memory_map(), MIB)) {
        printf("skipped: no memory policies here\n");
        return;
    }
    ck_assert(deny_call(SYS_mbind, 2, ~0u, 5, EINVAL)); /* MPOL_PREFERRED_MANY */
    ck_assert(numa_prefer(&numa, memory, MIB));
    ck_assert_int_eq(policy_of(memory), MPOL_PREFERRED);
    numa.nodes = 3;
    numa.mine = 2;
    ck_assert(!numa_prefer(&numa, memory, MIB));
}
END_TEST

START_TEST(prefers_refused)
{
    char *memory = memory_map();
    struct numa numa = one_of_two();
    ck_assert(deny_call(SYS_mbind, 0, 0, 0, EPERM));
    ck_assert(!numa_prefer(&numa, memory, MIB));
    memory[0] = 1;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numa");
    TCase *c = tcase_create("numa");
    tcase_add_checked_fixture(c, machine_make, machine_remove);
    tcase_add_test(c, reads_sockets);
    tcase_add_test(c, reads_odd_machines);
    tcase_add_test(c, reads_this_machine);
    tcase_add_test(c, prefers);
    tcase_add_test(c, prefers_on_an_older_kernel);
    tcase_add_test(c, prefers_refused);
    suite_add_tcase(suite, c);
    return suite_run_all(suite);
}
