# SPDX-License-Identifier: Apache-2.0
# What benches of whole runs share, sourced from the tree's root: rows of gpt2's --log files,
# medians, the three lines of a result, slow drives. It runs nothing.
# shellcheck shell=bash
. tests/support/verdicts.sh
[ "${#launcher[@]}" != 0 ] || { echo "This needs mpirun, and a build with MPI." >&2 && exit 1; }

# The log's rows of all steps but the first two, added to those of earlier runs.
keep_rows() { # name: of NAME.csv
    [ -e "$scratch/$1.csv" ] || head -1 "$scratch/log" >"$scratch/$1.csv"
    tail -n +4 "$scratch/log" >>"$scratch/$1.csv"
}

median() { # of the numbers in standard input
    sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}

# "median least most count" of the milliseconds in standard input, in seconds.
spread() {
    sort -g | awk '{ x[NR] = $1 / 1e3 }
        END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2, x[1], x[NR], NR }'
}

# The three lines of a result. Limit and ours: seconds, or what spread says of them.
seconds() { # name, limit, ours, aim of the share (none)
    awk -v name="$1" -v limit="$2" -v ours="$3" -v aim="${4-}" '
    function shown(line, value, x) {
        if (split(value, x, " ") < 4 || x[4] < 2) printf "%s %.4g s\n", line, x[1]
        else printf "%s %.4g s (%.4g-%.4g, %d steps)\n", line, x[1], x[2], x[3], x[4]
        return x[1]
    }
    BEGIN {
        limit = shown(name "_limit", limit)
        ours = shown(name "_ours", ours)
        printf "%s_share %.3f%s\n", name, limit / ours, aim == "" ? "" : " (aim " aim ")"
    }'
}

# Seconds of a peer's and of ours as one line.
ratio() { # name, peer, ours, aim
    awk -v name="$1" -v peer="$2" -v ours="$3" -v aim="$4" \
        'BEGIN { printf "%s_ratio %.3f (aim %s)\n", name, peer / ours, aim }'
}

# Bytes a second that two ranks read and write together, as `zero bench step` finds them.
disk_rate() { # build, folder, parameters (32M)
    "${launcher[@]}" -n 2 "$1/zero" bench step --nvme-path "$2" --params "${3:-32M}" |
        awk '/^# limit:/ { print $3 * 1e9 }'
}

# Whether a drive can be slowed down here; says why it cannot.
throttle_possible() {
    [ -e /sys/fs/cgroup/blkio/cgroup.procs ] && [ "$(id -u)" = 0 ] && return
    echo "A drive is slowed down by root, with cgroup v1's blkio; here is $(id -un), and" \
        "/sys/fs/cgroup is $(stat -fc %T /sys/fs/cgroup). Leave the throttle out." >&2
    return 1
}

# Where that can be: lets this shell and what it starts read and write so much of a device.
# throttle_end when all that is over.
throttle() { # device (major:minor), MB/s
    local file
    throttle_group=/sys/fs/cgroup/blkio/zero-bench.$$
    mkdir -p "$throttle_group" && for file in read write; do
        echo "$1 ${2}000000" >"$throttle_group/blkio.throttle.${file}_bps_device" || return
    done && echo $$ >"$throttle_group/cgroup.procs"
}

throttle_end() {
    [ -n "${throttle_group-}" ] || return 0
    echo $$ >"${throttle_group%/*}/cgroup.procs"
    rmdir "$throttle_group"
}

same_digests() { # file
    [ "$(sort -u "$1" | wc -l)" = 1 ] && grep -q '^digest master=' "$1" && return
    echo "The runs end with different digests: look into it before measuring." >&2
    exit 1
}
