# SPDX-License-Identifier: Apache-2.0
# What is wrong with a trace and a log: awk -v ranks= -v steps= -v tokens= (of a step)
# -f tests/trace.awk LOG.csv TRACE.json. Reads the trace line by line, as
# gpt2 writes it; that it is JSON is for others to see.

function bad(text) { print text; wrong++ }

function value(key,   at, rest) {
    at = index($0, "\"" key "\":")
    if (!at) return ""
    rest = substr($0, at + length(key) + 3)
    sub(/^"/, "", rest)
    sub(/["},].*/, "", rest)
    return rest
}

# The name in a metadata event's args, which is the second of the line.
function label(   rest) {
    rest = substr($0, index($0, "\"args\":") + 7)
    sub(/.*"name":"/, "", rest)
    sub(/".*/, "", rest)
    return rest
}

# Microseconds with three decimals, as whole nanoseconds.
function whole(text) { sub(/\./, "", text); return text + 0 }

FNR == 1 { file++ }

file == 1 {
    count = split($0, cell, ",")
    if (FNR == 1) {
        for (i = 1; i <= count; i++) at[cell[i]] = i
        next
    }
    rows++
    # As many tokens as a step has, per second that it takes; which its parts do not exceed.
    ms = cell[at["step_ms"]]
    made = cell[at["tokens_per_s"]] * ms / 1e3
    if (made < 0.99 * tokens || made > 1.01 * tokens)
        bad("step " cell[at["step"]] ": " made " tokens of " tokens)
    if (cell[at["forward_ms"]] + cell[at["backward_ms"]] > 1.01 * ms + 0.01)
        bad("step " cell[at["step"]] ": its parts take longer than its " ms " ms")
    read_of[cell[at["step"]]] = cell[at["read_bytes"]]
    written_of[cell[at["step"]]] = cell[at["written_bytes"]]
    next
}

/"ph":"M"/ {
    if ($0 ~ /process_name/) {
        if (value("pid") in process) bad("two names of process " value("pid"))
        process[value("pid")] = 1
        next
    }
    key = value("pid") " " value("tid")
    if (key in name) bad("two names of lane " key)
    if ((value("pid"), label()) in used) bad("two lanes of the name " label())
    used[value("pid"), label()] = 1
    name[key] = label()
}

/"ph":"X"/ {
    spans++
    key = value("pid") " " value("tid")
    begin = whole(value("ts"))
    if (begin < 0) bad("a time before the start: " $0)
    if (key in free_at && begin < free_at[key]) bad("spans overlap in lane " key ": " $0)
    free_at[key] = begin + whole(value("dur"))
    seen[key] = 1
    events[value("name")]++
    all[key "|" value("step") "|" (value("name") ~ /write/ ? "w" : "r")] += value("bytes")
}

END {
    for (key in seen) if (!(key in name)) bad("lane " key " has no name")
    for (key in name) if (!(key in seen)) bad("lane " key " is empty")
    for (rank = 0; rank < ranks; rank++) if (!(rank in process)) bad("no process " rank)
    for (i in all) {
        split(i, part, "|")
        if (name[part[1]] ~ /-disk/) sum[part[2], part[3]] += all[i]
    }
    if (rows != steps) bad(rows " rows of " steps " steps")
    for (step = 1; step <= steps; step++) {
        if (sum[step, "r"] + 0 != read_of[step] + 0)
            bad("step " step ": " sum[step, "r"] + 0 " bytes read, in the log " read_of[step])
        if (sum[step, "w"] + 0 != written_of[step] + 0)
            bad("step " step ": " sum[step, "w"] + 0 " bytes written, in the log " written_of[step])
    }
    for (step = 3; step < steps; step++) # neither the first nor the last
        if (read_of[step] != read_of[2] || written_of[step] != written_of[2])
            bad("step " step " has moved other bytes than step 2")
    if (events["step"] != steps * ranks) bad(events["step"] + 0 " steps")
    if (!events["forward"] || !events["backward"] || !events["head backward"])
        bad("no spans of the program")
    exit wrong > 0
}
