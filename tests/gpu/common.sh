# SPDX-License-Identifier: Apache-2.0
# What check.sh and bench.sh share: GPUs that stay ready, and limits.
# shellcheck shell=bash

# A command that has so many seconds, as timeout gives them, and that ends with the script: in a
# group of its own it would go on behind it, and disturb what is measured next.
within() { timeout --foreground "$@"; }

# Sets "found" to what the library says of GPU 0. Where none answers, the script ends.
find_gpu() { # what was not done
    # shellcheck disable=SC2154 # the script's
    found=$("$build/tests/plugin_test" --use 0 | grep ^ZERO_)
    [[ $found != ZERO_OK* ]] || return 0
    echo "$1: there is no GPU here that answers. $found"
    exit 77
}

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
