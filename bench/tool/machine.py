"""What a result file says about where it was measured: the machine, and the version of cats."""

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

from . import EBIN, ROOT


def machine():
    return {"cpu": found("/proc/cpuinfo", r"^model name\s*: (.*)$") or platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": int(found("/proc/meminfo", r"^MemTotal:\s*(\d+)") or 0) * 1024,
            "kernel": f"{platform.system()} {platform.release()}",
            "load": load()}


def load():
    """Processes that ran or waited for a core, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def cats():
    """Version, commit, whether the working tree differs from it, and a digest of what was built."""
    return {"version": found(ROOT / "src/cats.app.src", r'\{vsn, "([^"]*)"\}') or "unknown",
            "commit": git("rev-parse", "--short=9", "HEAD") or "unknown",
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
            "build": build()}


def build():
    digest = hashlib.sha256()
    for file in sorted(path for path in [*EBIN.glob("*"), *(EBIN.parent / "priv").glob("*")] if path.is_file()):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def found(path, pattern):
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return match and match[1]


def git(*arguments):
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
