"""The command examples/servers/run."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys

from . import CATS, HERE, WORK, Problem, packages
from .servers import Ejabberd, RabbitMq

DESCRIPTION = """
Runs a known server on ets and on cats at once, loads them in turns with 1 and with 100 clients, and compares them.
QUICK=1 in the environment makes it short. Exit code: 0; 1 if something failed.
"""
KINDS = ("ets", "cats")
CLIENTS = (1, 100)
COLUMNS = {"rate": "messages/s", "p50": "50 % ms", "p99": "99 % ms", "longest": "longest ms", "processor": "processor µs/message",
           "memory": "memory MiB"}


def main(words=None):
    servers = {each.name: each for each in (RabbitMq, Ejabberd)}
    parser = argparse.ArgumentParser(prog="examples/servers/run", description=DESCRIPTION)
    parser.add_argument("server", choices=servers)
    parser.add_argument("--advise", action="store_true", help="instead, print what cats_advise says of the server on ets under load")
    options = parser.parse_args(words)
    server = servers[options.server]
    try:
        if not (CATS / "cats.beam").exists():
            raise Problem("cats is not built: run `make build` first")
        (advise if options.advise else compare)(server, quick=bool(os.environ.get("QUICK")))
    except Problem as problem:
        print(f"examples/servers/run: {problem}", file=sys.stderr)
        return 1
    return 0


def compare(server, quick):
    rounds, seconds = (1, 5) if quick else (4, 15)
    packages.unpack(RabbitMq.packages + server.packages)  # the clients use RabbitMQ's library
    paths = {"ets": [], "cats": packages.recompile(server)}
    compile_load()
    running = {kind: server(kind, number, paths[kind]) for number, kind in enumerate(KINDS)}
    try:
        for each in running.values():
            each.start()
            done = each.check(lambda mode: client(mode, each), lambda mode: staying_client(mode, each))
            print(f"{each.node}: {', '.join(done)}: as expected. Tables: {each.tables()}")
        result = {clients: measure(running, clients, rounds, seconds) for clients in CLIENTS}
        for each in running.values():
            each.stop()
    finally:
        for each in running.values():
            each.kill()
    print(table(server.name, result))
    file = WORK / f"{server.name}.json"
    file.write_text(json.dumps({"server": server.name, "seconds": seconds, "rounds": rounds, "clients": result}, indent=1) + "\n")
    print(f"All rounds: {file}")


def advise(server, quick):
    """The advice on a server on ets, while the most clients load it."""
    seconds = 10 if quick else 60
    packages.unpack(RabbitMq.packages + server.packages)
    compile_load()
    running = server("ets", 0, [])
    try:
        running.start()
        with staying_client(server.name, running, str(CLIENTS[-1]), "3600"):
            print(running.advise(seconds))
        print(running.measure())
    finally:
        running.kill()


def measure(running, clients, rounds, seconds):
    """The figures of all rounds. Both kinds take turns, and change their order from round to round."""
    figures = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            figures[kind].append(load(running[kind], clients, seconds))
    return figures


def load(server, clients, seconds):
    before = server.processor_time()
    words = client(server.name, server, str(clients), str(seconds)).splitlines()[-1].split()
    count, _, *latencies = map(int, words)
    return {"rate": count / seconds, **dict(zip(("p50", "p99", "longest"), (each / 1000 for each in latencies))),
            "processor": (server.processor_time() - before) / count * 1e6, "memory": server.memory() / 2**20}


def compile_load():
    packages.run(["erlc", "-o", WORK, HERE / "load.erl"], env={**os.environ, "ERL_LIBS": RabbitMq.libraries()})


def client_process(mode, server, *arguments):
    """The clients: they are a VM of their own."""
    return subprocess.Popen(["erl", "-noinput", "-pa", WORK, "-run", "load", "main", mode, str(server.port), *arguments],
                            env={**os.environ, "ERL_LIBS": RabbitMq.libraries(), "ERL_CRASH_DUMP_BYTES": "0"},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def client(mode, server, *arguments):
    """What the clients print."""
    process = client_process(mode, server, *arguments)
    try:
        printed, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    if process.returncode != 0:
        raise Problem(f"the clients of {server.node} failed: {printed.strip()[-2000:]}")
    return printed


@contextlib.contextmanager
def staying_client(mode, server, *arguments):
    """Clients that are ready, and go on to the end of the context."""
    process = client_process(mode, server, *arguments)
    try:
        if process.stdout.readline().strip() != "ready":
            raise Problem(f"the client {mode} of {server.node} failed")
        yield
    finally:
        process.kill()
        process.wait()


def table(name, result):
    lines = [f"| {name} | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for clients, figures in result.items():
        for kind in KINDS:
            medians = [statistics.median(each[column] for each in figures[kind]) for column in COLUMNS]
            lines.append(f"| {kind}, {clients} | " + " | ".join(f"{median:.4g}" for median in medians) + " |")
    return "\n".join(lines)
