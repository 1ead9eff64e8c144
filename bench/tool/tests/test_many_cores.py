import contextlib
import io
import json
import tempfile
import unittest
from unittest import mock

from tool import many_cores, model

COSTS = ("pin", "table lock, readers", "atomic addition", "back-off", "scan of a line written by the other")


def rows(round, lookup=100.0, update=200.0):
    """A measured round, in which an operation takes three times as long with two threads as with one."""
    yield from ({"round": round, "cost": name, "threads": threads, "ns": 5.0} for name in COSTS for threads in (1, 2))
    for engine in many_cores.ENGINES:
        for keys in (1024, many_cores.LARGE):
            for share in many_cores.SHARES:
                ns = (share * lookup + (100 - share) * update) / 100
                yield {"round": round, "engine": engine, "range": keys, "lookups": share, "threads": 1, "ns": ns}
                yield {"round": round, "engine": engine, "range": keys, "lookups": share, "threads": 2, "passes": 400.0, "ns": 3 * ns}


class ManyCores(unittest.TestCase):
    def write(self, lines):
        file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        self.addCleanup(file.close)
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        return file.name

    def test_costs_are_read_by_round(self):
        first, second = model.load(self.write([*rows(0), *rows(1, lookup=140.0)]))
        self.assertEqual(100.0, first.machine.transfer)
        self.assertEqual((100.0, 140.0), (first.alone["ca", 1024, "lookup"], second.alone["ca", 1024, "lookup"]))
        self.assertEqual(120.0, model.medians([first, second]).alone["ca", 1024, "lookup"])

    def test_a_row_without_a_sample_is_left_out(self):
        bad = {"round": 0, "engine": "ca", "range": 8, "lookups": 50, "threads": 2, "passes": float("nan"), "ns": float("nan")}
        only, = model.load(self.write([*rows(0), bad]))
        self.assertNotIn(("ca", 8, 50, 2), only.measured)
        self.assertNotIn(("ca", 8, 50), only.transfer)

    def test_the_check_tells_what_is_off(self):
        found = many_cores.check(model.load(self.write(row for row in rows(0) if row.get("engine", "hash") == "hash")))
        self.assertAlmostEqual(1, found["hash", 1024, 50, 1][2], delta=0.05)
        self.assertGreater(found["hash", 1024, 100, 2][2], 2.9)
        self.assertIn("**", many_cores.checked(found))
        self.assertIn("Within a fifth with 1 thread: 12 of 12.", many_cores.checked(found))

    def test_a_curve_bends_where_it_stops_to_grow(self):
        self.assertEqual(8, many_cores.bend({1: 1, 2: 2, 4: 4, 8: 8, 16: 9, 32: 9, 64: 9}))
        self.assertIsNone(many_cores.bend({n: n for n in many_cores.THREADS}))

    def test_all_curves_are_drawn(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("needs Matplotlib")
        curves = [(row, panel, name, {threads: threads * 1.0 for threads in many_cores.THREADS})
                  for row, names in (("a row", many_cores.ENGINES), ("another", many_cores.DESIGNS))
                  for panel in ("0", "50") for name in names]
        drawn = many_cores.draw(curves)
        for name in (*many_cores.ENGINES, *many_cores.DESIGNS):
            self.assertIn(name, drawn)

    def test_a_file_without_all_engines_is_refused(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch.object(model, "simulate", side_effect=AssertionError):
            self.assertEqual(2, many_cores.main([self.write([row for row in rows(0) if row.get("engine") != "avl"])]))
        self.assertIn("all engines", said.getvalue())
