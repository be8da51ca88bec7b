# SPDX-License-Identifier: Apache-2.0
# What ran behind the model's kernels: awk -f tests/gpu/timeline.awk FILE, of the lines of
# tests/gpu/timeline.c in the order of their starts (sort -k3,3n). Of gpt2's last step but one,
# from one embedding of tokens to the next, a row for each line of work: how long it was busy, and
# how much of that while a kernel of the model ran, which is the stream that embeds.

function line_of() {
    if ($2 == model) return $1 == "kernel" ? "the model's kernels" : ""
    if ($1 != "kernel") return $1 == "to-host" || $1 == "to-device" ? "copies " $1 : ""
    return $6 ~ /Adam/ ? "Adam on the GPU" : $6 ~ /sum/ ? "sums of gradients" : "other kernels"
}

# Lines of one kind, where they overlap one.
function busy(name, start, end,   n) {
    n = count[name]
    if (n && start <= ends[name, n]) {
        if (end > ends[name, n]) ends[name, n] = end
        return
    }
    count[name] = ++n
    starts[name, n] = start
    ends[name, n] = end
    if (n == 1) names[++kinds] = name
}

function total(name,   i, sum) {
    for (i = 1; i <= count[name]; i++) sum += ends[name, i] - starts[name, i]
    return sum
}

# Of both at once.
function shared(a, b,   i, j, from, to, sum) {
    i = j = 1
    while (i <= count[a] && j <= count[b]) {
        from = starts[a, i] > starts[b, j] ? starts[a, i] : starts[b, j]
        to = ends[a, i] < ends[b, j] ? ends[a, i] : ends[b, j]
        if (to > from) sum += to - from
        if (ends[a, i] < ends[b, j]) i++
        else j++
    }
    return sum
}

BEGIN { FS = "\t" }
NR == 1 { first = $3 }
{ line[NR] = $0 }
$1 == "kernel" && $6 ~ /5Embed/ { model = $2; step[++steps] = $3 }

END {
    if (steps < 3) { print "Too few steps: " steps + 0; exit 1 }
    for (i = 1; i <= NR; i++) {
        $0 = line[i]
        if ($4 <= step[steps - 1] || $3 >= step[steps]) continue
        name = line_of()
        if (name != "") busy(name, $3 - first, $4 - first)
        if ($1 == "kernel") busy("any kernel", $3 - first, $4 - first)
    }
    all = step[steps] - step[steps - 1]
    for (i = 1; i <= kinds; i++) {
        own = total(names[i])
        behind = ""
        if (own && names[i] !~ /model|any/)
            behind = sprintf("%.0f %%", 100 * shared(names[i], "the model's kernels") / own)
        printf "| %s | %.1f of %.1f ms | %s |\n", names[i], own / 1e6, all / 1e6, behind
    }
}
