"""The command bench/targets: the table of what cats is to reach, and what it did in these runs.

TARGETS has the targets, one for each line of the table. A target names the rows of an experiment. It says how their ratios to ets become
one number, and what that number should be.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import Problem, results, statistics, units
from .statistics import OWN

DESCRIPTION = """
Prints a table in markdown: the targets, and what cats reached in these runs. A figure is the median of the rounds (lowest to highest).
A ratio is that to ets with its best options for the row. A ratio of several rows is their geometric mean or the least of them, as the
line says. A target is missed if it is missed in every run.
"""


@dataclass(frozen=True)
class Target:
    line: str
    aim: float
    experiment: str
    where: dict = field(default_factory=dict)  # axis -> the value, or a tuple of those meant
    of: str = "least"  # or "mean", of the ratios; "most", of the figures of cats; "quotient", "scaling": see there
    at_most: bool = False  # the ratio the other way round is to be at most the aim
    beside: dict = field(default_factory=dict)  # for a quotient: what the denominator has instead


SMALL, LARGE = (2**3, 2**10, 2**16), 2**21
BAGS = ("bag", "duplicate_bag")
TARGETS = [
    Target("everyday calls, 1 worker: geometric mean", 1.3, "everyday", {"workers": 1}, "mean"),
    Target("… 2 workers", 1.8, "everyday", {"workers": 2}, "mean"),
    Target("… any call", 1.0, "everyday"),
    Target("… sessions, records and their parts, 1 worker: geometric mean", 1.1, "everyday", {"workers": 1, "group": "shapes"}, "mean"),
    Target("… 2 workers", 1.5, "everyday", {"workers": 2, "group": "shapes"}, "mean"),
    Target("insertion into an ordered_set in any order of the keys", 1.2, "insertion_patterns"),
    Target("ets_bench, range 2^21, 1 worker, set: geometric mean", 4.0, "ets_bench", {"range": LARGE, "workers": 1, "type": "set"}, "mean"),
    Target("… ordered_set", 5.0, "ets_bench", {"range": LARGE, "workers": 1, "type": "ordered_set"}, "mean"),
    Target("… any phase, set", 2.0, "ets_bench", {"range": LARGE, "workers": 1, "type": "set"}),
    Target("… any phase, ordered_set", 3.5, "ets_bench", {"range": LARGE, "workers": 1, "type": "ordered_set"}),
    Target("… ranges 2^3, 2^10, 2^16, any phase", 1.3, "ets_bench", {"range": SMALL, "workers": 1}),
    Target("… with 2 workers: by type and range, the mean ratio over that with 1 worker", 1.0, "ets_bench", {"workers": 2}, "quotient",
           beside={"workers": 1}),
    Target("2 workers on one table over 2 on private ones, any lookup share", 0.9, "scaling", {"tables": "shared"}, "scaling",
           beside={"tables": "private"}),
    Target("hot spot: all workers on 8 keys, 50 % updates", 1.5, "key_distribution", {"keys": "hot 8", "workers": 2, "lookups": 50}),
    Target("… update_counter on one key", 1.5, "hot_keys", {"keys": 1, "workers": 2, "operation": "update_counter"}),
    Target("lookup and insert of every value shape, hot", 1.0, "values", {"place": "hot"}),
    Target("… 1M objects", 1.5, "values", {"place": "large"}),
    Target("lookup_element of one field of a record of 20", 1.5, "elements", {"operation": "lookup_element"}),
    Target("select over a bound prefix, 1000 objects", 2.0, "scans", {"call": "select of 1000 by prefix"}),
    Target("full scans", 2.0, "scans", {"call": ("select_count of 1 in 1000", "select of a third", "match_object on a field")}),
    Target("first/next walk", 2.0, "scans", {"call": "first and next"}),
    Target("foldl", 2.0, "scans", {"call": "foldl"}),
    Target("tab2list", 1.2, "scans", {"call": "tab2list"}),
    Target("insert of a list of 1000", 1.5, "list_insert", {"length": 1000}),
    Target("new + delete of an empty table, named and unnamed", 1.0, "new_delete", {"workers": 1}),
    Target("memory of an empty table, of ETS", 1.0, "memory_table", {"objects": 0}, at_most=True),
    Target("memory per object, pair of integers, of ETS", 0.6, "memory_object", {"shape": "pair"}, at_most=True),
    Target("… any other shape", 0.9, "memory_object", {"shape": ("key_only", "record_20", "small_binary", "large_binary", "map",
                                                              "nested_list", "float", "reference")}, at_most=True),
    Target("bags with 10,000 objects under one key: insert", 50, "bags", {"objects": 10_000, "type": BAGS, "operation": "insert"}),
    Target("… delete_object of one of them", 50, "bags", {"objects": 10_000, "type": BAGS, "operation": "delete_object"}),
    Target("… match_delete with key and one more field bound", 10, "bags", {"objects": 10_000, "type": BAGS, "operation": "match_delete"}),
    Target("longest hold of a scheduler by any call, ms", 1.0, "stall", {"type": ("set", "ordered_set")}, "most", at_most=True),
]
NATIVE = [("native, 1 thread, integer keys, lookups: `ca` over congee", 0.8, "ca", "congee"),
          ("… `hash` over dashmap", 1.0, "hash", "dashmap")]


@dataclass(frozen=True)
class Outcome:
    value: float
    spread: statistics.Spread
    where: str  # the row that is the least or the most, by the axes that others differ in
    missing: str  # what the line means and was not measured
    reached: bool


def outcome(target, run, otp):
    """What a run measured of the target on an OTP, or None."""
    meant = {row: figures for row, figures in run.rows_of(target.experiment).items() if row.otp == otp and fits(row, target.where)}
    measured = {"mean": mean, "least": least, "most": most, "quotient": quotient, "scaling": scaling}[target.of](target, run, otp, meant)
    if measured is None:
        return None
    spread, where = measured
    if target.at_most and target.of != "most":
        spread = statistics.Spread(1 / spread.median, 1 / spread.high, 1 / spread.low)
    reached = spread.median <= target.aim if target.at_most else spread.median >= target.aim
    missing = [f"{key} {value}" for key, values in target.where.items() if isinstance(values, tuple)
               for value in values if value not in [dict(row.axes).get(key) for row in meant]]
    return Outcome(spread.median, spread, where, ", ".join(missing), reached)


def fits(row, where):
    axes = dict(row.axes)
    return all(axes.get(key) in (values if isinstance(values, tuple) else (values,)) for key, values in where.items())


def ratios(run, experiment, rows):
    compared = {row: statistics.compared(figures, run.better(experiment)) for row, figures in rows.items()}
    return {row: against for row, against in compared.items() if against}


def mean(target, run, otp, rows):
    """Geometric mean; its spread is that of the means of the rounds that have all rows."""
    against = ratios(run, target.experiment, rows)
    if not against:
        return None
    rounds = set.intersection(*(set(each.rounds) for each in against.values()))
    means = [statistics.geometric_mean(each.rounds[number] for each in against.values()) for number in rounds]
    middle = statistics.geometric_mean(each.ratio.median for each in against.values())
    return statistics.Spread(middle, min([middle, *means]), max([middle, *means])), ""


def least(target, run, otp, rows):
    against = ratios(run, target.experiment, rows)
    if not against:
        return None
    row = min(against, key=lambda row: against[row].ratio.median)
    return against[row].ratio, differing(row, against)


def most(target, run, otp, rows):
    """The highest figure of cats, in ms: that of the experiment `stall` comes in microseconds."""
    mine = {row: statistics.spread(figure * units.TIMES[run.about[target.experiment]["unit"]] * 1000 for figure in figures[OWN].values())
            for row, figures in rows.items() if OWN in figures}
    if not mine:
        return None
    row = max(mine, key=lambda row: mine[row].median)
    return mine[row], differing(row, mine)


def quotient(target, run, otp, rows):
    """The mean ratio of each part of the table over that of the part beside it: the least of these."""
    parts = {}
    for row in rows:
        axes = dict(row.axes)
        parts.setdefault((axes["type"], axes["range"]), {})[row] = rows[row]
    found = []
    for (kind, range_), members in parts.items():
        beside = {row: figures for row, figures in run.rows_of(target.experiment).items() if row.otp == otp
                  and fits(row, {**target.beside, "type": kind, "range": range_})}
        over, under = mean(target, run, otp, members), mean(target, run, otp, beside)
        if over and under:
            (over, _), (under, _) = over, under
            found.append((statistics.Spread(over.median / under.median, over.low / under.high, over.high / under.low),
                          f"{kind}, range {range_}"))
    return min(found, key=lambda each: each[0].median, default=None)


def scaling(target, run, otp, rows):
    """The figures of cats over those in the rows beside, round by round: the least."""
    found = {}
    for row, figures in rows.items():
        axes = {**dict(row.axes), **target.beside}
        beside = next((run.rows[other] for other in run.rows_of(target.experiment) if other.otp == otp and dict(other.axes) == axes), {})
        if OWN in figures and OWN in beside:
            both = statistics.ratios({"shared": figures[OWN], "private": beside[OWN]}, "shared", "private", run.better(target.experiment))
            if both:
                found[row] = statistics.spread(both.values())
    if not found:
        return None
    row = min(found, key=lambda row: found[row].median)
    return found[row], differing(row, found)


def differing(row, rows):
    """The values of the axes in which these rows differ."""
    others = [dict(other.axes) for other in rows]
    return ", ".join(str(value) for key, value in row.axes if any(other.get(key) != value for other in others))


def native(texts):
    """Lookups a second of each structure on one thread, from what `make bench-native` printed: {name: [in each text]}."""
    found = {}
    for text in texts:
        for line in re.finditer(r"^(\S+) +- +1((?: +[\d.]+M){5})$", text, re.MULTILINE):
            found.setdefault(line[1], []).append(float(line[2].split()[-1].rstrip("M")))
    return found


def table(runs, texts):
    otps = list(dict.fromkeys(otp for run in runs for otp in run.otps))
    lines = [["row", "target", *(f"OTP {otp}" for otp in otps), "reached"], ["---"] * (3 + len(otps))]
    for target in TARGETS:
        cells, reached = [], []
        for otp in otps:
            outcomes = [found for run in runs if otp in run.otps and (found := outcome(target, run, otp))]
            cells.append("; ".join(shown(each) for each in outcomes) or "not measured")
            reached.append(verdict([each.reached and not each.missing for each in outcomes]))
        lines.append([target.line, f"{'at most ' if target.at_most else ''}{target.aim:g}", *cells,
                      reached[0] if len(set(reached)) == 1 else ", ".join(f"{otp}: {each}" for otp, each in zip(otps, reached))])
    rates = native(texts)
    for line, aim, ours, theirs in NATIVE:
        values = [mine / other for mine, other in zip(rates.get(ours, []), rates.get(theirs, []))]
        lines.append([line, f"{aim:g}", "; ".join(map(units.ratio, values)) or "not measured", *[""] * (len(otps) - 1),
                      verdict([value >= aim for value in values])])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    sizes = ", ".join(f"{run.path.parent.name} (size {run.run['size']}, {run.run['rounds']} rounds)" for run in runs)
    return f"{text}\n\nOf {sizes}; the tables are as large as they are at that size."


def shown(outcome):
    where = f", {outcome.where}" if outcome.where else ""
    low, high = map(units.ratio, (outcome.spread.low, outcome.spread.high))
    missing = f"; not measured: {outcome.missing}" if outcome.missing else ""
    return f"**{units.ratio(outcome.value)}** ({low} to {high}{where}{missing})"


def verdict(reached):
    if not reached:
        return "not measured"
    if all(reached) or not any(reached):
        return "yes" if reached[0] else "no"
    return f"in {sum(reached)} of {len(reached)} runs"


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/targets", description=DESCRIPTION)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the directory of a run, or its results.jsonl")
    parser.add_argument("--native", nargs="+", default=[], metavar="FILE", help="what `make bench-native` printed, for the last rows")
    chosen = parser.parse_args(words)
    try:
        print(table([results.load(path) for path in chosen.runs], [read(path) for path in chosen.native]))
    except Problem as problem:
        print(f"bench/targets: {problem}", file=sys.stderr)
        return 2
    return 0


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
