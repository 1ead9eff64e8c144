"""The report: one HTML page without references to elsewhere, and the charts as files beside it."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import jinja2
import markupsafe

from . import charts, progress, statistics, units

BEHIND_SHOWN, ERRORS_SHOWN = 8, 3  # on the first page
FOLDED_FROM = 40  # rows of a table
CROWDED_FROM = 6  # subjects of a table, which then has no spreads


@dataclass(frozen=True)
class Line:
    """cats against ets in an experiment on an OTP: mean is geometric, over the rows; the others are medians of rows."""

    experiment: str
    otp: str
    rows: int
    mean: float
    least: float
    most: float
    behind: int
    least_row: str
    most_row: str


def write(results):
    """Writes report.html and the charts beside the result file, and returns the path of the page."""
    directory = results.path.parent
    sections = [section(results, experiment, directory) for experiment in results.run["experiments"]]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals.update(figure=units.figure, ratio=units.ratio, count=units.count)
    page = environment.get_template("page.html").render(summary=summary(results), sections=sections, results=results, run=results.run,
                                                        strips=strips(lines(results)))
    path = directory / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def lines(results):
    """The headline, as {experiment: {otp: Line}}."""
    found = {}
    for experiment in results.run["experiments"]:
        by_otp = {}
        for row, figures in results.rows_of(experiment).items():
            if against := statistics.compared(figures, results.better(experiment)):
                by_otp.setdefault(row.otp, []).append((against.ratio, row))
        for otp, ratios in by_otp.items():
            by_median = sorted(ratios, key=lambda each: each[0].median)
            (least, least_row), (most, most_row) = by_median[0], by_median[-1]
            mean = statistics.geometric_mean(ratio.median for ratio, _ in ratios)
            found.setdefault(experiment, {})[otp] = Line(experiment, otp, len(ratios), mean, least.median, most.median,
                                                         sum(ratio.median < 1 for ratio, _ in ratios), str(least_row), str(most_row))
    return found


def summary(results):
    headline = lines(results)
    behind = []
    for row, figures in results.rows.items():
        against = statistics.compared(figures, results.better(row.experiment))
        if against and against.ratio.median < 1:
            behind.append((against, row))
    behind.sort(key=lambda each: each[0].ratio.median)
    every = [line for by_otp in headline.values() for line in by_otp.values()]
    loads = [vm["load"] for vm in results.vms]
    return {"headline": headline, "behind": behind, "behind_shown": BEHIND_SHOWN, "errors_shown": ERRORS_SHOWN,
            "compared": sum(line.rows for line in every),
            "loads": (min(loads), max(loads)) if loads else None,
            "memory": f"{results.run['machine']['memory'] / 2**30:.0f} GiB",
            "rounds": max((record[-1] for record in results.done), default=0),
            "took": duration(results)}


def strips(headline):
    """For each experiment a strip, on one logarithmic scale, from the least to the most ratio with the mean marked; at "" the scale."""
    every = [line for by_otp in headline.values() for line in by_otp.values()]
    low, high = min([0.9] + [line.least for line in every]), max([2] + [line.most for line in every])
    width = 230

    def at(ratio):
        return round(8 + (width - 16) * math.log(ratio / low) / math.log(high / low), 1)

    def svg(inside, height):
        return markupsafe.Markup(f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-size="10" '
                                 f'text-anchor="middle">{inside}</svg>')

    found = {"": svg("".join(f'<text x="{at(mark)}" y="11">{mark:g}</text>' for mark in marks(low, high)), 14)}
    for experiment, by_otp in headline.items():
        height = 4 + 7 * len(by_otp)
        parts = [f'<line x1="{at(mark)}" x2="{at(mark)}" y1="0" y2="{height}" stroke="{charts.ETS if mark == 1 else "#dddddd"}"/>'
                 for mark in marks(low, high)]
        for number, line in enumerate(by_otp.values()):
            y = 5.5 + 7 * number
            parts.append(f'<line x1="{at(line.least)}" x2="{at(line.most)}" y1="{y}" y2="{y}" stroke="{charts.CATS}" stroke-width="2"/>'
                         f'<circle cx="{at(line.mean)}" cy="{y}" r="3" fill="{charts.CATS}"><title>OTP {line.otp}</title></circle>')
        found[experiment] = svg("".join(parts), height)
    return found


def marks(low, high):
    """Round ratios in this range, so few that they can be told apart."""
    steps = (1, 2, 5) if high < 20 * low else (1,)
    return [mark for exponent in range(-6, 7) for step in steps if low <= (mark := step * 10.0 ** exponent) <= high]


def duration(results):
    return results.end and results.end["seconds"] is not None and progress.duration(results.end["seconds"])


def section(results, experiment, directory):
    about, rows = results.about[experiment], results.rows_of(experiment)
    pictures = []
    for name, svg in charts.figures(results, experiment):
        file = re.sub(r"[^A-Za-z0-9_.-]+", "-", name) + ".svg"
        (directory / file).write_text(svg, encoding="utf-8")
        pictures.append((file, svg))
    keys = list(dict.fromkeys(key for row in rows for key, _ in row.axes))
    subjects = results.subjects(experiment)
    factor, unit = units.scaled(about["unit"], [statistics.spread(r.values()).median for f in rows.values() for r in f.values()])
    table = []
    for row, figures in rows.items():
        axes = dict(row.axes)
        cells = {subject: statistics.spread(factor * figure for figure in rounds.values()) for subject, rounds in figures.items()}
        table.append({"otp": row.otp, "axes": [charts.label(axes.get(key)) for key in keys], "cells": cells,
                      "base": statistics.best_ets(figures, about["better"]), "against": statistics.compared(figures, about["better"])})
    return {"name": experiment, "about": about, "pictures": pictures, "axes": keys, "subjects": subjects, "unit": unit, "table": table,
            "lines": list(lines(results).get(experiment, {}).values()), "otps": len({row.otp for row in rows}) > 1,
            "compared": any(row["against"] for row in table), "folded": len(table) >= FOLDED_FROM, "crowded": len(subjects) > CROWDED_FROM,
            "errors": [error for error in results.errors if error["experiment"] == experiment]}
