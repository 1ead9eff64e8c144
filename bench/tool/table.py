"""The command bench/table: the ratios of an experiment as a table of the documentation, in markdown."""

import argparse
import sys

from . import Problem, results, statistics, units

DESCRIPTION = """
Prints two tables in markdown: the geometric means of an experiment's ratios to ets, and the ratios of its rows. A ratio is that to ets
with its best options for the row: the median of the rounds of all given runs (lowest to highest). Above 1 cats is ahead. The columns are
the releases and, where the experiment has them, the numbers of workers. --of and --to compare other subjects. --figures prints what was
measured instead: the median of the rounds (lowest to highest) of each subject.
"""
WORKERS = "workers"  # the axis that becomes columns


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/table", description=DESCRIPTION)
    parser.add_argument("experiment", metavar="EXPERIMENT")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the directory of a run, or its results.jsonl")
    parser.add_argument("--behind", action="store_true", help="only the rows where cats is behind in a column, the least ratio first")
    parser.add_argument("--of", metavar="SUBJECT", default=statistics.OWN, help="whose ratios; default: cats")
    parser.add_argument("--to", metavar="SUBJECT", help="the ratios to this subject, and not to ets")
    parser.add_argument("--figures", action="store_true", help="the figures of all subjects, and no ratios")
    chosen = parser.parse_args(words)
    try:
        runs = [results.load(path) for path in chosen.runs]
        if chosen.figures:
            print(figures(chosen.experiment, runs))
            return 0
        lines, columns = ratios(chosen.experiment, runs, chosen.of, chosen.to)
    except Problem as problem:
        print(f"bench/table: {problem}", file=sys.stderr)
        return 2
    print(means(lines, columns), rows(behind(lines) if chosen.behind else lines, columns), sep="\n\n")
    return 0


def ratios(experiment, runs, of=statistics.OWN, to=None):
    """The rows as {axes without workers: {column: Spread}}, and the columns, which are (otp, number of workers or None)."""
    rounds = {}
    for run in runs:
        for row, figures in run.rows_of(experiment).items():
            base = to or statistics.best_ets(figures, run.better(experiment))
            both = {of, base} <= figures.keys() and statistics.ratios(figures, of, base, run.better(experiment))
            if both:
                axes = dict(row.axes)
                column = (row.otp, axes.pop(WORKERS, None))
                rounds.setdefault(tuple(axes.items()), {}).setdefault(column, []).extend(both.values())
    if not rounds:
        raise Problem(f"the runs have no row of {experiment} that has {to or 'ets'} and {of}")
    lines = {axes: {column: statistics.spread(each) for column, each in by_column.items()} for axes, by_column in rounds.items()}
    return lines, sorted({column for by_column in lines.values() for column in by_column}, key=str)


def figures(experiment, runs):
    """A table of all subjects, over the rounds of all runs, in one unit."""
    rounds = {}
    for run in runs:
        for row, by_subject in run.rows_of(experiment).items():
            for subject, each in by_subject.items():
                rounds.setdefault((("otp", row.otp), *row.axes), {}).setdefault(subject, []).extend(each.values())
    if not rounds:
        raise Problem(f"the runs have no row of {experiment}")
    spreads = {axes: {subject: statistics.spread(each) for subject, each in by_subject.items()} for axes, by_subject in rounds.items()}
    unit = runs[0].about[experiment]["unit"]
    subjects = runs[0].subjects(experiment)
    return table([key for key, _ in next(iter(spreads))] + [f"{subject}, {unit}" for subject in subjects],
                 [[str(value) for _, value in axes] + [measured(by_subject.get(subject)) for subject in subjects]
                  for axes, by_subject in spreads.items()])


def behind(lines):
    least = {axes: min(spread.median for spread in by_column.values()) for axes, by_column in lines.items()}
    return {axes: lines[axes] for axes in sorted(lines, key=least.get) if least[axes] < 1}


def means(lines, columns):
    medians = {column: [by_column[column].median for by_column in lines.values() if column in by_column] for column in columns}
    return table([""] + [name(column) for column in columns],
                 [["geometric mean"] + [f"**{units.ratio(statistics.geometric_mean(medians[column]))}**" for column in columns],
                  ["rows"] + [str(len(medians[column])) for column in columns],
                  ["rows below 1"] + [str(sum(median < 1 for median in medians[column])) for column in columns]])


def rows(lines, columns):
    head = [key for key, _ in next(iter(lines), ())]
    return table(head + [name(column) for column in columns],
                 [[str(value) for _, value in axes] + [cell(by_column.get(column)) for column in columns]
                  for axes, by_column in lines.items()])


def name(column):
    otp, workers = column
    return f"OTP {otp}" + ("" if workers is None else f", {units.count(workers, 'worker')}")


def measured(spread):
    return "" if spread is None else f"**{units.figure(spread.median)}** ({units.figure(spread.low)} to {units.figure(spread.high)})"


def cell(spread):
    return "" if spread is None else f"**{units.ratio(spread.median)}** ({units.ratio(spread.low)} to {units.ratio(spread.high)})"


def table(head, lines):
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])
