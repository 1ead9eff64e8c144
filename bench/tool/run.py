"""The command bench/run."""

import argparse
import itertools
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from . import EBIN, ROOT, Problem, machine, otp, plan, progress, results, runner

DESCRIPTION = """
Measures experiments on ets and cats. It writes results.jsonl (all that was measured), report.html and a figure (SVG) for each experiment
into a new directory. Each round measures every point once, in new VMs.
"""
EPILOG = """
examples:
  bench/run                                             all experiments, on the erl of $ERL or the PATH
  bench/run --list                                      the names of all, and how long they take
  bench/run --size quick --only ets_bench values        two of them, smaller
  bench/run --otp /usr --otp ~/otp-29                   on two releases
  bench/run --only engines --schedulers 1,2,4,8,16      by number of schedulers, one worker on each
  bench/run --only readers --processes 4,64,1024        by number of workers
  bench/run --own my_bench.erl                          an experiment of your own (see bench/vm/bench_experiment.erl)
  bench/run --resume bench/results/DIRECTORY            the rest of an interrupted run

Exit code: 0; 1 if something could not be measured; 2 if nothing could; 130 if interrupted.
"""
ROUNDS = {"quick": 3, "default": 4, "full": 5}


def arguments(words):
    parser = argparse.ArgumentParser(prog="bench/run", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=ROUNDS, default="default", help="how much is measured in an experiment (default)")
    parser.add_argument("--only", nargs="+", metavar="NAME", action="extend", help="only these experiments")
    parser.add_argument("--otp", nargs="+", metavar="PATH", action="extend",
                        help="an installation of Erlang/OTP: its directory or its erl; can be given several times")
    parser.add_argument("--rounds", type=positive, metavar="N", help="default: 4; with size quick 3, full 5")
    sweep(parser)
    parser.add_argument("--own", metavar="FILE", help="a module with the behaviour bench_experiment; only that one, without --only")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of keys and operations; default: 1")
    parser.add_argument("--out", metavar="DIRECTORY", help="where the results go; default: bench/results/DATE-COMMIT")
    parser.add_argument("--resume", metavar="DIRECTORY", help="go on with this interrupted run, which knows its other arguments")
    parser.add_argument("--list", action="store_true", help="list the experiments and their expected times")
    chosen = parser.parse_args(words)
    if chosen.resume and any([chosen.only, chosen.otp, chosen.rounds, chosen.out, chosen.list, chosen.schedulers, chosen.processes,
                              chosen.flags, chosen.own]):
        parser.error("--resume goes on with the arguments of the interrupted run and takes no others")
    return chosen


def sweep(parser):
    """Adds the options that say on how many schedulers, with how many workers and with which flags all points are measured."""
    parser.add_argument("--schedulers", type=numbers, metavar="N,N,...", help="measure each point with these numbers of schedulers")
    parser.add_argument("--processes", type=numbers, metavar="N,N,...", help="with so many workers; default: as the experiment "
                        "says; with --schedulers mostly one on each")
    parser.add_argument("--flags", default="", metavar="FLAGS", help='of the emulator, for all points, as in --flags "+sbt db"')


def sweeps(chosen):
    """The flags of the VMs in which the experiments declare their points."""
    every = chosen.flags + (f" -processes {' '.join(map(str, chosen.processes))}" if chosen.processes else "")
    if not chosen.schedulers:
        return [every.strip()]
    return [f"{every} +S {number}:{number} -sweep {chosen.schedulers[-1]}".strip() for number in chosen.schedulers]


def swept(chosen):
    """What was said of schedulers, workers and flags, as words of a command."""
    return shlex.join(word for name in ("schedulers", "processes", "flags", "own") if (value := getattr(chosen, name))
                      for word in (f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else value))


def numbers(text):
    return sorted({positive(each) for each in text.split(",")})


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(words=None, patience=runner.PATIENCE):
    chosen = arguments(words)
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        if not (EBIN / "cats.beam").exists():
            raise Problem("cats is not built: run `make build` first")
        if chosen.list:
            return show(chosen)
        return resume(chosen, patience) if chosen.resume else begin(chosen, patience)
    except Problem as problem:
        print(f"bench/run: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbench/run: interrupted", file=sys.stderr)
        return 130


def only(chosen):
    return chosen.only or chosen.own and [otp.experiment(chosen.own)]


def installations(paths, own=None):
    """The installations that can be measured; says what is wrong with the others."""
    found, problems = otp.find(paths or [os.environ.get("ERL") or "erl"])
    for each in list(found):
        try:
            otp.compile_for(each, own)
        except Problem as problem:
            found.remove(each)
            problems.append((each.erl, str(problem)))
    for _, message in problems:
        print(f"bench/run: {message}{'; the others go on' if found else ''}", file=sys.stderr)
    if not found:
        raise Problem("no Erlang/OTP to measure on")
    return found, problems


def declared(otps, size, only, flags=("",)):
    """The chosen experiments of all installations with each of these flags, and what is wrong with some."""
    about, points, problems = {}, [], []
    for each, of_vm in itertools.product(otps, flags):
        offer = plan.declared(each, size, of_vm)
        unknown = set(only or []) - set(offer.about) - set(offer.failed)
        if unknown:
            raise Problem(f"no such experiment: {', '.join(sorted(unknown))}; there are {', '.join(sorted(offer.about))}")
        for name, text in offer.failed.items():
            if not only or name in only:
                problems.append({"otp": each.label, "experiment": name, "text": text})
                print(f"bench/run: experiment {name} on OTP {each.label}: {text}; the others go on", file=sys.stderr)
        about.update({name: keys for name, keys in offer.about.items() if not only or name in only})
        points += [point for point in offer.points if point.experiment in about]
    return about, points, problems


