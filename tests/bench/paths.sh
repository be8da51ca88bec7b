#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whether two drives together move what each of them moves alone: tests/bench/paths.sh BUILD
#
# Two loop devices, throttled to RATES MB/s each of reads and of writes ("200 100"), hold the
# optimizer state that `zero bench step` updates; its limit is the sum of what plain I/O reaches
# on each of them alone. ZERO_PROBE=1 lets the engine find their rates, by which it shares the
# bytes. As root, with cgroup v1's blkio; 4 GB of $TMPDIR (/var/tmp) for a while.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${1:?"give the build folder: tests/bench/paths.sh BUILD [OPTIONS OF zero bench step]"}
shift
export TMPDIR=${TMPDIR:-/var/tmp}
. tests/bench/rows.sh
devices=()
throttle_possible || exit 1
trap leave EXIT

leave() {
    throttle_end
    [ "${#devices[@]}" = 0 ] || umount "${devices[@]}"
    for device in "${devices[@]}"; do losetup -d "$device"; done
    rm -rf "$scratch"
}

disk() { # folder, MB/s
    local device
    fallocate -l 2G "$1.image" && mkfs.ext4 -q "$1.image" && mkdir "$1" || return
    device=$(losetup --find --show --direct-io=on "$1.image") || return
    devices+=("$device")
    mount "$device" "$1" && throttle "$(lsblk -dnro MAJ:MIN "$device")" "$2"
}

read -ra rates <<<"${RATES:-200 100}"
paths=()
for i in "${!rates[@]}"; do
    disk "$scratch/disk$i" "${rates[i]}" || exit 1
    paths+=("$scratch/disk$i")
done
XDG_CACHE_HOME=$scratch ZERO_PROBE=1 "$build/zero" bench step --full --params 24M \
    --nvme-path "$(IFS=: && echo "${paths[*]}")" "$@"
