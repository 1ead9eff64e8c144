"""The command bench/many_cores: the model of many cores, checked and drawn."""

import argparse
import sys
from dataclasses import replace
from statistics import median

from . import Problem, model, table, units

DESCRIPTION = """
Prints what was measured, how far the model is from it with one thread and two, and what it predicts up to 64 threads
(docs/internals/many-cores.md). Measure first: cargo run --release -p cats-bench --example many_cores > COSTS
"""
ENGINES = ["hash", "linear_hash", "ca", "ca_avl", "avl"]
SHARES = [100, 99, 90, 80, 50, 0]  # lookups in a hundred operations
THREADS = [1, 2, 4, 8, 16, 32, 64]
LARGE = 1 << 21
OUTSIDE = 14.0  # nanoseconds of a call into native code and out (docs/performance/slow-cases.md)
WITHIN = 0.2
# The papers' machine: four chips of eight cores with two threads each. How much longer its transfers and its shared cores take is assumed.
CHIPS = {"chip": 16, "cores": 8, "far": 3.0, "shared": 1.5}
# The papers' tables: the engine of their design, and how many counters of the VM or the table all insertions and deletions change.
DESIGNS = {"set": ("linear_hash", 2), "CA tree": ("ca_avl", 1), "ordered_set": ("avl", 1)}


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/many_cores", description=DESCRIPTION)
    parser.add_argument("costs", metavar="COSTS", help="what the example many_cores has printed")
    parser.add_argument("--figure", metavar="FILE", help="also draw the predictions (SVG)")
    chosen = parser.parse_args(words)
    try:
        rounds = model.load(chosen.costs)
        if not rounds or not all(rounds[0].alone.get((engine, LARGE, "update")) for engine in ENGINES):
            raise Problem(f"{chosen.costs} does not have all engines")
    except (OSError, Problem) as problem:
        print(f"bench/many_cores: {problem}", file=sys.stderr)
        return 2
    costs = model.medians(rounds)
    print(lines_and_locks(costs), operations(costs), checked(check(rounds)), sep="\n\n", flush=True)
    curves = [curve for part in (engines(costs), designs(costs), ranges(costs)) for curve in part]
    print("", predicted(curves), sep="\n")
    if chosen.figure:
        with open(chosen.figure, "w") as file:
            file.write(draw(curves))
    return 0


def check(rounds):
    """Measured and predicted nanoseconds, and their quotient, by engine, range, lookups and threads: medians over the rounds. What is
    predicted for a round starts from what that round measured."""
    found = {}
    for each in rounds:
        for (engine, keys, share, threads), measured in each.measured.items():
            if all((engine, keys, kind) in each.alone for kind in ("lookup", "update")):
                moved = each.transfer.get((engine, keys, share), each.machine.transfer) if threads > 1 else each.machine.transfer
                tables = model.Table(each, engine, keys, share, threads, replace(each.machine, transfer=moved))
                predicted = threads / tables.throughput()
                found.setdefault((engine, keys, share, threads), []).append((measured, predicted, measured / predicted))
    return {key: tuple(map(median, zip(*of))) for key, of in found.items()}


def engines(costs):
    """Curves (row, panel, name, million operations a second by threads): our engines on one chip of cores like the measured ones."""
    return [("our engines, one chip", f"{share} % lookups", engine, curve(costs, engine, LARGE, share, costs.machine))
            for share in SHARES for engine in ENGINES]


def designs(costs):
    """The papers' tables on the papers' machine."""
    machine = replace(costs.machine, **CHIPS)
    return [("the papers' designs, four chips", f"{share} % lookups", name, curve(costs, engine, LARGE, share, machine, counters=counters))
            for share in SHARES for name, (engine, counters) in DESIGNS.items()]


def ranges(costs):
    """Our engines by range of the keys, as in figure 6 of *Adaptation*."""
    return [("our engines, one chip, 80 % lookups", f"range {keys}", engine, curve(costs, engine, keys, 80, costs.machine))
            for keys in sorted({keys for _, keys, _ in costs.alone}) if keys != LARGE for engine in ENGINES]


