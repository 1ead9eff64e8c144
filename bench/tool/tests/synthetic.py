"""Results that are made up, for the tests."""

import random
from pathlib import Path

from tool import results


def run(directory, experiments, rounds=5, otps=("25",), noise=0.03, seed=1, speed=None, machine=1.0):
    """Writes and reads a run of experiments, given as {name: (keys of about, points, subjects)} with axes as points.

    Figures are 1e6 for ets and `speed` times as good for another subject, all with a lognormal noise by figure and by VM.
    """
    chance = random.Random(seed)
    path = Path(directory) / "results.jsonl"
    writer = results.Writer(path)
    writer.write("run", version="0.1", commit="abc", dirty=False, build="x", started="2026-01-01 00:00:00 +0000", size="quick",
                 rounds=rounds, seed=seed, only=None, experiments=sorted(experiments),
                 machine={"cpu": "a <cpu>", "cores": 2, "memory": 2**33, "kernel": "Linux", "load": 0},
                 otps=[{"path": otp, "release": otp, "erts": "1", "label": otp} for otp in otps])
    for name, (about, _, _) in experiments.items():
        writer.write("about", experiment=name,
                     **{"title": name, "unit": "operations/s", "better": "higher", "x": "n", "scale": "category", **about})
    for otp in otps:
        for name, (_, points, subjects) in experiments.items():
            for point in points:
                writer.write("point", otp=otp, experiment=name, point=point, flags="", seconds=1, subjects=subjects)
    for number in range(1, rounds + 1):
        for otp in otps:
            writer.write("vm", otp=otp, flags="", round=number, load=0.5)
            vm = chance.gauss(0, noise / 3)
            for name, (about, points, subjects) in experiments.items():
                for point in points:
                    key = {"otp": otp, "experiment": name, "point": point, "round": number}
                    for subject in subjects:
                        good = (speed or {}).get(subject, 1) * machine * 2.718281828 ** (vm + chance.gauss(0, noise))
                        figure = 1e6 * good if about.get("better") != "lower" else 1e6 / good
                        writer.write("sample", **key, subject=subject, row="", figure=figure, order=1)
                    writer.write("done", **key)
    writer.write("end", seconds=1)
    writer.close()
    return results.load(path)
