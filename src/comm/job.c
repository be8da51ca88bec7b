// SPDX-License-Identifier: Apache-2.0
#include "src/comm/job.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 1000000

/* Below the ports that Linux gives to outgoing connections (32768 and up). */
#define PORT_FIRST 20000
#define PORT_RANGE 12000

/* ----------------------------------------------------------- Slurm's lists */

static bool in_host_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.' || c == ':';
}

static int digits_at(const char *at)
{
    int count = 0;
    while (isdigit((unsigned char)at[count]))
        count++;
    return count;
}

/* Behind the bracket that opens: numbers and ranges. The digits of the first; returns the
 * bracket that closes, or NULL. */
static const char *bracket(const char *at, int *first)
{
    for (*first = 0;; at++) {
        int count = digits_at(at);
        if (!*first)
            *first = count;
        if (count && at[count] == '-') {
            at += count + 1;
            count = digits_at(at);
        }
        at += count;
        if (!count || (*at != ',' && *at != ']'))
            return NULL;
        if (*at == ']')
            return at;
    }
}

bool job_first_host(const char *list, char *host, size_t size)
{
    size_t length = 0;
    const char *at = list;
    for (; *at && *at != ','; at++) {
        const char *from = at;
        int count = 1;
        if (*at == '[') {
            from = at + 1;
            at = bracket(from, &count);
            if (!at)
                return false;
        } else if (!in_host_name(*at)) {
            return false;
        }
        if (length + (size_t)count >= size)
            return false;
        memcpy(host + length, from, (size_t)count);
        length += (size_t)count;
    }
    if (length == 0)
        return false;
    host[length] = '\0';
    return true;
}

/* A number of digits alone, at the front; -1: none that fits an int. */
static int leading(const char **at)
{
    int value = 0;
    if (!isdigit((unsigned char)**at))
        return -1;
    for (; isdigit((unsigned char)**at); ++*at) {
        if (value > (INT_MAX - 9) / 10)
            return -1;
        value = 10 * value + (**at - '0');
    }
    return value;
}

int job_tasks(const char *list, int node)
{
    for (const char *at = list;;) {
        int tasks = leading(&at), nodes = 1;
        if (tasks < 0)
            return 0;
        if (!strncmp(at, "(x", 2)) {
            at += 2;
            nodes = leading(&at);
            if (nodes < 1 || *at++ != ')')
                return 0;
        }
        if (node < nodes)
            return tasks;
        node -= nodes;
        if (*at++ != ',')
            return 0;
    }
}

/* ---------------------------------------------------------------- variables */

static const char *text_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? text : "";
}

static const char *const starters[] = {[JOB_TORCHRUN] = "torchrun", [JOB_SLURM] = "srun"};

/* A variable that the launcher sets, as a number from least to most. */
static int number(const struct job *job, const char *variable, int least, int most, int *value,
                  struct error *error)
{
    const char *text = text_of(variable), *at = text;
    *value = leading(&at);
    if (*value >= least && *value <= most && !*at)
        return ZERO_OK;
    return error_set(error, ZERO_ERR_ARGUMENT,
                     "%s is '%.64s', not a number of %d to %d. Start all ranks with %s, which "
                     "sets it, or unset %s for one rank.",
                     variable, text, least, most, starters[job->launcher], job->mark);
}

/* A job's script may set all but LOCAL_WORLD_SIZE for PyTorch, from what srun tells. */
static bool told_by_srun(void)
{
    return !getenv("LOCAL_WORLD_SIZE") && !strcmp(text_of("RANK"), text_of("SLURM_PROCID")) &&
           !strcmp(text_of("WORLD_SIZE"), text_of("SLURM_STEP_NUM_TASKS"));
}

int job_find(struct job *job, struct error *error)
{
    const char *rank = "RANK";
    *job = (struct job){.size = 1};
    if (getenv("RANK") && getenv("WORLD_SIZE") && getenv("MASTER_ADDR") && !told_by_srun()) {
        job->launcher = JOB_TORCHRUN;
        job->mark = "WORLD_SIZE";
    } else if (getenv("SLURM_PROCID") && getenv("SLURM_STEP_NUM_TASKS")) {
        job->launcher = JOB_SLURM;
        job->mark = "SLURM_STEP_NUM_TASKS";
        rank = "SLURM_PROCID";
    } else {
        return ZERO_OK;
    }
    if (number(job, job->mark, 1, RANKS_MAX, &job->size, error) ||
        number(job, rank, 0, job->size - 1, &job->rank, error))
        return error->status;
    if (job->size == 1)
        *job = (struct job){.size = 1};
    return ZERO_OK;
}

