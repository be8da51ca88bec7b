# SPDX-License-Identifier: Apache-2.0
# Prints the sentences of C sources as rows of tests/errors.txt without a cause,
# STATUS|SENTENCE, and behind them file:line. Runs in any awk. With -v seen=1 the
# input is what the suites noted: ZERO_ERR_STATUS|FORMAT, not source.

# Formats are compared without length modifiers: PRId64 is %ld or %lld.
function plain(format,    out) {
    while (match(format, /%[-+ #0-9.*]*(hh|h|ll|l|j|z|t)[a-zA-Z]/)) {
        out = substr(format, RSTART, RLENGTH)
        gsub(/[hljzt]/, "", out)
        format = substr(format, 1, RSTART - 1) out substr(format, RSTART + RLENGTH)
    }
    return format
}

function status_name(text) {
    gsub(/[ \t]/, "", text)
    return text ~ /^ZERO_ERR_[A-Z]+$/ ? substr(text, 10) : "ANY"
}

# The string that literals, PRI macros and macros of the file make together; ""
# where something else is in it.
function joined(text,    out, c, i, word) {
    out = ""
    while (text != "") {
        c = substr(text, 1, 1)
        if (c == "\"") {
            for (i = 2; substr(text, i, 1) != "\""; i++) {
                if (substr(text, i, 1) == "\\") i++
                out = out substr(text, i, 1)
            }
            text = substr(text, i + 1)
        } else if (match(text, /^[A-Za-z_][A-Za-z0-9_]*/)) {
            word = substr(text, 1, RLENGTH)
            text = substr(text, RLENGTH + 1)
            if (word ~ /^PRI[diuxX]/) out = out substr(word, 4, 1)
            else if (word in macro) out = out macro[word]
            else return ""
        } else if (c ~ /[ \t\n]/)
            text = substr(text, 2)
        else if (match(text, /^\/\*[^*]*\*\//))
            text = substr(text, RLENGTH + 1)
        else
            return ""
    }
    return out
}

# One call, from behind its bracket on.
function call(text, first,    i, c, depth, arg, n, quoted, format) {
    n = 1
    depth = 1
    arg[1] = ""
    for (i = 1; depth > 0 && i <= length(text); i++) {
        c = substr(text, i, 1)
        if (quoted && c == "\\") {
            arg[n] = arg[n] c substr(text, ++i, 1)
            continue
        }
        if (c == "\"") quoted = !quoted
        if (!quoted && c == "(") depth++
        if (!quoted && c == ")") depth--
        if (!quoted && depth == 1 && c == ",") arg[++n] = ""
        else if (depth > 0) arg[n] = arg[n] c
    }
    format = joined(arg[first + 1])
    # "%s" hands on a sentence that was set elsewhere.
    if (format == "") format = "(cannot be read)"
    if (format != "%s") print status_name(arg[first]) "|" plain(format) "|" file ":" line
}

# Calls in the source that was read; its lines are counted on the way.
function calls(    rest, at) {
    line = 1
    rest = file ~ /\.c$/ ? source : ""
    while (match(rest, /error_(set|comm)\(|return ZERO_ERR_[A-Z]+;|\n/)) {
        at = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (at == "\n") line++
        else if (at ~ /^return/)
            print substr(at, 17, length(at) - 17) "|(none: " file ")|" file ":" line
        else call(rest, 2)
    }
    source = ""
}

seen {
    at = index($0, "|")
    print substr($0, 10, at - 10) "|" plain(substr($0, at + 1))
    next
}
FNR == 1 && file != "" { calls() }
FNR == 1 { file = FILENAME }
/^#define [A-Z_]+ +"[^"]*"$/ {
    at = index($0, "\"")
    macro[$2] = substr($0, at + 1, length($0) - at - 1)
}
{ source = source $0 "\n" }
END { if (!seen && file != "") calls() }