def curve(costs, engine, keys, share, machine, counters=0):
    return {threads: 1000 * model.Table(costs, engine, keys, share, threads, machine, OUTSIDE, counters).throughput()
            for threads in THREADS}


# ---------------------------------------------------------------------------------------------------------------------------------


def lines_and_locks(costs):
    def cell(key):
        return units.figure(costs.cost[key]) if key in costs.cost else ""

    text = [[name, cell((name, 1)), cell((name, 2))] for name in dict.fromkeys(name for name, _ in costs.cost)]
    text.append(["transfer of a line", "", units.figure(costs.machine.transfer)])
    return table.table(["ns", "1 thread", "2 threads"], text)


def operations(costs):
    return table.table(["ns alone", "keys", "lookup", "insert or delete"],
                       [[engine, str(keys)] + [units.figure(costs.alone[engine, keys, kind]) for kind in ("lookup", "update")]
                        for engine in ENGINES for keys in sorted({keys for name, keys, _ in costs.alone if name == engine})])


def checked(found):
    """Measured over predicted time. Bold: not within a fifth."""
    def cell(key):
        if key not in found:
            return ""
        quotient = found[key][2]
        return f"{quotient:.2f}" if abs(quotient - 1) <= WITHIN else f"**{quotient:.2f}**"

    rows = dict.fromkeys((engine, keys, threads) for engine, keys, _, threads in found)
    text = table.table(["engine", "keys", "threads"] + [f"{share} %" for share in SHARES],
                       [[engine, str(keys), str(threads)] + [cell((engine, keys, share, threads)) for share in SHARES]
                        for engine, keys, threads in sorted(rows, key=lambda row: (ENGINES.index(row[0]), *row[1:]))])
    for threads in (1, 2):
        of = [abs(quotient - 1) <= WITHIN for key, (_, _, quotient) in found.items() if key[3] == threads]
        text += f"\n\nWithin a fifth with {units.count(threads, 'thread')}: {sum(of)} of {len(of)}."
    return text


def predicted(curves):
    return table.table(["machine", "work", "table"] + [units.count(threads, "thread") for threads in THREADS] + ["bends at"],
                       [[row, panel, name] + [units.figure(rate) for rate in by_threads.values()] + [str(bend(by_threads) or "")]
                        for row, panel, name, by_threads in curves])


def bend(by_threads):
    """The first number of threads of which twice as many bring less than 1.4 times as much."""
    return next((few for few, many in zip(THREADS, THREADS[1:]) if by_threads[many] < 1.4 * by_threads[few]), None)


def draw(curves):
    from matplotlib import pyplot, ticker

    from . import charts

    looks = charts.appearance([*ENGINES, *DESIGNS])
    rows = list(dict.fromkeys(row for row, *_ in curves))
    with pyplot.rc_context({**charts.STYLE, "svg.hashsalt": "many cores", "font.size": 8}):
        figure, panels = pyplot.subplots(len(rows), len(SHARES), figsize=(14, 2.8 * len(rows)), sharex=True,
                                         sharey="row", layout="constrained")
        for row, line in zip(rows, panels):
            names = list(dict.fromkeys(panel for of, panel, *_ in curves if of == row))
            for axis, panel in zip(line, names + [None] * len(SHARES)):
                if panel is None:
                    axis.set_visible(False)
                    continue
                axis.set_title(panel, loc="left")
                for of, where, name, by_threads in curves:
                    if (of, where) == (row, panel):
                        axis.plot(list(by_threads), list(by_threads.values()), color=looks[name][0], marker=looks[name][1], markersize=3.5,
                                  linewidth=1.2, label=name)
                axis.set_xscale("log", base=2)
                axis.set_xticks(THREADS, map(str, THREADS))
                axis.set_yscale("log")
                axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
                axis.yaxis.set_major_formatter("{x:g}")
                axis.minorticks_off()
                axis.tick_params(labelbottom=True)
            line[0].set_ylabel(row.replace(", ", ",\n") + "\nmillion operations/s, log")
            line[0].legend(fontsize=7)
        figure.supxlabel("threads, log scale; predicted", fontsize=9)
        return charts.svg(figure)
