# SPDX-License-Identifier: Apache-2.0
# What comparisons and whole runs share, sourced: it runs nothing.
# shellcheck shell=bash

# Runs a command, and at the end says which of the ratios and shares that it has printed, "NAME
# value (aim LEAST)", "(aim LEAST to MOST)" or "(aim MOST at most)", miss their aims. The
# command's status; where the shell ends at a first failure, so does the command.
with_aims() { # command
    local said status
    said=$(mktemp) || return
    "$@" | tee "$said"
    status=${PIPESTATUS[0]}
    awk '/^[a-z].* \(aim [0-9.e+-]+( to [0-9.e+-]+| at most)?\)$/ {
            held++
            split(substr($0, index($0, "(aim ") + 5), bound, / to | at most|\)/)
            least = / at most\)$/ ? "" : bound[1]
            most = / at most\)$/ ? bound[1] : bound[2]
            if ((least != "" && $2 < least + 0) || (most != "" && $2 > most + 0))
                missed[++count] = $0
        }
        END {
            if (held)
                printf "## %d of %d reach their aims%s\n", held - count, held,
                    count ? "; the others:" : ""
            for (i = 1; i <= count; i++)
                print "##   " missed[i]
        }' "$said"
    rm -f "$said"
    return "$status"
}
