"""The command bench/compare."""

import argparse
import math
import sys

from . import Problem, comparison, results, statistics, units

DESCRIPTION = """
Says what changed for cats between two runs, A and B, for each experiment as a whole and for each row. It compares the ratio to ets, with
the best options for the row, within each round. Where ets is no subject it compares the figure itself.

A change counts if it is more than chance explains, more than 1 %, and more than half of the change of ets itself. Only the machine can
have changed ets. The level of chance is 1 %, corrected for the number of rows and for the number of experiments.
"""
EPILOG = "Exit code: 0 no difference, 1 a difference, 2 the runs cannot be compared."


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/compare", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("a", metavar="A", help="the directory of a run, or its results.jsonl")
    parser.add_argument("b", metavar="B", help="another")
    parser.add_argument("--rows", action="store_true", help="show all rows, not only those that differ")
    chosen = parser.parse_args(words)
    try:
        return show(results.load(chosen.a), results.load(chosen.b), chosen.rows)
    except Problem as problem:
        print(f"bench/compare: {problem}", file=sys.stderr)
        return 2


def show(a, b, all_rows):
    experiments, rows, left_out = comparison.compare(a, b)
    if not rows:
        raise Problem("the runs have no row in common that was measured in two rounds of each")
    about = {**a.about, **b.about, comparison.ALL: {"better": "higher", "unit": ""}}
    for name, run in (("A", a), ("B", b)):
        loads = [vm["load"] for vm in run.vms]
        print(f"{name}: {run.path.parent}, cats {run.run['version']} of commit {run.run['commit']}{' (dirty)' if run.run['dirty'] else ''}, "
              f"{run.run['rounds']} rounds, seed {run.run['seed']}, load {min(loads)} to {max(loads)}")
    print(f"{'The same build' if a.run['build'] == b.run['build'] else 'Different builds'} of cats. "
          "Intervals are of 99 % confidence, corrected for the number of tests.\n")
    print(table(["experiment", "OTP", "subject", "rows", "verdict from A to B", "ets itself"],
                [[test.experiment, test.otp, test.subject, str(test.rows), verdict(test, about), machine(test, about)] for test in experiments]))
    shown = [test for test in rows if all_rows or test.differs]
    if shown:
        print("\n" + table(["experiment", "OTP", "subject", "row", "verdict from A to B"],
                           [[test.experiment, test.otp, test.subject, str(test.row), verdict(test, about)] for test in shown]))
    differing = [sum(test.differs for test in tests) for tests in (experiments, rows)]
    print(f"\n{differing[0]} of {units.count(len(experiments), 'experiment')} and {differing[1]} of {units.count(len(rows), 'row')} differ."
          + (f" {units.count(left_out, 'row')} could not be compared." if left_out else ""))
    print("The smallest change that four of five such comparisons would find: "
          f"{smallest(experiments)} in an experiment, {smallest(rows)} in a row.")
    return 1 if any(differing) else 0


def verdict(test, about):
    ends = sorted(percent(test, test.change + end, about) for end in (-test.half, test.half))
    interval = f"{ends[0]:+.1f} to {ends[1]:+.1f} %"
    change = percent(test, test.change, about)
    if test.differs:
        return f"{word(test, about)} by {abs(change):.1f} % ({interval})"
    if test.significant and abs(test.change) > comparison.IRRELEVANT and abs(test.change) <= test.unseen:
        return f"no difference that is not the machine's: {change:+.1f} % ({interval})"
    return f"no difference: {change:+.1f} % ({interval})"


def percent(test, change, about):
    """Of the figure: less time is a negative change, though the better one."""
    return round(100 * math.expm1(change if about[test.experiment]["better"] == "higher" else -change), 1) + 0.0


def word(test, about):
    unit = about[test.experiment]["unit"]
    if "/s" in unit or unit in units.TIMES:
        return "faster" if test.change > 0 else "slower"
    if test.experiment == comparison.ALL:
        return "better" if test.change > 0 else "worse"
    return "larger" if percent(test, test.change, about) > 0 else "smaller"


def machine(test, about):
    return "" if test.machine is None else f"{percent(test, test.machine, about):+.1f} %"


def smallest(tests):
    def written(change):
        return f"{100 * math.expm1(change):.1f} %" if change < math.log(2) else "over 100 %"

    visible = statistics.spread(test.visible for test in tests)
    return written(visible.median) + (f" (from {written(visible.low)} to {written(visible.high)})" if len(tests) > 1 else "")


def table(head, lines):
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in [head, *lines])
