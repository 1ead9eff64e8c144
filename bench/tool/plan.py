"""What a run measures: the points that the experiments declare, in rounds, and in groups that share a VM in each round."""

import itertools
import subprocess
from dataclasses import dataclass

from . import Problem, otp as installations, protocol


@dataclass(frozen=True)
class Point:
    otp: str
    experiment: str
    point: str
    flags: str
    seconds: float
    subjects: tuple


@dataclass
class Declared:
    """All experiments of an installation; those in `failed` do not declare themselves, with the reason."""

    about: dict
    points: list
    failed: dict


def declared(otp, size, flags=""):
    """What the experiments declare in a VM with these flags, with which their points will be measured."""
    try:
        answer = subprocess.run(installations.command(otp, flags, "list", size), env=installations.environment(),
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120)
    except subprocess.TimeoutExpired:
        raise Problem(f"OTP {otp.label} takes over two minutes to list the experiments") from None
    if answer.returncode != 0:
        printed = (answer.stdout + answer.stderr).strip()
        # The emulator says on its first line what is wrong, and then how it is used.
        refused, usage, _ = printed.partition("\nUsage: beam")
        raise Problem(f"OTP {otp.label} refuses the flags `{flags}`: {refused}" if usage else
                      f"OTP {otp.label} does not list the experiments: {installations.tail(printed)}")
    result = Declared({}, [], {})
    for record in filter(None, map(protocol.parse, answer.stdout.splitlines())):
        name = record["experiment"]
        if record["record"] == "about":
            result.about.setdefault(name, {})[record["key"]] = record["value"]
        elif record["record"] == "point":
            result.points.append(Point(otp.label, name, record["point"], f"{flags} {record['flags']}".strip(), record["seconds"],
                                       tuple(record["subjects"])))
        elif record["record"] == "failed":
            result.failed[name] = record["text"]
    return result


def groups(points):
    """The points by installation and emulator flags, each in the order declared."""
    def group(point):
        return point.otp, point.flags

    order = {key: number for number, key in enumerate(dict.fromkeys(map(group, points)))}
    points = sorted(points, key=lambda point: order[group(point)])
    return [(key, list(members)) for key, members in itertools.groupby(points, group)]


def missing(points, done, round):
    return [point for point in points if (point.otp, point.experiment, point.point, round) not in done]
