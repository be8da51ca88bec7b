// SPDX-License-Identifier: Apache-2.0
/* A drive that is read and written at once does both slower, by about as much as if
 * it did one after the other: so their seconds add up. */
#include "examples/common/predict.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct prediction predict_update(const struct zero_plan *plan, int local_ranks,
                                 const struct zero_probe *probe, double stream)
{
    double ranks = local_ranks, read = (double)plan->read_bytes,
           written = (double)plan->written_bytes;
    assert(local_ranks >= 1);
    struct prediction p = {.files = read + written > 0};
    bool known = probe->read > 0 && probe->write > 0;
    if (p.files && known)
        p.disk = ranks * (read / probe->read + written / probe->write);
    if (stream > 0)
        p.memory = ranks * (double)plan->update_bytes / stream;
    if (p.files ? known : stream > 0)
        p.seconds = p.disk > p.memory ? p.disk : p.memory;
    return p;
}

const char *predict_advice(const char *folders, char *text, size_t size)
{
    bool several = strchr(folders, ':') != NULL;
    snprintf(text, size, "ZERO_PROBE=1 zero bench step --quick --nvme-path %s%s",
             several ? "FOLDER" : folders, several ? ", once for each," : "");
    return text;
}
