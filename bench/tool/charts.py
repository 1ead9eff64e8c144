"""A chart for each experiment, with matplotlib: small multiples of dots (categories) or lines (numbers), a mark for each subject.

A mark is the median over the rounds. The bar through it goes from the lowest round to the highest. The colours are those of Okabe and
Ito, which colour-blind readers can tell apart. Each subject also has a marker of its own. All panels of a figure have the same scale.
The background is opaque and white, so that a figure is readable on a dark page as well.
"""

import io
import itertools
import math
import re
from dataclasses import dataclass, replace

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402 (the backend comes first)

from . import statistics, units  # noqa: E402

CATS, ETS = "#0072B2", "#D55E00"
OTHER_ETS = ["#E69F00", "#8C4A00", "#F0A58C", "#B38600", "#6B2E00", "#FFB000"]
OTHERS = ["#009E73", "#56B4E9", "#CC79A7", "#000000", "#7A7A7A", "#4B3B8F", "#117733", "#AA4499"]
MARKERS = "osD^vP*Xd<>ph8"
WIDTH = 10  # inches
TALLEST = 12.5  # inches, so that a figure and the heading above it fit on a page
LOGARITHMIC_FROM = 30  # times the smallest figure
STYLE = {"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"], "font.size": 9, "svg.fonttype": "none",
         "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6,
         "axes.edgecolor": "#888888", "axes.axisbelow": True, "axes.titlesize": 9, "axes.titleweight": "bold", "legend.frameon": False,
         "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white", "savefig.transparent": False}


def appearance(subjects):
    """A colour and a marker for each subject: ets and cats with their defaults always have the same."""
    fixed = {"ets": (ETS, "o"), statistics.OWN: (CATS, "s")}
    colours = {True: itertools.cycle(OTHER_ETS), False: itertools.cycle(OTHERS)}
    markers = itertools.cycle(MARKERS[2:])
    return {subject: fixed.get(subject) or (next(colours[statistics.is_ets(subject)]), next(markers)) for subject in subjects}


def figures(results, experiment):
    """The charts of an experiment as (name, SVG): one, or several where it has more panels than one figure holds."""
    return drawn(experiment, results.about[experiment], results.rows_of(experiment), results.subjects(experiment))


def drawn(name, about, rows, subjects):
    """The same of any rows, with an `about` that says how."""
    if not rows:
        return []
    rows, subjects = by_lines([axis for axis in about.get("lines", "").split(",") if axis], rows, subjects)
    axes = {"otp": list(dict.fromkeys(row.otp for row in rows))}
    for row in rows:
        for key, value in row.axes:
            values = axes.setdefault(key, [])
            if value not in values:
                values.append(value)
    points = [({"otp": row.otp, **dict(row.axes)}, figures) for row, figures in rows.items()]
    along = about["x"]
    declared = [panel for panel in about.get("panels", "").split(",") if panel]
    divided = [key for key in dict.fromkeys(["otp", *declared, *axes]) if key != along and len(axes.get(key, [])) > 1]
    factor, unit = units.scaled(about["unit"], [statistics.spread(r.values()).median for f in rows.values() for r in f.values()])
    chart = Chart(along, about["scale"], axes.get(along, []), factor, unit, appearance(subjects), about["better"])
    parts = chart.split(points, divided, axes)
    return [(name + ("-" + "-".join(map(str, heading)) if heading else ""), chart.draw(name, heading, members, left, axes))
            for heading, members, left in parts]


def by_lines(lines, rows, subjects):
    """The rows without the axes `lines`, and a subject for each of their values. Those that are measured with one value have one."""
    def chosen(row):
        return tuple(f"{'OTP' if key == 'otp' else key} {label(value)}" for key, value in (("otp", row.otp), *row.axes) if key in lines)

    def named(subject, value):
        return f"{subject} ({', '.join(value)})" if len(values[subject]) > 1 else subject

    values = {subject: dict.fromkeys(chosen(row) for row, figures in rows.items() if subject in figures) for subject in subjects}
    found = {}
    for row, figures in rows.items():
        left = replace(row, otp="" if "otp" in lines else row.otp, point="",
                       axes=tuple((key, value) for key, value in row.axes if key not in lines))
        for subject, rounds in figures.items():
            found.setdefault(left, {})[named(subject, chosen(row))] = rounds
    return found, [named(subject, value) for subject in subjects for value in values[subject]]


