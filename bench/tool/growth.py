"""The command bench/growth: how the times of the experiment `growth` grow, as tables of the documentation, in markdown."""

import argparse
import math
import sys

from . import Problem, results, units
from .statistics import is_ets
from .table import table

DESCRIPTION = """
Prints a table in markdown for each thing of which there is more and more: the times of each call at three sizes, how many times as long the
last takes as the one before, and the time in ets at the last. A row is named that grows faster than it should.
"""
EXPERIMENT = "growth"
# By how much the exponent of a call from the second to the third size may be above that of what it should be: a factor of ten. A processor
# whose caches miss more often in a large table is no growth.
MORE = 0.5
# Microseconds after which the experiment gives a call up.
GIVEN_UP = 2e7
EXPONENTS = {"1": 0.0, "n": 1.0, "n log n": 1.0 + math.log10(5 / 3) / 2}


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/growth", description=DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="the directory of a run, or its results.jsonl")
    parser.add_argument("--check", action="store_true", help="fail if a row grows faster than it should")
    chosen = parser.parse_args(words)
    try:
        calls = calls_of(results.load(chosen.run))
    except Problem as problem:
        print(f"bench/growth: {problem}", file=sys.stderr)
        return 2
    for what in dict.fromkeys(what for what, _, _ in calls):
        print(f"## {what[0].upper()}{what[1:]}\n")
        print(table_of({(call, grows): times for (of, call, grows), times in calls.items() if of == what}) + "\n")
    fast = [f"{what}: {call}" for (what, call, grows), times in calls.items() if grows_fast(grows, times["cats"])]
    print("Nothing grows faster than it should." if not fast else "\n".join(["These grow faster than they should:", ""] + [f"- {one}" for one in fast]))
    return 1 if fast and chosen.check else 0


def calls_of(run):
    """{(what, call, grows): {"cats" or "ets": {number: least time in us}}}, of the first release of the run."""
    rows = {row: figures for row, figures in run.rows_of(EXPERIMENT).items() if row.otp == run.otps[0]}
    if not rows:
        raise Problem(f"the run has no rows of {EXPERIMENT}")
    calls = {}
    for row, figures in rows.items():
        axes = dict(row.axes)
        times = calls.setdefault((axes["what"], axes["call"], str(axes["grows"])), {"cats": {}, "ets": {}})
        for subject, rounds in figures.items():
            times["ets" if is_ets(subject) else "cats"][int(axes["number"])] = min(rounds.values())
    return calls


def grows_fast(grows, times):
    """Whether the time at the largest size is more than the growth explains. It is compared with the size before, as at the smallest one the
    fixed part of a call is most of it."""
    *_, before, last = [*[None, None], *sorted(times)]
    if before is None:
        return False
    if times[last] >= GIVEN_UP:
        return True
    exponent = math.log(times[last] / times[before]) / math.log(last / before)
    return exponent > EXPONENTS[grows] + MORE


def table_of(calls):
    numbers = sorted({number for times in calls.values() for number in times["cats"]})
    head = ["call", "should grow as", *[f"{number:,}" for number in numbers], "growth", "ets at the largest", "growth in ets"]
    return table(head, [[call + (" **!**" if grows_fast(grows, times["cats"]) else ""), f"O({grows})",
                         *[shown(times["cats"].get(number)) for number in numbers], growth(times["cats"], numbers),
                         shown(times["ets"].get(numbers[-1])), growth(times["ets"], numbers)]
                        for (call, grows), times in calls.items()])


def growth(times, numbers):
    before, last = [times.get(number) for number in numbers[-2:]] if len(numbers) > 1 else (None, None)
    return f"{units.figure(last / before)}" if before and last and last < GIVEN_UP else ""


def shown(time):
    """A time in microseconds with its unit."""
    if time is None:
        return ""
    if time >= GIVEN_UP:
        return "over 20 s"
    for unit, size in [("s", 1e6), ("ms", 1e3), ("µs", 1.0)]:
        if time >= size:
            return f"{units.figure(time / size)} {unit}"
    return f"{units.figure(1000 * time)} ns"
