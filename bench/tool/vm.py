"""A measured VM: a process of its own. It gets points, one a line. Its records are read with a time limit."""

import collections
import os
import queue
import signal
import subprocess
import threading

from . import otp, protocol


class Lost(Exception):
    """The VM has ended, or said nothing for too long; the text says which, and what it printed last."""

    def __init__(self, text, silent):
        super().__init__(text)
        self.silent = silent


class Vm:
    def __init__(self, command):
        # In a session of its own, so that an interrupt from the terminal reaches only the bench, which then ends the VM.
        self.process = subprocess.Popen(command, env=otp.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        self.lines = queue.Queue()
        self.printed = collections.deque(maxlen=40)
        self.readers = [threading.Thread(target=self._read_records, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_records(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _read_errors(self):
        for line in self.process.stderr:
            self.printed.append(line)

    def ask(self, experiment, point):
        try:
            self.process.stdin.write(f"{experiment}\t{point}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # It has ended: the next call of `record` says how.

    def record(self, patience):
        """The next record; lines that are none are kept as what the VM printed. Raises Lost."""
        while True:
            try:
                line = self.lines.get(timeout=patience)
            except queue.Empty:
                self.close()
                raise Lost(f"no word for {patience:.0f} seconds, so it was ended; {self._last_words()}", True) from None
            if line is None:
                raise Lost(f"the VM {self._how_it_ended()}; {self._last_words()}", False)
            if record := protocol.parse(line):
                return record
            self.printed.append(line)

    def _how_it_ended(self):
        code = self.process.wait()
        self.readers[1].join(timeout=5)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _last_words(self):
        text = "".join(self.printed).strip()
        return f"it printed last: {text[-2000:]}" if text else "it printed nothing"

    def finish(self, patience=10):
        """Lets the VM end by the end of its input."""
        try:
            self.process.stdin.close()
            self.process.wait(timeout=patience)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.close()

    def close(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
