# SPDX-License-Identifier: Apache-2.0
"""A trace of gpt2 as a picture: what rank 0's lanes did in some steps.

    python tests/bench/picture.py TRACE.json OUT.svg [FIRST LAST]    steps, counted from 0 (2 3)

One row for each lane, with all that was under way there at once; what overlaps is darker.
"""
import json
import sys
from xml.sax.saxutils import escape

LANES = ("step", "pass", "compute", "update", "state-disk", "param-disk", "comm", "to-device",
         "to-host")
COLORS = {"forward": "#7a8fa6", "backward": "#4d6580", "read": "#2f7ed8", "write": "#e07b39",
          "update": "#3a9d5d", "gather": "#8557b3", "reduce": "#b3578f", "step": "#9a9a9a"}
LEFT, WIDTH, ROW, GAP, TOP = 90, 900, 26, 6, 40  # pixels


def color(name):
    for part, value in COLORS.items():
        if part in name:
            return value
    return "#9a9a9a"


def spans(trace):
    """Of rank 0: (lane, name, begin, end) in seconds."""
    lanes = {e["tid"]: e["args"]["name"].rsplit(" ", 1)[0] for e in trace
             if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 0}
    return [(lanes[e["tid"]], e["name"], 1e-6 * e["ts"], 1e-6 * (e["ts"] + e["dur"]))
            for e in trace if e["ph"] == "X" and e["pid"] == 0]


def joined(parts):
    """Spans of one name and lane that touch within a thousandth of the picture become one."""
    result = []
    for begin, end in sorted(parts):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def draw(all_spans, begin, end):
    scale = WIDTH / (end - begin)
    used = [lane for lane in LANES if any(s[0] == lane for s in all_spans)]
    height = TOP + len(used) * (ROW + GAP) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for i, (name, value) in enumerate(COLORS.items()):
        x = LEFT + i * 108
        out.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{value}"/>'
                   f'<text x="{x + 16}" y="22">{name}</text>')
    for row, lane in enumerate(used):
        y = TOP + row * (ROW + GAP)
        out.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(lane)}</text>')
        for name in sorted({s[1] for s in all_spans if s[0] == lane}):
            parts = [(max(b, begin), min(e, end)) for l, n, b, e in all_spans
                     if l == lane and n == name and b < end and e > begin]
            for b, e in joined(parts):
                out.append(f'<rect x="{LEFT + (b - begin) * scale:.1f}" y="{y}" height="{ROW}" '
                           f'width="{max(0.4, (e - b) * scale):.1f}" fill="{color(name)}" '
                           f'fill-opacity="0.7"><title>{escape(name)}</title></rect>')
    y = TOP + len(used) * (ROW + GAP) + 12
    for tick in range(6):
        x = LEFT + WIDTH * tick / 5
        out.append(f'<text x="{x:.0f}" y="{y}" text-anchor="middle">'
                   f'{(end - begin) * tick / 5:.2f} s</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        all_spans = spans(json.load(file)["traceEvents"])
    steps = sorted((b, e) for lane, _, b, e in all_spans if lane == "step")
    first, last = map(int, sys.argv[3:]) if len(sys.argv) == 5 else (2, 3)
    if not 0 <= first <= last < len(steps):
        sys.exit(f"The trace has {len(steps)} steps, and {first} to {last} were asked for.")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(all_spans, steps[first][0], steps[last][1]))


main()
