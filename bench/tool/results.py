"""The result file: JSON lines, each written and flushed at once, so that an interrupted run loses nothing. And its rows.

The first record is `run`, with all that is needed to repeat it. Then come `about` (an experiment), `point`, `vm` (one that was started),
`sample`, `error`, `done` (a point in a round), and `end`.

In a row the figures of several subjects are comparable. A row is an OTP, an experiment, and a value for each of its axes. A later record
replaces an earlier one of the same row, subject and round. It is from a run that was resumed.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from . import Problem, protocol
from .statistics import is_ets


class Writer:
    def __init__(self, path):
        self.path = path
        self.file = open(path, "a", encoding="utf-8")

    def write(self, record, **fields):
        self.file.write(json.dumps({"record": record, **fields}, ensure_ascii=False) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


@dataclass(frozen=True)
class Row:
    experiment: str
    otp: str
    axes: tuple
    point: str

    def __str__(self):
        return ", ".join(f"{key} {value}" for key, value in self.axes)


@dataclass
class Results:
    path: Path
    run: dict
    about: dict = field(default_factory=dict)  # experiment -> its keys
    points: dict = field(default_factory=dict)  # (otp, experiment, point) -> record
    rows: dict = field(default_factory=dict)  # Row -> {subject: {round: figure}}
    errors: list = field(default_factory=list)
    done: set = field(default_factory=set)  # (otp, experiment, point, round)
    vms: list = field(default_factory=list)
    end: dict = None

    @property
    def otps(self):
        return [otp["label"] for otp in self.run["otps"]]

    def rows_of(self, experiment):
        return {row: figures for row, figures in self.rows.items() if row.experiment == experiment}

    def subjects(self, experiment):
        """Those that have figures: ets, then with options, then the others, in the order declared."""
        declared = [subject for (_, name, _), point in self.points.items() if name == experiment for subject in point["subjects"]]
        measured = {subject for figures in self.rows_of(experiment).values() for subject in figures}
        return sorted((subject for subject in dict.fromkeys(declared) if subject in measured), key=lambda subject: (not is_ets(subject), subject != "ets"))

    def better(self, experiment):
        return self.about[experiment]["better"]


def locate(path):
    """The file of results that a path means: itself, or the one in the directory of a run."""
    path = Path(path)
    return path / "results.jsonl" if path.is_dir() else path


def load(path):
    """Reads a result file. A last line that an interruption cut off does not count."""
    path = locate(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    results = None
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break
        try:
            record = json.loads(line)
            if results is None:
                results = Results(path, record if record["record"] == "run" else {}["run"])
            else:
                add(results, record)
        except (ValueError, KeyError, TypeError):
            raise Problem(f"{path}: line {number} is not a record of a result file") from None
    if results is None:
        raise Problem(f"{path}: no result file, as it has no record of a run")
    declared = {key: number for number, key in enumerate(results.points)}
    results.rows = dict(sorted(results.rows.items(), key=lambda item: declared[item[0].otp, item[0].experiment, item[0].point]))
    results.errors = [error for error in results.errors if error.get("superseded_by") not in results.done]
    return results


def add(results, record):
    kind = record["record"]
    key = (record.get("otp"), record.get("experiment"), record.get("point"))
    if kind == "about":
        results.about[record["experiment"]] = record
    elif kind == "point":
        results.points[key] = record
    elif kind == "sample":
        row = Row(record["experiment"], record["otp"], protocol.axes(record["point"]) + protocol.axes(record["row"]),
                  record["point"])
        results.rows.setdefault(row, {}).setdefault(record["subject"], {})[record["round"]] = record["figure"]
    elif kind == "error":
        # A VM that was lost leaves its point undone; once that is done after all, nothing is missing.
        lost = record.get("lost") and (*key, record["round"])
        results.errors.append({**record, "superseded_by": lost})
    elif kind == "done":
        results.done.add((*key, record["round"]))
    elif kind == "vm":
        results.vms.append(record)
    elif kind == "end":
        results.end = record


def cut_off(path):
    """Removes a last line that an interruption cut off, so that a file can be written on."""
    with open(path, "rb+") as file:
        text = file.read()
        os.truncate(path, text.rfind(b"\n") + 1)
