"""The command bench/figures: the figures of the papers on ETS, in their order, from one run of the experiments that they need.

FIGURES says of each figure what it shows and which rows of an experiment are the same. Measuring is left to bench/run.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import ROOT, Problem, results, run, statistics

DESCRIPTION = """
Measures and draws the figures of the papers on ETS that can be measured here: by number of schedulers, one worker on each. It writes
results.jsonl, figures.html with all figures in the order of the papers, and each figure as a file (SVG) into a new directory.
"""
EPILOG = """
examples:
  bench/figures                              all figures, sized by this machine
  bench/figures --list                       what they are
  bench/figures --size papers                with the papers' ranges of keys and numbers of operations
  bench/figures --only adaptation-5 release  some of them
  bench/figures --draw DIRECTORY             draws them anew from a run, also from one that was resumed

If it is interrupted, bench/run --resume DIRECTORY measures the rest. Then use --draw DIRECTORY.
"""
SIZES = {"quick": "quick", "default": "default", "papers": "full"}
FLAGS = "+sbt tnnps"  # Scalability, section 5; RELEASE, section 3.3. Adaptation, section 2.3, has nnts.
TEXTS = {"scalability": "On the Scalability of the Erlang Term Storage (2013)",
         "adaptation": "More Scalable Ordered Set for ETS Using Adaptation (2014)",
         "release": "Robust Scalable Erlang Virtual Machine, RELEASE deliverable D2.4 (2015)",
         "tweak": "Ets read concurrency tweak, erlang-questions (2015)"}


@dataclass(frozen=True)
class Figure:
    text: str
    number: str
    section: str
    title: str
    experiment: str
    where: dict = field(default_factory=dict)  # axis -> the value, or a tuple of those meant
    subjects: dict = field(default_factory=dict)  # value of the axis `type` -> those shown; without: all
    lines: str = ""
    x: str = "schedulers"
    panels: str = ""
    speedup: bool = False  # drawn are the times of one scheduler over those of several

    @property
    def name(self):
        return f"{self.text}-{self.number}"


def lookups(share):
    return f"{share}% lookups"


OPTIONS = {kind: ["ets", "ets r", "ets w", "ets r w", "cats"] for kind in ("set", "ordered_set")}
SKIP_LIST = {"set": ["ets r w", "cats"], "ordered_set": ["ets r", "cats skip_list", "cats"]}
STD_HASH = {"set": ["ets", "ets r", "ets r w", "cats std_hash", "cats std_hash r", "cats"]}
CA_TREES = {"set": ["ets r w", "cats"], "ordered_set": ["ets r", "cats ca_avl", "cats ca_treap", "cats"]}
RANGES = {"set": ["ets r w", "cats"], "ordered_set": ["ets r", "cats ca_avl", "cats ca_treap", "cats"]}
SEQUENTIAL = {"set": ["ets", "cats"], "ordered_set": ["ets", "cats avl", "cats ca_avl", "cats ca_treap", "cats"]}
SHARES = ((90, "5.1.1"), (99, "5.1.2"), (100, "5.1.3"))


def each(text, numbers, section, title, experiment, shares, where=None, **drawn):
    """A figure for each share of lookups, or phase."""
    return [Figure(text, number, section, f"{title}, {phase}", experiment, {**(where or {}), "phase": phase}, **drawn)
            for number, share in zip(numbers, shares) for phase in [share if isinstance(share, str) else lookups(share)]]


ALONE = ["insert", "delete", 100]
MIXES = [50, 80, 99]
FIGURES = [
    *(Figure("scalability", str(4 + 2 * place + (kind == "ordered_set")), section, f"{kind} across releases of OTP, {lookups(share)}",
             "releases", {"type": kind, "phase": lookups(share)}, lines="otp")
      for place, (share, section) in enumerate(SHARES) for kind in ("set", "ordered_set")),
    *each("scalability", ["10", "11"], "5.2.1", "concurrency options", "concurrency_options", [90, 99], subjects=OPTIONS, lines="type"),
    *each("scalability", ["12"], "5.2.1", "concurrency options", "concurrency_options", [100], {"type": "ordered_set"}, subjects=OPTIONS),
    *each("scalability", ["13", "14", "15"], "5.2.2", "reader groups, set", "reader_groups", [90, 99, 100], {"type": "set"}, lines="groups"),
    *each("scalability", ["16", "17", "18"], "5.2.2", "reader groups, ordered_set", "reader_groups", [90, 99, 100], {"type": "ordered_set"},
          lines="groups"),
    *each("scalability", ["19"], "5.3", "static stack", "static_stack", [100]),
    *each("scalability", ["20", "21", "22"], "6.1", "bucket locks", "bucket_locks", [90, 99, 100], lines="locks"),
    *each("scalability", ["23", "24", "25"], "6.2.1", "skip list", "engines", [90, 99, 100], subjects=SKIP_LIST, lines="type"),
    *each("scalability", ["26", "27"], "6.2.2", "hash table of the standard library", "engines", [90, 100], {"type": "set"},
          subjects=STD_HASH),
    *each("adaptation", ["1a", "1b", "1c"], "2.3", "concurrency options", "concurrency_options", ALONE, subjects=OPTIONS, lines="type"),
    *each("adaptation", ["2a", "2b", "2c"], "2.3", "concurrency options", "concurrency_options", MIXES, subjects=OPTIONS, lines="type"),
    *each("adaptation", ["4a", "4b", "4c"], "5.1", "contention adapting trees", "engines", ALONE, subjects=CA_TREES, lines="type"),
    Figure("adaptation", "5", "5.1", "contention adapting trees, mixes", "engines", {"phase": tuple(map(lookups, [50, 80, 90, 99]))},
           subjects=CA_TREES, lines="type", panels="phase"),
    Figure("adaptation", "6", "5.2", "contention adapting trees by range of keys, 80% lookups", "key_range", subjects=RANGES,
           lines="type", panels="range"),
    Figure("adaptation", "7", "5.3", "one scheduler, by range of keys, 80% lookups", "key_range", {"schedulers": 1},
           subjects=SEQUENTIAL, lines="type", x="range"),
    *each("release", ["4a", "4b"], "3.3.1", "set across releases of OTP", "releases", [90, 99], {"type": "set"}, lines="otp"),
    *each("release", ["5a", "5b"], "3.3.2", "concurrency options, set", "concurrency_options", [90, 99], {"type": "set"}, subjects=OPTIONS),
    *each("release", ["6a", "6b"], "3.3.2", "reader groups, set", "reader_groups", [90, 99], {"type": "set"}, lines="groups"),
    *each("release", ["7a", "7b"], "3.4.1", "bucket locks", "bucket_locks", [90, 99], lines="locks"),
    Figure("release", "9", "3.4.2", "contention adapting trees, mixes", "engines", {"phase": tuple(map(lookups, [50, 80, 99]))},
           subjects=CA_TREES, lines="type", panels="phase"),
    *each("release", ["10a", "10b"], "3.4.3", "locks of a table", "locks", [0, 80]),
    *(Figure("release", f"{number}{part}", "6", f"{program}, {'speedup' if speedup else 'time'}", "programs", {"program": program},
             lines="otp", speedup=speedup)
      for number, parts, program in [(11, "ab", "mbrot"), (12, "ab", "moves"), (13, "ab", "pcmark"), (14, "ab", "ran"), (15, "ab", "orbit"),
                                     (15, "cd", "orbit with parallel workers")]
      for part, speedup in zip(parts, (False, True))),
    Figure("tweak", "1", "-", "readers only, by number of readers", "readers", x="workers", panels="type"),
]


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/figures", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="default", help="papers: ranges and operations as in the texts; default: default")
    parser.add_argument("--only", nargs="+", metavar="NAME", action="extend", help="only these figures, or those of these texts")
    parser.add_argument("--schedulers", metavar="N,N,...", help="default: the powers of two up to the number of processors, and that")
    parser.add_argument("--flags", default=FLAGS, help=f'of the emulator; default: "{FLAGS}", as in the papers')
    parser.add_argument("--otp", nargs="+", metavar="PATH", action="extend", help="as for bench/run: several releases")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: 3, as in the papers")
    parser.add_argument("--out", metavar="DIRECTORY", help="where the results go; default: bench/results/figures-DATE")
    parser.add_argument("--draw", metavar="DIRECTORY", help="measure nothing, and draw the figures of this run")
    parser.add_argument("--list", action="store_true", help="list the figures, and how long their experiments take")
    chosen = parser.parse_args(words)
    try:
        wanted = named(chosen.only)
        if chosen.draw:
            return draw(Path(chosen.draw), wanted)
        measured = ["--size", SIZES[chosen.size], "--rounds", str(chosen.rounds), f"--flags={chosen.flags}",
                    "--schedulers", chosen.schedulers or ",".join(map(str, schedulers(len(os.sched_getaffinity(0))))),
                    "--only", *sorted({figure.experiment for figure in wanted}), *(["--otp", *chosen.otp] if chosen.otp else [])]
        if chosen.list:
            for figure in wanted:
                print(f"{figure.name:<16}  section {figure.section:<6}  {figure.title} ({figure.experiment})")
            return run.main([*measured, "--list"])
        out = Path(chosen.out or ROOT / "bench/results" / time.strftime("figures-%Y-%m-%d-%H%M%S"))
        code = run.main([*measured, "--out", str(out)])
        return code if code > 1 else max(code, draw(out, wanted))
    except Problem as problem:
        print(f"bench/figures: {problem}", file=sys.stderr)
        return 2


def named(names):
    """The figures that are meant by their names, or by those of texts."""
    if unknown := set(names or []) - TEXTS.keys() - {figure.name for figure in FIGURES}:
        raise Problem(f"no such figure: {', '.join(sorted(unknown))}; see bench/figures --list")
    return [figure for figure in FIGURES if not names or figure.name in names or figure.text in names]


def schedulers(processors):
    return sorted({1 << bits for bits in range(processors.bit_length())} | {processors})


def rows_of(figure, measured):
    """The rows of a run that a figure shows, with the figures of its subjects, and the subjects."""
    rows = {row: figures for row, figures in measured.rows_of(figure.experiment).items()
            if all(dict(row.axes).get(axis) in (value if isinstance(value, tuple) else (value,)) for axis, value in figure.where.items())}
    if figure.subjects:
        rows = {row: {subject: figures[subject] for subject in figure.subjects.get(dict(row.axes).get("type", "set"), ()) if subject in figures}
                for row, figures in rows.items()}
    if figure.speedup:
        rows = speedups(rows)
    shown = {subject for figures in rows.values() for subject in figures}
    return {row: figures for row, figures in rows.items() if figures}, [each for each in measured.subjects(figure.experiment) if each in shown]


def speedups(rows):
    """The times with one scheduler over those with several, within each round."""
    def rest(row):
        return replace(row, point="", axes=tuple(pair for pair in row.axes if pair[0] != "schedulers"))

    alone = {rest(row): figures for row, figures in rows.items() if dict(row.axes)["schedulers"] == 1}
    return {row: {subject: quotients for subject in figures if subject in alone.get(rest(row), {})
                  if (quotients := statistics.ratios({"one": alone[rest(row)][subject], "many": figures[subject]}, "many", "one", "lower"))}
            for row, figures in rows.items()}


def picture(figure, measured):
    """The charts of a figure, or none if nothing of it was measured."""
    from . import charts

    rows, subjects = rows_of(figure, measured)
    if not rows:
        return []
    about = {**measured.about[figure.experiment], "x": figure.x, "scale": "log", "panels": figure.panels, "lines": figure.lines}
    # What all rows have in common is in the title.
    values = {}
    for axis, value in (pair for row in rows for pair in row.axes):
        values.setdefault(axis, set()).add(value)
    same = {axis for axis, members in values.items() if len(members) == 1 and axis != figure.x}
    rows = {replace(row, axes=tuple(pair for pair in row.axes if pair[0] not in same)): figures for row, figures in rows.items()}
    if figure.speedup:
        about.update(unit="times", better="higher")
    return [svg for _, svg in charts.drawn(figure.name, about, rows, subjects)]


def draw(directory, wanted):
    """Writes the figures and their page beside a result file."""
    import jinja2

    measured = results.load(directory)
    directory = measured.path.parent
    drawn = [(figure, picture(figure, measured)) for figure in wanted if figure.experiment in measured.about]
    for figure, pictures in drawn:
        for number, svg in enumerate(pictures, 1):
            (directory / f"{figure.name}{'' if number == 1 else f'-{number}'}.svg").write_text(svg, encoding="utf-8")
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    page = environment.get_template("figures.html").render(drawn=drawn, texts=TEXTS, run=measured.run, results=measured)
    (directory / "figures.html").write_text(page, encoding="utf-8")
    without = [figure.name for figure, pictures in drawn if not pictures]
    print(f"bench/figures: {directory / 'figures.html'}" + (f"; not measured: {', '.join(without)}" if without else ""), file=sys.stderr)
    return 1 if without else 0
