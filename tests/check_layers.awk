# SPDX-License-Identifier: Apache-2.0
# Reads tests/layers.txt, then the sources named behind it, and reports every
# include that the table does not allow. Runs in any awk.

# Whether a glob of the table fits text.
function fits(glob, text) {
    gsub(/\./, "\\.", glob)
    gsub(/\*/, "[^/]*", glob)
    if (glob ~ /\/$/) glob = glob ".*"
    return text ~ "^" glob "$"
}

# Whether one of the globs in list fits text.
function allowed(list, text,    globs, n, i) {
    n = split(list, globs, " ")
    for (i = 1; i <= n; i++)
        if (fits(globs[i], text)) return 1
    return 0
}

function bad(kind, text) {
    print text
    broken[kind] = 1
}

function rule_of(file,    i) {
    for (i = 1; i <= rules; i++)
        if (fits(who[i], file)) return i
    return 0
}

NR == FNR {
    if (/^#/ || /^$/) next
    if (!/^ / && !/^[^ ]+ *:/) bad("table", FILENAME ":" FNR ": not of the form FILES : LIST")
    text = $0
    if (sub(/^[^ ]+ *:/, "", text) && $1 != "system") who[++rules] = $1
    if (/^[^ ]/) system_line = $1 == "system"
    if (system_line) system_headers = system_headers " " text
    else what[rules] = what[rules] " " text
    next
}

FNR == 1 {
    rule = rule_of(FILENAME)
    used[rule] = 1
    own = FILENAME
    sub(/\.[a-z]+$/, ".h", own)
    if (!rule) bad("rule", FILENAME ":1: no line of tests/layers.txt fits this file")
}

/^[ \t]*#[ \t]*include/ && rule {
    header = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", header)
    sub(/[ \t]*\/[\/*].*$/, "", header)
    gsub(/"/, "", header)
    if (header == own || allowed(what[rule], header)) next
    if (header ~ /^</ && allowed(system_headers, header)) next
    bad(header ~ /^</ ? "vendor" : "layer", \
        FILENAME ":" FNR ": " header " is not for " who[rule] " (tests/layers.txt)")
}

END {
    for (i = 1; i <= rules; i++)
        if (!used[i]) bad("idle", "tests/layers.txt: no file fits " who[i] ": remove the line")
    checks = 5
    for (kind in broken) failures++
    printf "%d%%: Checks: %d, Failures: %d, Errors: 0\n", int((checks - failures) * 100 / checks),
        checks, failures
    exit failures > 0
}
