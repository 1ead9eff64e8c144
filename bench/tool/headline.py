"""The command bench/headline: the chart of README.md, from a run of the experiments `large_tables` and `everyday`.

Each pair of bars has a scale of its own, from zero. The text is large, as the chart is also read on a telephone, and the colours
follow a page that is light or dark.
"""

import argparse
import sys
from html import escape

from . import Problem, results, statistics, units

DESCRIPTION = "Writes the chart of README.md (SVG) to the standard output. Measure first: bench/run --only large_tables everyday"
# What a pair of bars is called, its experiment, and the axes of its row beside the release and the number of objects.
PAIRS = [("Delete a table of {objects}: the caller waits", "large_tables", {"type": "set", "call": "delete of the table"}),
         ("Select 1000 of {objects} by guards (ordered_set)", "large_tables",
          {"type": "ordered_set", "call": "select of 1000 by guards"}),
         ("Look up one of {objects} (set)", "large_tables", {"type": "set", "call": "lookup"}),
         ("Look up one of {objects} (ordered_set)", "large_tables", {"type": "ordered_set", "call": "lookup"}),
         ("Look up one of 1000 sessions (set)", "everyday",
          {"group": "shapes", "call": "lookup of a session as a map among 1000", "workers": 1}),
         ("Insert one of 1000 sessions over itself (set)", "everyday",
          {"group": "shapes", "call": "insert of a session as a map among 1000", "workers": 1})]
WIDTH, LEFT, BAR, PAIR, TOP = 540, 60, 360, 84, 30
STYLE = """
    text { font: 16px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328 }
    .title { font-weight: 600 } .page { fill: #ffffff } .ets { fill: #d55e00 } .cats { fill: #0072b2 }
    @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .page { fill: #0d1117 } .ets { fill: #e8833a } .cats { fill: #56b4e9 }
    }
"""


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/headline", description=DESCRIPTION)
    parser.add_argument("run", help="the directory of a run, or its results.jsonl")
    parser.add_argument("--otp", help="the release, where the run measured several; default: the last one")
    chosen = parser.parse_args(words)
    try:
        print(chart(results.load(chosen.run), chosen.otp))
    except Problem as problem:
        print(f"bench/headline: {problem}", file=sys.stderr)
        return 2
    return 0


def chart(run, otp=None):
    pairs = [pair(run, otp or run.otps[-1], *each) for each in PAIRS]
    height = TOP + PAIR * len(pairs)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
             "<title>ets and cats: " + escape("; ".join(f"{title}: {ets[1]} and {cats[1]}" for title, ets, cats in pairs)) + "</title>",
             f"<style>{STYLE}</style>", f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>']
    for number, (title, *bars) in enumerate(pairs):
        top = TOP + PAIR * number
        parts.append(f'<text class="title" x="12" y="{top}">{escape(title)}</text>')
        longest = max(figure for figure, _ in bars)
        for line, (name, (figure, text)) in enumerate(zip(("ets", "cats"), bars)):
            below, length = top + 10 + 26 * line, max(1.5, BAR * figure / longest)
            parts.append(f'<text x="12" y="{below + 16}">{name}</text>'
                         f'<rect class="{name}" x="{LEFT}" y="{below}" width="{length:.1f}" height="20" rx="2"/>'
                         f'<text x="{LEFT + length + 8:.1f}" y="{below + 16}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"])


def pair(run, otp, title, experiment, axes):
    """The title of a pair of bars, and the figures of ets and of cats, each as a number and as text."""
    for row, figures in run.rows_of(experiment).items():
        named = dict(row.axes)
        if row.otp == otp and axes.items() <= named.items() and {"ets", statistics.OWN} <= figures.keys():
            medians = [statistics.spread(figures[subject].values()).median for subject in ("ets", statistics.OWN)]
            return (title.format(objects=objects(named.get("objects", 0))), *((median, text(median, run.about[experiment]["unit"])) for median in medians))
    raise Problem(f"no figures of {experiment} with {', '.join(map(str, axes.values()))} on OTP {otp}")


def objects(number):
    return f"{units.figure(number / 1e6)[:-3]} million objects" if number % 1_000_000 == 0 else f"{number} objects"


def text(figure, unit):
    factor, unit = units.scaled(unit, [figure])
    return f"{units.figure(factor * figure)} {unit.split('/')[0]}"
