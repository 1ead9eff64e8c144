"""The measuring bench: starts the measured VMs, keeps their samples in a result file, compares and draws them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EBIN = ROOT / "_build/default/lib/cats/ebin"


class Problem(Exception):
    """What a user has to know and can act on: shown as a message, without a traceback."""