def show(chosen):
    otps, _ = installations(chosen.otp, chosen.own)
    rounds = chosen.rounds or ROUNDS[chosen.size]
    about, points, _ = declared(otps, chosen.size, only(chosen), sweeps(chosen))
    width = max(map(len, about))
    for name in sorted(about):
        mine = [point for point in points if point.experiment == name]
        seconds = rounds * sum(point.seconds for point in mine)
        print(f"{name:<{width}}  {progress.duration(seconds):>7}  {len(mine):4} points  {about[name]['title']}")
    print(f"{'all':<{width}}  {progress.duration(rounds * sum(point.seconds for point in points)):>7}  {len(points):4} points"
          f"  at size {chosen.size}, {rounds} rounds, OTP {', '.join(each.label for each in otps)}")
    return 0


def begin(chosen, patience):
    otps, problems = installations(chosen.otp, chosen.own)
    about, points, failed = declared(otps, chosen.size, only(chosen), sweeps(chosen))
    if not points:
        raise Problem("there is nothing to measure")
    version = machine.cats()
    name = time.strftime("%Y-%m-%d-%H%M%S-") + version["commit"] + ("-dirty" if version["dirty"] else "")
    directory = Path(chosen.out or ROOT / "bench/results" / name)
    file = directory / "results.jsonl"
    if file.exists():
        raise Problem(f"{file} exists already: choose another --out, or go on with --resume {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writer = results.Writer(file)
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}") from None
    rounds = chosen.rounds or ROUNDS[chosen.size]
    writer.write("run", **version, started=time.strftime("%Y-%m-%d %H:%M:%S %z"), machine=machine.machine(), size=chosen.size,
                 rounds=rounds, seed=chosen.seed, only=sorted(about) if only(chosen) else None, experiments=sorted(about),
                 own=chosen.own and str(Path(chosen.own).absolute()), sweep=swept(chosen),
                 otps=[{"path": each.erl, "release": each.release, "erts": each.erts, "label": each.label} for each in otps])
    for name in sorted(about):
        writer.write("about", experiment=name, **about[name])
    for point in points:
        writer.write("point", **vars(point))
    for path, text in problems:
        writer.write("error", otp=path, experiment="-", point="-", subject="-", round=0, text=text)
    for fields in failed:
        writer.write("error", **fields, point="-", subject="-", round=0)
    return measure(writer, otps, points, set(), chosen.size, rounds, chosen.seed, patience, len(problems) + len(failed))


def resume(chosen, patience):
    before = results.load(chosen.resume)
    recorded = before.run
    if machine.build() != recorded["build"]:
        raise Problem(f"{before.path} was measured with another build of cats ({recorded['commit']}): begin a new run")
    labels = {each["path"]: each["label"] for each in recorded["otps"]}
    found, problems = installations(list(labels), recorded.get("own"))
    otps = [otp.Otp(each.erl, each.release, each.erts, labels[each.erl]) for each in found]
    points = [plan.Point(point["otp"], point["experiment"], point["point"], point["flags"], point["seconds"],
                         tuple(point["subjects"])) for point in before.points.values()
              if point["otp"] in [each.label for each in otps]]
    results.cut_off(before.path)
    return measure(results.Writer(before.path), otps, points, before.done, recorded["size"], recorded["rounds"],
                   recorded["seed"], patience, len(problems))


def measure(writer, otps, points, done, size, rounds, seed, patience, problems):
    undone = {round: plan.missing(points, done, round) for round in range(1, rounds + 1)}
    shown = progress.Progress(sum(point.seconds for members in undone.values() for point in members))
    print(f"bench/run: {sum(map(len, undone.values()))} measurements, about {progress.duration(shown.expected)}, to {writer.path}",
          file=sys.stderr)
    measuring = runner.Runner(otps, writer, shown, size, seed, patience)
    begin = time.monotonic()
    try:
        for number, members in undone.items():
            measuring.round(number, rounds, members)
        writer.write("end", seconds=None if done else round(time.monotonic() - begin))  # of a run that was not interrupted
    except KeyboardInterrupt:
        left = sum(len(plan.missing(points, results.load(writer.path).done, round)) for round in undone)
        print(f"\nbench/run: interrupted with {left} of {rounds * len(points)} measurements left. The others are kept.\n"
              f"Go on with: bench/run --resume {writer.path.parent}", file=sys.stderr)
        return 130
    finally:
        writer.close()
    errors = problems + measuring.errors
    shown.say(f"bench/run: measured in {progress.duration(time.monotonic() - begin)}, "
              + (f"with {errors} errors, which the report lists" if errors else "without errors"))
    return max(report(writer.path), 1 if errors else 0)


def report(path):
    try:
        from . import page
    except ImportError as error:
        print(f"bench/run: no report, as Python lacks {error.name}; install it (`scripts/deps bench`), then "
              f"bench/report {path.parent}", file=sys.stderr)
        return 1
    print(f"bench/run: {page.write(results.load(path))}", file=sys.stderr)
    return 0
