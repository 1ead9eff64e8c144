"""Debian's packages: unpacks them into a private directory, and recompiles their applications for cats."""

import os
import shutil
import subprocess

from . import CATS, UNPACKED, WORK, Problem

RECOMPILE = """
    Apps = [list_to_atom(App) || App <- init:get_plain_arguments()],
    case cats_recompile:apps(Apps, "{out}", [report, {{calls, {calls}}}]) of {{ok, _, _}} -> halt(0); {{error, _}} -> halt(1) end.
"""


def unpack(names):
    """Downloads the packages and unpacks them, but for those that are there. Nothing is installed, and no service starts."""
    debs = WORK / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    for name in names:
        done = debs / f"{name}.unpacked"
        if not done.exists():
            if not list(debs.glob(f"{name}_*.deb")):
                run(["apt-get", "download", "-qq", name], cwd=debs)
            for deb in debs.glob(f"{name}_*.deb"):
                run(["dpkg-deb", "-x", deb, UNPACKED])
            done.touch()


def recompile(server):
    """The directories of the server's applications that use cats. They are made again when cats or what is asked for has changed."""
    out = WORK / "recompiled" / server.name
    done = out / "done"
    asked = f"{server.applications} {server.calls}"
    if not done.exists() or done.read_text() != asked or done.stat().st_mtime < max(file.stat().st_mtime for file in CATS.glob("cats*.beam")):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        run(["erl", "-noinput", "-pa", CATS, "-eval", RECOMPILE.format(out=out, calls=server.calls), "-extra", *server.applications],
            env={**os.environ, "ERL_LIBS": server.libraries()})
        done.write_text(asked)
    return [CATS, *(out / name / "ebin" for name in server.applications)]


def run(command, **options):
    answer = subprocess.run(command, capture_output=True, text=True, **options)
    if answer.returncode != 0:
        raise Problem(f"{command[0]} failed: {(answer.stdout + answer.stderr).strip()[-2000:]}")
    if answer.stdout and command[0] == "erl":
        print(answer.stdout, end="")
