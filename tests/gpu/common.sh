# SPDX-License-Identifier: Apache-2.0
# What check.sh and bench.sh share: GPUs that stay ready, and limits.
# shellcheck shell=bash

# A command that has so many seconds, as timeout gives them, and that ends with the script: in a
# group of its own it would go on behind it, and disturb what is measured next.
within() { timeout --foreground "$@"; }

# Where persistence mode is off a GPU is made ready anew, for a second or more, whenever a first
# process comes to it; and each test is a process. hold_gpus keeps the GPUs' files open for as
# long as the script runs, which keeps them ready and changes no setting. It runs nothing.
hold_gpus() {
    local file held
    for file in /dev/nvidia[0-9]*; do
        # shellcheck disable=SC2034 # nobody reads from it
        [ ! -r "$file" ] || { exec {held}<"$file"; } 2>/dev/null
    done
}
