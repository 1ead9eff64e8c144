"""Known servers on ets and on cats: fetches, recompiles, starts, checks, loads and measures them."""

from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
CATS = ROOT / "_build/default/lib/cats/ebin"
WORK = ROOT / "_build/servers"
UNPACKED = WORK / "unpacked"


class Problem(Exception):
    """What the user can do something about."""
