"""Draws the table of hit ratios of docs/internals/eviction.md:

    python3 scripts/hit_ratio_chart.py < docs/internals/eviction.md > docs/figures/hit_ratios.svg

A filled dot is a table of cats, the ring around it the simulator. The colours follow a page that is light or dark.
"""

import re
import sys
from html import escape

POLICIES = ["S3-FIFO", "SIEVE", "CLOCK"]
LEFT, WIDTH, TOP, ROW, LANE = 210, 460, 62, 34, 8
STYLE = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328 }
    .page { fill: #ffffff } .grid { stroke: #d0d7de } .ring { fill: none; stroke-width: 1.5 }
    .S3-FIFO { fill: #0072b2; stroke: #0072b2 } .SIEVE { fill: #d55e00; stroke: #d55e00 } .CLOCK { fill: #009e73; stroke: #009e73 }
    @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #30363d }
        .S3-FIFO { fill: #56b4e9; stroke: #56b4e9 } .SIEVE { fill: #e8833a; stroke: #e8833a } .CLOCK { fill: #3fb68b; stroke: #3fb68b }
    }
    .ring { fill: none }
"""


def rows(lines):
    """The trace, the objects, and a pair of ratios in percent for each policy."""
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        pairs = [re.fullmatch(r"([\d.]+) %, ([\d.]+) %", cell) for cell in cells[2:]]
        if len(pairs) == len(POLICIES) and all(pairs):
            yield cells[0], int(cells[1]), [(float(pair[1]), float(pair[2])) for pair in pairs]


def dot(x, y, policy, ring):
    return f'<circle class="{policy}{" ring" if ring else ""}" cx="{x:.1f}" cy="{y}" r="{5.5 if ring else 3}"/>'


def chart(table):
    height = TOP + ROW * len(table) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{height}" '
             f'viewBox="0 0 {LEFT + WIDTH + 40} {height}" role="img">',
             "<title>Hit ratios of tables and of the simulator, for each trace and policy</title>",
             f"<style>{STYLE}</style>", f'<rect class="page" width="{LEFT + WIDTH + 40}" height="{height}" rx="8"/>']
    for number, policy in enumerate(POLICIES):
        x = LEFT + 95 * number
        parts += [dot(x, 18, policy, False), dot(x, 18, policy, True), f'<text x="{x + 11}" y="22">{policy}</text>']
    parts.append(f'<text x="{LEFT + 300}" y="22">dot: cats, ring: simulator</text>')
    for percent in range(0, 101, 20):
        x = LEFT + WIDTH * percent / 100
        parts += [f'<line class="grid" x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{height - 10}"/>',
                  f'<text x="{x}" y="{TOP - 19}" text-anchor="middle">{percent} %</text>']
    for number, (trace, objects, pairs) in enumerate(table):
        y = TOP + ROW * number + ROW // 2 - 6
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(trace)}, {objects:,}</text>')
        for lane, (policy, (own, simulated)) in enumerate(zip(POLICIES, pairs)):
            below = y + LANE * (lane - 1)
            parts += [dot(LEFT + WIDTH * simulated / 100, below, policy, True), dot(LEFT + WIDTH * own / 100, below, policy, False)]
    return "\n".join([*parts, "</svg>"])


print(chart(list(rows(sys.stdin))))