@dataclass(frozen=True)
class Grid:
    cells: list  # what each panel shows, as a value for each axis
    across: int
    down: int
    subjects: list
    categories: list
    entries: int
    legend: float  # inches
    height: float


class Chart:
    def __init__(self, along, scale, values, factor, unit, looks, better):
        self.along, self.values, self.factor, self.unit, self.looks, self.better = along, values, factor, unit, looks, better
        self.numeric = scale != "category" and len(values) > 1 and all(isinstance(value, (int, float)) for value in values)
        self.logarithmic_along = scale == "log"

    def split(self, points, divided, axes, heading=()):
        """The points in parts that fit on a page each, by the first axes that divide them, with those axes' values."""
        if len(divided) < 2 or self.grid(points, divided, axes).height <= TALLEST:
            return [(heading, points, divided)]
        first, *left = divided
        return [part for value in axes[first] if any(p.get(first) == value for p, _ in points)
                for part in self.split([each for each in points if each[0].get(first) == value], left, axes,
                                       heading + (f"{first} {value}",))]

    def grid(self, points, divided, axes):
        """The panels: in line by the last axis that divides, or wrapped if those are too many for a line."""
        columns = [value for value in axes[divided[-1]] if any(p.get(divided[-1]) == value for p, _ in points)] if divided else [None]
        lines = list(dict.fromkeys(tuple(p.get(key) for key in divided[:-1]) for p, _ in points))
        cells = [dict(zip(divided, (*line, column))) for line in lines for column in columns]
        across = len(columns) if len(columns) <= 4 else 3
        subjects = [subject for subject in self.looks if any(subject in figures for _, figures in points)]
        categories = [value for value in self.values if any(p.get(self.along) == value for p, _ in points)] or [None]
        panel = 2.3 if self.numeric else max(1.1, len(categories) * (0.16 + 0.085 * len(subjects)))
        entries = max(1, int(WIDTH / (0.45 + 0.07 * max(map(len, subjects)))))  # of the legend, in a line
        legend = 0.1 + 0.19 * -(-len(subjects) // entries)
        down = -(-len(cells) // across)
        return Grid(cells, across, down, subjects, categories, entries, legend, down * (panel + 0.35) + 0.5 + legend)

    def draw(self, name, heading, points, divided, axes):
        with pyplot.rc_context({**STYLE, "svg.hashsalt": name + str(heading)}):
            grid = self.grid(points, divided, axes)
            figure, panels = pyplot.subplots(grid.down, grid.across, squeeze=False, sharex=True, sharey=True, figsize=(WIDTH, grid.height))
            figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - grid.legend / grid.height))
            low, high = self._extent(points)
            for number, (axis, cell) in enumerate(itertools.zip_longest(panels.flat, grid.cells)):
                if cell is None:
                    axis.set_visible(False)
                    continue
                inside = [(p, figures) for p, figures in points if all(p.get(key) == value for key, value in cell.items())]
                axis.set_title(", ".join(f"{'OTP' if key == 'otp' else key} {label(value)}" for key, value in cell.items()), loc="left")
                (self._lines if self.numeric else self._dots)(axis, inside, grid.subjects, grid.categories, low, high)
                axis.tick_params(labelbottom=number + grid.across >= len(grid.cells))
                if not inside:
                    axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", color="#888888")
            measured = self.unit + (", log scale" if self._logarithmic(low, high) else "")
            if self.numeric:
                along = self.along + (", log scale" if self.logarithmic_along else "")
                figure.supxlabel(f"{along}; {self.better} is better", fontsize=9)
                figure.supylabel(measured, fontsize=9)
            else:
                figure.supxlabel(f"{measured}; {self.better} is better", fontsize=9)
            handles = [pyplot.Line2D([], [], color=self.looks[s][0], marker=self.looks[s][1], markersize=5,
                                     linewidth=1.3 if self.numeric else 0) for s in grid.subjects]
            figure.legend(handles, grid.subjects, loc="upper left", ncol=grid.entries, borderaxespad=0.2)
            return svg(figure)

    def _logarithmic(self, low, high):
        return low > 0 and high > LOGARITHMIC_FROM * low

    def _extent(self, points):
        values = [self.factor * value for _, figures in points for rounds in figures.values() for value in rounds.values()]
        return min(values), max(values)

    def _scale(self, axis, which, low, high):
        if self._logarithmic(low, high):
            getattr(axis, f"set_{which}scale")("log")
            getattr(axis, f"{which}axis").set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
            getattr(axis, f"{which}axis").set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            getattr(axis, f"set_{which}lim")(low / 1.3, high * 1.3)
            axis.minorticks_off()
        else:
            getattr(axis, f"set_{which}lim")(min(0, low), high * 1.06 or 1)

    def _spread(self, rounds):
        of = statistics.spread(self.factor * figure for figure in rounds.values())
        return of.median, (of.median - of.low, of.high - of.median)

    def _lines(self, axis, inside, subjects, categories, low, high):
        for number, subject in enumerate(subjects):
            colour, marker = self.looks[subject]
            at = sorted((self._beside(p[self.along], number - (len(subjects) - 1) / 2), figures[subject])
                        for p, figures in inside if subject in figures)
            spreads = [self._spread(rounds) for _, rounds in at]
            if at:
                axis.errorbar([x for x, _ in at], [median for median, _ in spreads], yerr=bars(spreads), color=colour, marker=marker,
                              markersize=4.5, linewidth=2 if subject == statistics.OWN else 1.2, elinewidth=0.9, capsize=2)
        if self.logarithmic_along and min(self.values) > 0:
            axis.set_xscale("log", base=2)
        axis.set_xticks(self._apart(sorted(self.values)))
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: label(int(value) if value == int(value) else value)))
        axis.minorticks_off()
        self._scale(axis, "y", low, high)

    def _beside(self, value, steps):
        """The place of a mark a little beside its value, so that the bars of the subjects do not hide each other."""
        low, high = min(self.values), max(self.values)
        if self.logarithmic_along and low > 0:
            return value * (high / low) ** (0.008 * steps)
        return value + 0.008 * steps * (high - low)

    def _apart(self, values):
        """The values, without those so near to the one before that their labels would overlap."""
        at = [math.log(value) if self.logarithmic_along and values[0] > 0 else value for value in values]
        kept = [0]
        for number in range(1, len(values)):
            if at[number] - at[kept[-1]] >= 0.08 * (at[-1] - at[0]):
                kept.append(number)
        return [values[number] for number in kept]

    def _dots(self, axis, inside, subjects, categories, low, high):
        step = 0.8 / len(subjects)
        for number, subject in enumerate(subjects):
            colour, marker = self.looks[subject]
            of = [(p, figures[subject]) for p, figures in inside if subject in figures]
            spreads = [self._spread(rounds) for _, rounds in of]
            at = [categories.index(p.get(self.along)) + (number - (len(subjects) - 1) / 2) * step for p, _ in of]
            if of:
                axis.errorbar([median for median, _ in spreads], at, xerr=bars(spreads), color=colour, marker=marker, markersize=4.5,
                              linewidth=0, elinewidth=0.9)
        for boundary in range(1, len(categories)):
            axis.axhline(boundary - 0.5, color="#cccccc", linewidth=0.6)
        axis.set_yticks(range(len(categories)), [label(value) for value in categories])
        axis.set_ylim(len(categories) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.grid(False, axis="y")
        self._scale(axis, "x", low, high)


def bars(spreads):
    """The bars of these medians, as errorbar wants them: all lengths to one side, and all to the other."""
    return list(zip(*(bar for _, bar in spreads)))


def label(value):
    """Powers of two from 1024 on are written as such."""
    if isinstance(value, int) and value >= 1024 and value & (value - 1) == 0:
        return "2" + str(value.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "" if value is None else units.figure(value) if isinstance(value, float) else str(value)


def svg(figure):
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    pyplot.close(figure)
    return re.sub(r"^.*?(?=<svg )", "", text.getvalue(), flags=re.DOTALL)
