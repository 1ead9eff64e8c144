"""Erlang/OTP installations: finds the erl of one, asks for its release, compiles the measured side for it, names its commands."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import EBIN, ROOT, Problem

SOURCES = ["bench/vm", "bench/programs", "bench/experiments"]
PROBE = 'io:format("~s ~s~n", [erlang:system_info(otp_release), erlang:system_info(version)]), halt(0).'
COMPILE = """
    Files = [filename:rootname(File) || Directory <- {sources}, File <- filelib:wildcard(Directory ++ "/*.erl")],
    Includes = [{{i, Directory}} || Directory <- {sources}],
    halt(case make:files({files}, [report_errors, {{outdir, "{out}"}} | Includes]) of up_to_date -> 0; _ -> 1 end).
"""


@dataclass(frozen=True)
class Otp:
    """An installation: `label` names it in results, and is the release unless two of the same release are measured."""

    erl: str
    release: str
    erts: str
    label: str

    @property
    def beams(self):
        return ROOT / "_build/bench" / self.release

    @property
    def own(self):
        """Where the user's own experiment is compiled to."""
        return self.beams / "own"


def find(paths):
    """The installations at these paths, and the problems with the others, as (path, message)."""
    found, problems = [], []
    for path in paths:
        try:
            erl = executable(path)
            release, erts = probe(erl)
            if erl not in [other.erl for other in found]:
                taken = any(other.release == release for other in found)
                found.append(Otp(erl, release, erts, f"{release} ({path})" if taken else release))
        except Problem as problem:
            problems.append((path, str(problem)))
    return found, problems


def executable(path):
    """The erl that is meant by the directory of an installation, by an erl itself, or by a command's name."""
    if os.sep not in path and (command := shutil.which(path)):
        return command
    candidates = [Path(path), *(Path(path) / below for below in ("bin/erl", "lib/erlang/bin/erl", "erl"))]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate.absolute())
    if not Path(path).exists():
        raise Problem(f"{path}: no such file or directory")
    raise Problem(f"{path}: neither an erl nor the directory of an Erlang/OTP installation (no bin/erl in it)")


def probe(erl):
    try:
        answer = subprocess.run([erl, "-noinput", "-eval", PROBE], env=environment(), stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"{erl} does not run: {error}") from None
    words = answer.stdout.split()
    if answer.returncode != 0 or len(words) != 2:
        raise Problem(f"{erl} does not run: {tail(answer.stdout + answer.stderr)}")
    return words


def compile_for(otp, own=None):
    """Compiles what has changed of the Erlang part of the bench, and an experiment of the user's own."""
    compile_files(otp, "Files", otp.beams)
    shutil.rmtree(otp.own, ignore_errors=True)
    if own:
        if not Path(own).is_file():
            raise Problem(f"{own}: no such file")
        if (ROOT / f"bench/experiments/bench_{experiment(own)}.erl").exists():
            raise Problem(f"{own}: the bench has an experiment {experiment(own)} already, so name yours otherwise")
        compile_files(otp, f'["{Path(own).absolute().with_suffix("")}"]', otp.own)


def experiment(own):
    """What the experiment in a file is called."""
    return Path(own).stem.removeprefix("bench_")


def compile_files(otp, files, out):
    out.mkdir(parents=True, exist_ok=True)
    sources = "[" + ", ".join(f'"{directory}"' for directory in SOURCES) + "]"
    command = COMPILE.format(sources=sources, files=files, out=out)
    answer = subprocess.run([otp.erl, "-noinput", "-pa", str(EBIN), str(otp.beams), "-eval", command], cwd=ROOT,
                            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if answer.returncode != 0:
        raise Problem(f"{'the bench' if out == otp.beams else out.name} does not compile on OTP {otp.release}: {tail(answer.stdout + answer.stderr)}")


def command(otp, flags, *arguments):
    """The command of a VM that calls bench_vm:main/1."""
    return [otp.erl, *flags.split(), "-noinput", "-pa", str(EBIN), str(otp.beams), str(otp.own), "-run", "bench_vm", "main", *arguments]


def environment():
    """No flags but those of the experiment, and no crash dumps."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS")}
    return {**kept, "ERL_CRASH_DUMP_BYTES": "0"}


def tail(text, characters=2000):
    return text.strip()[-characters:] or "it printed nothing"
