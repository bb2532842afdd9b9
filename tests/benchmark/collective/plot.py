#!/usr/bin/env python3
"""Draws bus bandwidth over size, one panel for each operation, from the benchmark's JSON lines.

  tests/benchmark/run.sh collective --json > run.json
  tests/benchmark/collective/plot.py run.json docs/plots/collective-2.svg
"""

import json
import math
import sys

PANEL_WIDTH, PANEL_HEIGHT = 330, 230
LEFT, TOP, RIGHT, BOTTOM = 52, 34, 12, 34
COLUMNS = 3
LEGEND_HEIGHT = 34

# The name and style of each line, by implementation and memory.
LINES = [
    (("cohort", "registered"), "Cohort, registered memory", "#0b5fa5", "2.4", ""),
    (("cohort", "plain"), "Cohort, plain memory", "#5aa9e6", "1.8", ""),
    (("cohort-tcp", "plain"), "Cohort over TCP", "#5aa9e6", "1.4", "2 3"),
    (("openmpi-best", ""), "Open MPI, best setting", "#c0392b", "1.8", ""),
    (("gloo-best", ""), "Gloo, best algorithm", "#e0a030", "1.8", ""),
    (("limit", ""), "limit of this machine", "#777777", "1.4", "6 4"),
]


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def read(path):
    """Returns the bandwidth by size, for each operation and line."""
    points, members = {}, 0
    with open(path, encoding="utf-8") as file:
        for text in file:
            row = json.loads(text) if text.startswith("{") else {}
            if row.get("section") != "collective":
                continue
            members = row["members"]
            line = (row["implementation"], row.get("memory", ""))
            points.setdefault(row["operation"], {}).setdefault(line, {})[row["bytes"]] = row["bus_gb_s"]
    return points, members


def panel(operation, lines, x, y):
    """One operation's axes and lines, both axes logarithmic."""
    sizes = sorted({size for line in lines.values() for size in line})
    values = [value for line in lines.values() for value in line.values() if value > 0]
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    width, height = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM

    def across(size):
        span = math.log2(sizes[-1] / sizes[0]) or 1
        return x + LEFT + width * math.log2(size / sizes[0]) / span

    def up(value):
        return y + TOP + height * (high - math.log10(value)) / (high - low)

    out = [f'<text x="{x + LEFT}" y="{y + TOP - 12}" class="title">{operation}</text>']
    for power in range(low, high + 1):
        at = up(10.0**power)
        out.append(f'<line x1="{x + LEFT}" x2="{x + LEFT + width}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        out.append(f'<text x="{x + LEFT - 6}" y="{at + 3.5:.1f}" class="left">{10.0**power:g}</text>')
    for size in sizes:
        out.append(f'<text x="{across(size):.1f}" y="{y + TOP + height + 15}" class="below">'
                   f"{size_text(size).replace(' ', chr(160))}</text>")
    for line, _, colour, thickness, dashes in LINES:
        known = sorted((size, value) for size, value in lines.get(line, {}).items() if value > 0)
        if not known:
            continue
        path = " ".join(f"{across(size):.1f},{up(value):.1f}" for size, value in known)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thickness}"'
                   f' stroke-dasharray="{dashes}"/>')
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    points, members = read(sys.argv[1])
    if not points:
        sys.exit(f"{sys.argv[1]}: no lines of the collective benchmark")
    rows = (len(points) + COLUMNS - 1) // COLUMNS
    width, height = COLUMNS * PANEL_WIDTH, rows * PANEL_HEIGHT + LEGEND_HEIGHT + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<style>.title{font-size:13px;font-weight:bold}.left{font-size:9px;text-anchor:end;fill:#444}"
        ".below{font-size:8px;text-anchor:middle;fill:#444}.grid{stroke:#e3e3e3}.key{font-size:11px}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="18" class="key">Bus bandwidth in GB/s over the size of a rank\'s tensor, '
        f"{members} members</text>",
    ]
    for number, (operation, lines) in enumerate(points.items()):
        out += panel(operation, lines, number % COLUMNS * PANEL_WIDTH, 20 + number // COLUMNS * PANEL_HEIGHT)
    x = LEFT
    for line, name, colour, thickness, dashes in LINES:
        if not any(line in lines for lines in points.values()):
            continue
        y = height - LEGEND_HEIGHT / 2
        out.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="{thickness}"'
                   f' stroke-dasharray="{dashes}"/>')
        out.append(f'<text x="{x + 27}" y="{y + 4}" class="key">{name}</text>')
        x += 42 + 6.2 * len(name)
    out.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
