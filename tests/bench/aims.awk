# SPDX-License-Identifier: Apache-2.0
# Passes through what benches print, and says again at the end which ratios and shares,
# "NAME value (aim LEAST)" or "(aim LEAST to MOST)", miss their aims. `zero bench` says so of its
# own itself, in lines that begin with #.
{
    print
    fflush()
}

/^[a-z].* \(aim [0-9.]+( to [0-9.]+)?\)$/ {
    held++
    split(substr($0, index($0, "(aim ") + 5), bound, / to |\)/)
    if ($2 < bound[1] + 0 || (bound[2] != "" && $2 > bound[2] + 0))
        missed[++count] = $0
}

END {
    if (held)
        printf "## %d of %d reach their aims%s\n", held - count, held, count ? "; the others:" : ""
    for (i = 1; i <= count; i++)
        print "##   " missed[i]
}
