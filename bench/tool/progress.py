"""The progress of a run and the time left. On a terminal it is one line that is overwritten, elsewhere a line now and then."""

import shutil
import sys
import time

SECONDS_BETWEEN_LINES = 30


class Progress:
    """Shares are of the expected seconds. Their error so far gives the time left."""

    def __init__(self, expected, out=sys.stderr, clock=time.monotonic):
        self.expected, self.out, self.clock = max(expected, 1e-9), out, clock
        self.passed = 0
        self.begin = clock()
        self.last_line = None

    def start(self, what):
        """What is being measured now."""
        if self.out.isatty():
            self.out.write(f"\r\x1b[K{self._line(what)[:self._width()]}")
            self.out.flush()
        elif self.last_line is None or self.clock() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = self.clock()
            print(self._line(what), file=self.out, flush=True)

    def done(self, seconds):
        """What was expected to take so many seconds is measured, or given up."""
        self.passed += seconds

    def say(self, message):
        """A message that stays."""
        self.out.write(("\r\x1b[K" if self.out.isatty() else "") + message + "\n")
        self.out.flush()

    def left(self):
        """Seconds left, or None while nothing tells."""
        if self.passed <= 0:
            return None
        return (self.clock() - self.begin) * (self.expected - self.passed) / self.passed

    def _line(self, what):
        left = self.left() if self.passed >= 0.01 * self.expected else self.expected - self.passed
        return f"{100 * self.passed / self.expected:3.0f} %, {duration(left)} left: {what}"

    @staticmethod
    def _width():
        return shutil.get_terminal_size().columns - 1


def duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
