// SPDX-License-Identifier: Apache-2.0
/* What probe.c needs of the cache beyond offload/probe.h. */
#ifndef OFFLOAD_PROBE_CACHE_H
#define OFFLOAD_PROBE_CACHE_H

/* An open file to hold a lock on while a key's device is measured; -1: there is
 * no cache to put one in. */
int probe_lock(const char *key);

#endif
