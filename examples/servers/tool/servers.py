"""The servers. Each runs by its own start script, in a private directory, and listens on 127.0.0.1 only."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import CATS, HERE, UNPACKED, WORK, Problem

LIBRARIES = UNPACKED / "usr/lib"
RABBITMQ = LIBRARIES / "rabbitmq/lib/rabbitmq_server-3.10.8"
CLOCK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server on ets or on cats: `paths` are the directories of beams that come before its own.

    Each server tells its `packages`, the `applications` that use cats then, and the functions in them that take a module (`calls`).
    """

    def __init__(self, kind, number, paths):
        self.kind, self.port, self.distribution = kind, self.first_port + number, self.first_port + 10000 + number
        self.node = f"{self.name}-{kind}@localhost"
        self.home = WORK / "data" / f"{self.name}-{kind}"
        self.flags = " ".join(f"-pa {path}" for path in paths)
        self.process = None
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.configure()

    def environment(self):
        return {**os.environ, "HOME": str(self.home), "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_CRASH_DUMP_BYTES": "0"}

    def start(self, patience=120):
        with open(self.home / "printed", "a") as printed:
            self.process = subprocess.Popen(self.command(), env=self.environment(), stdin=subprocess.DEVNULL, stdout=printed,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + patience
        while not (self.listens() and self.is_ready()):
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise Problem(f"{self.node} did not start: see {self.home}/printed and {self.home}/log")
            time.sleep(0.5)

    def is_ready(self):
        """A server that listens may still be starting."""
        try:
            self.control(*self.ready)
        except Problem:
            return False
        return True

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, patience=60):
        self.control("stop")
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Problem(f"{self.node} did not stop") from None

    def kill(self):
        """Ends what is left of it."""
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def control(self, *words):
        """What the server's own command prints."""
        answer = subprocess.run([*self.controller(), *words], env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=120)
        if answer.returncode != 0:
            raise Problem(f"{' '.join(words)} failed on {self.node}: {(answer.stdout + answer.stderr).strip()[-2000:]}")
        return answer.stdout

    def tables(self):
        """How many tables its VM has in ets and in cats."""
        modules = "[ets, cats]" if self.kind == "cats" else "[ets]"
        return dict(zip(("ets", "cats"), json.loads(
            self.ask(f"io:format(\"~w~n\", [[length(rpc:call('{self.node}', Module, all, [])) || Module <- {modules}]])"))))

    def advise(self, seconds):
        """What cats_advise says of its tables. It is kept for `measure`."""
        return self.ask(f"file:write_file(\"{self.home}/advice\", term_to_binary(cats_advise:node('{self.node}', {seconds})))")

    def measure(self):
        """What cats_advise measures of that."""
        return self.ask(f"{{ok, Seen}} = file:read_file(\"{self.home}/advice\"), Advice = cats_advise:measure(binary_to_term(Seen)), "
                        f"file:write_file(\"{WORK}/{self.name}-advice.html\", "
                        "unicode:characters_to_binary(cats_advise:page(Advice)))")

    def ask(self, expression):
        """What an expression prints in another node, which has cats."""
        answer = subprocess.run(["erl", "-noinput", "-hidden", "-pa", CATS, "-sname", f"probe-{self.kind}@localhost", *self.probe_flags(),
                                 "-eval", f"{expression}, halt()."], env=self.environment(), capture_output=True, text=True, timeout=600)
        if answer.returncode != 0:
            raise Problem(f"{self.node} cannot be asked: {(answer.stdout + answer.stderr).strip()[-1000:]}")
        return answer.stdout

    def probe_flags(self):
        return []

    def vm(self):
        """The process of the VM: the beam of the server's session."""
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                name, fields = re.search(r"\((.*)\) (.*)", (directory / "stat").read_text()).groups()
            except (OSError, AttributeError):
                continue
            if name == "beam.smp" and int(fields.split()[3]) == self.process.pid:
                return directory
        raise Problem(f"{self.node} has ended: see {self.home}/printed")

    def processor_time(self):
        """Seconds of processor time so far."""
        fields = (self.vm() / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK

    def memory(self):
        """Bytes of resident memory."""
        return int(re.search(r"VmRSS:\s*(\d+)", (self.vm() / "status").read_text())[1]) * 1024


class RabbitMq(Server):
    name = "rabbitmq"
    first_port = 15670
    packages = ["rabbitmq-server", "erlang-eldap", "erlang-os-mon"]
    applications = ["mnesia", "rabbit", "rabbit_common", "rabbitmq_prelaunch", "ra", "aten", "ranch", "seshat", "osiris",
                    "sysmon_handler", "gen_batch_server", "credentials_obfuscation"]
    calls = "[{rabbit_misc, rpc_call, 4, 2}, {rabbit_misc, rpc_call, 5, 2}]"
    ready = ["await_startup"]

    @staticmethod
    def libraries():
        return str(RABBITMQ / "plugins")

    def configure(self):
        (self.home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")

    def environment(self):
        own = {"NODENAME": self.node, "DIST_PORT": self.distribution, "MNESIA_BASE": self.home / "mnesia", "LOG_BASE": self.home / "log",
               "CONFIG_FILE": self.home / "rabbitmq", "CONF_ENV_FILE": self.home / "rabbitmq-env.conf",
               "ENABLED_PLUGINS_FILE": self.home / "enabled_plugins", "GENERATED_CONFIG_DIR": self.home / "config",
               "SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {self.flags}"}
        return {**super().environment(), "ERL_LIBS": str(LIBRARIES / "erlang/lib"),
                **{f"RABBITMQ_{name}": str(value) for name, value in own.items()}}

    def command(self):
        return [RABBITMQ / "sbin/rabbitmq-server"]

    def controller(self):
        return [RABBITMQ / "sbin/rabbitmqctl", "--silent"]

    def check(self, client, staying_client):
        """Persistent messages and their queue outlive a restart. A stream has a consumer."""
        client("put")
        before = self.control("list_queues", "name", "messages")
        if before.split() != ["kept", "100"]:
            raise Problem(f"list_queues of {self.node} says {before}")
        self.stop()
        self.start()
        client("take")
        with staying_client("stream"):
            queues = self.control("list_queues", "name", "type", "consumers")
        if "stream\tstream\t1" not in queues.splitlines():
            raise Problem(f"list_queues of {self.node} says {queues} while a stream has a consumer")
        self.control("status")
        return ["status", "list_queues", "100 persistent messages after a restart", "a stream of 100 messages"]


class Ejabberd(Server):
    name = "ejabberd"
    first_port = 15690
    packages = ["ejabberd", "erlang-base64url", "erlang-goldrush", "erlang-idna", "erlang-jiffy", "erlang-jose", "erlang-lager",
                "erlang-p1-acme", "erlang-p1-cache-tab", "erlang-p1-eimp", "erlang-p1-mqtree", "erlang-p1-pkix",
                "erlang-p1-stringprep", "erlang-p1-stun", "erlang-p1-tls", "erlang-p1-utils", "erlang-p1-xml", "erlang-p1-xmpp",
                "erlang-p1-yaml", "erlang-p1-yconf", "erlang-p1-zlib", "erlang-unicode-util-compat"]
    applications = ["mnesia", "ejabberd", "p1_cache_tab", "p1_pkix", "p1_stun", "p1_utils", "jose"]
    calls = "[]"
    ready = ["status"]

    @staticmethod
    def libraries():
        return f"{LIBRARIES / 'erlang/lib'}:{LIBRARIES / 'x86_64-linux-gnu'}"

    def configure(self):
        """Its start script names the directories of an installed package, and a user that the package makes. Both are replaced."""
        text = (UNPACKED / "usr/sbin/ejabberdctl").read_text()
        text = re.sub(r"^ERL_LIBS=.*", f"ERL_LIBS={self.libraries()}", text, flags=re.MULTILINE)
        (self.home / "ejabberdctl").write_text(re.sub(r"^INSTALLUSER=.*", "INSTALLUSER=", text, flags=re.MULTILINE))
        (self.home / "inetrc").write_text("")
        (self.home / "ejabberd.yml").write_text((HERE / "ejabberd.yml").read_text().replace("PORT", str(self.port)))

    def environment(self):
        return {**super().environment(), "CONFIG_DIR": str(self.home), "LOGS_DIR": str(self.home / "log"), "ERLANG_NODE_ARG": self.node,
                "SPOOL_DIR": str(self.home / "spool"), "INET_DIST_INTERFACE": "127.0.0.1", "ERL_DIST_PORT": str(self.distribution),
                "ERL_OPTIONS": self.flags}

    def probe_flags(self):
        return ["-erl_epmd_port", str(self.distribution), "-start_epmd", "false", "-dist_listen", "false"]

    def command(self):
        (self.home / "log").mkdir(exist_ok=True)
        return [*self.controller(), "foreground"]

    def controller(self):
        return ["bash", self.home / "ejabberdctl"]

    def check(self, client, _staying_client):
        """A user outlives a restart."""
        self.control("register", "kept", "localhost", "p")
        self.stop()
        self.start()
        if "kept" not in self.control("registered_users", "localhost").split():
            raise Problem(f"{self.node} has lost a user")
        self.control("status")
        return ["status", "register", "registered_users after a restart"]
