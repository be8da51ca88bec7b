// SPDX-License-Identifier: Apache-2.0
/* As much is read as written at once, at the rate of both; what is left of one is moved alone. */
#include "examples/common/predict.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

double predict_files(double read, double written, const struct zero_probe *probe)
{
    double least = read < written ? read : written;
    if (!(probe->read > 0 && probe->write > 0 && probe->both > 0))
        return 0;
    return 2 * least / probe->both + (read - least) / probe->read +
           (written - least) / probe->write;
}

struct prediction predict_update(const struct zero_plan *plan, int local_ranks,
                                 const struct zero_probe *probe, double stream)
{
    double ranks = local_ranks, read = (double)plan->read_bytes,
           written = (double)plan->written_bytes;
    assert(local_ranks >= 1);
    struct prediction p = {.files = read + written > 0};
    if (p.files)
        p.disk = ranks * predict_files(read, written, probe);
    if (stream > 0)
        p.memory = ranks * (double)plan->update_bytes / stream;
    if (p.files ? p.disk > 0 : stream > 0)
        p.seconds = p.disk > p.memory ? p.disk : p.memory;
    return p;
}

const char *predict_advice(const char *folders, char *text, size_t size)
{
    bool several = strchr(folders, ':') != NULL;
    const char *quote = !several && strpbrk(folders, " \t&;()<>|*?$#\"\\") ? "'" : "";
    snprintf(text, size, "ZERO_PROBE=1 zero bench step --quick --nvme-path %s%s%s%s", quote,
             several ? "FOLDER" : folders, quote, several ? ", once for each," : "");
    return text;
}
