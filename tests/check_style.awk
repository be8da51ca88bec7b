# SPDX-License-Identifier: Apache-2.0
# The rules of tests/check_style.sh, over the files it names. A function starts
# where its head does (after a blank line, a comment, a directive or another
# end); its body opens with { and closes with } in column 0. Runs in any awk.

function bad(rule, file, line, text) {
    print file ":" line ": " text
    broken[rule] = 1
}

function file_end() {
    if (file == "") return
    if (!spdx) bad("spdx", file, 1, "no SPDX line among the first three")
    if (lines > 800) bad("file", file, 800, "a file of " lines " lines; 800 are the limit")
    if (is_c) file_lines[folder, ++files[folder]] = lines
}

FNR == 1 {
    file_end()
    file = folder = FILENAME
    if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    is_c = file ~ /\.(c|h|cu|cuh|cpp)$/
    straight = file ~ /^kernels\/(cpu|cuda)\// # vector kernels are long straight lines
    # These declare what a vendor has named.
    theirs = file == "kernels/cuda/runtime.h" || file == "src/comm/nccl_api.h" ||
        file == "examples/gpt2/cuda/cublas.h"
    spdx = head = body = 0
}

{
    lines = FNR
    columns = $0
    gsub(/[\200-\277]/, "", columns) # a character is its first byte
}
FNR <= 3 && /SPDX-License-Identifier: Apache-2\.0/ { spdx = 1 }
length(columns) > 100 {
    bad("columns", file, FNR, "a line of " length(columns) " columns; 100 are the limit")
}
/[ \t\r]$/ { bad("trailing", file, FNR, "blanks at the end of the line") }
/(^|[^A-Za-z0-9_])(T[O]DO|F[I]XME|X[X]X|H[A]CK)([^A-Za-z0-9_]|$)/ {
    bad("marker", file, FNR, "a marker of unfinished work: finish it")
}
tolower($0) ~ /(^|[^a-z])(for[ ]now|place[h]older)([^a-z]|$)/ {
    bad("interim", file, FNR, "words for what is half made: make it whole, or say what it is")
}
!is_c { next }

/\t/ { bad("tab", file, FNR, "a tab; four spaces are the indent") }
/^[ ]*typedef[ ]+(struct|union|enum)([ ]|$)/ && !theirs {
    bad("typedef", file, FNR, "a typedef of a struct, union or enum: write the word out")
}
/^[A-Za-z_].*\)[ ]*\{$/ { bad("brace", file, FNR, "a body opens on a line of its own") }
/^\{/ {
    body = 1
    if (!head) head = FNR
}
/^\}/ && body {
    size = FNR - head + 1
    if (size > 70 && !straight)
        bad("function", file, head, "a function of " size " lines; 70 are the limit")
    function_lines[folder, ++functions[folder]] = size
    body = head = 0
    next
}
body { next }
/^$|^#|^\/\/|^\}|;$|\*\/$/ {
    head = 0
    next
}
/^[A-Za-z_]/ && !head { head = FNR }

# The median of n values of a folder; sets longest.
function median(values, n, folder,    i, j, x, sorted) {
    longest = 0
    for (i = 1; i <= n; i++) {
        x = values[folder, i]
        for (j = i - 1; j >= 1 && sorted[j] > x; j--) sorted[j + 1] = sorted[j]
        sorted[j + 1] = x
    }
    if (n) longest = sorted[n]
    return n ? sorted[int((n + 1) / 2)] : 0
}

function table(    folder, middle, row) {
    printf "%-20s %6s %7s %8s %10s %7s %8s\n", "folder", "files", "median", "longest",
        "functions", "median", "longest"
    for (folder in files) {
        middle = median(file_lines, files[folder], folder)
        row = sprintf("%-20s %6d %7d %8d", folder, files[folder], middle, longest)
        middle = median(function_lines, functions[folder], folder)
        printf "%s %10d %7d %8d\n", row, functions[folder], middle, longest | "sort"
    }
    close("sort")
}

END {
    file_end()
    table()
    rules = 10
    for (rule in broken) failures++
    printf "%d%%: Checks: %d, Failures: %d, Errors: 0\n", int((rules - failures) * 100 / rules),
        rules, failures
    exit failures > 0
}
