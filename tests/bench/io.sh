#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fio beside the rings, on the same file and in turn: tests/bench/io.sh BUILD [OPTION...]
# is `zero bench io --fio` with huge pages set aside for fio's buffers where root can: the
# rings' own lie in them. NAME_fio_ratio = ours / fio, and NAME_fio_cpu_ratio, of CPU
# seconds a GB.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:?the build folder}
shift
setting=/proc/sys/vm/nr_hugepages
pages=$(cat "$setting")
if [ -w "$setting" ]; then
    trap 'echo "$pages" >"$setting"' EXIT
    echo $((pages + 160)) >"$setting"
fi
"$build/zero" bench io --fio "$@"