/* ------------------------------------------------------- where rank 0 is */

/* MASTER_ADDR; or loopback, where all ranks are here: that needs no names. */
static int host_take(struct job *job, const char *host, struct error *error)
{
    bool one_node = job->local_size == job->size;
    int length = snprintf(job->host, sizeof(job->host), "%s", one_node ? "127.0.0.1" : host);
    if (length > 0 && length < (int)sizeof(job->host))
        return ZERO_OK;
    return error_set(error, ZERO_ERR_ARGUMENT,
                     "MASTER_ADDR is a name of %d characters. Set it to the name or address of "
                     "rank 0's host.",
                     length);
}

static int locate_torchrun(struct job *job, struct error *error)
{
    const char *agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
    if (number(job, "LOCAL_WORLD_SIZE", 1, job->size, &job->local_size, error) ||
        number(job, "LOCAL_RANK", 0, job->local_size - 1, &job->local_rank, error) ||
        number(job, "MASTER_PORT", 1, 65535 - JOB_PORTS, &job->port, error) ||
        host_take(job, text_of("MASTER_ADDR"), error))
        return error->status;
    snprintf(job->name, sizeof(job->name), "torchrun %.60s:%d", text_of("TORCHELASTIC_RUN_ID"),
             job->port);
    /* torchrun itself listens there. */
    if (!strcmp(agent, "True"))
        job->port++;
    return ZERO_OK;
}

/* FNV-1a: which ports a job tries first. */
static unsigned hash(const char *text)
{
    unsigned sum = 2166136261u;
    for (; *text; text++)
        sum = (sum ^ (unsigned char)*text) * 16777619u;
    return sum;
}

/* Tasks are numbered from the step's first node on, unless srun was told otherwise. */
static int slurm_host(struct job *job, int node, struct error *error)
{
    const char *step = getenv("SLURM_STEP_NODELIST"), *master = getenv("MASTER_ADDR");
    const char *list = step ? step : text_of("SLURM_JOB_NODELIST");
    char host[sizeof(job->host)] = "";
    if (master)
        return host_take(job, master, error);
    if (!job_first_host(list, host, sizeof(host)))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "%s is '%.64s', not a list of hosts. Set MASTER_ADDR to the address of "
                         "rank 0's host.",
                         step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST", list);
    if (job->rank == 0 && node != 0)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "Rank 0 runs on node %d of this step, and the other ranks look for it on "
                         "the first (%.64s). Set MASTER_ADDR to the address of rank 0's host, or "
                         "start srun without --distribution.",
                         node, host);
    return host_take(job, host, error);
}

static int locate_slurm(struct job *job, struct error *error)
{
    const char *step = getenv("SLURM_STEP_TASKS_PER_NODE");
    const char *tasks = step ? step : text_of("SLURM_TASKS_PER_NODE");
    int node;
    if (number(job, "SLURM_NODEID", 0, RANKS_MAX, &node, error))
        return error->status;
    job->local_size = job_tasks(tasks, node);
    if (job->local_size < 1 || job->local_size > job->size)
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "%s is '%.64s', which does not say how many of the %d tasks are on node "
                         "%d. Let srun start all ranks, or unset %s for one rank.",
                         step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE", tasks,
                         job->size, node, job->mark);
    if (number(job, "SLURM_LOCALID", 0, job->local_size - 1, &job->local_rank, error) ||
        slurm_host(job, node, error))
        return error->status;
    /* A job that was requeued has its number again. */
    snprintf(job->name, sizeof(job->name), "slurm %.30s.%.30s.%.20s", text_of("SLURM_JOB_ID"),
             text_of("SLURM_STEP_ID"), text_of("SLURM_RESTART_COUNT"));
    job->port = PORT_FIRST + (int)(hash(job->name) % PORT_RANGE);
    struct error wrong = {0}; /* by the job's script, not by srun */
    if (getenv("MASTER_PORT") &&
        number(job, "MASTER_PORT", 1, 65535 - JOB_PORTS, &job->port, &wrong))
        return error_set(error, ZERO_ERR_ARGUMENT,
                         "MASTER_PORT is '%.64s', not a number of 1 to %d. Set it to one, the same "
                         "on all ranks, or unset it.",
                         getenv("MASTER_PORT"), 65535 - JOB_PORTS);
    return ZERO_OK;
}

int job_locate(struct job *job, struct error *error)
{
    return job->launcher == JOB_TORCHRUN ? locate_torchrun(job, error) : locate_slurm(job, error);
}
