import tempfile
import unittest
from pathlib import Path

from tool import targets
from tool.tests import synthetic

PHASES = ["insert", "100% lookups", "delete"]
EXPERIMENTS = {
    "ets_bench": ({"x": "phase"}, [f"type={kind},workers={workers},range={range_},phase={phase}" for kind in ("set", "ordered_set")
                                   for workers in (1, 2) for range_ in (1024, 2**21) for phase in PHASES], ["ets", "ets r", "cats"]),
    "memory_object": ({"unit": "bytes/object", "better": "lower"}, ["shape=pair", "shape=map"], ["ets", "cats"]),
    "scaling": ({}, ["type=set,tables=shared,lookups=50", "type=set,tables=private,lookups=50"], ["ets", "cats"]),
    "stall": ({"unit": "us", "better": "lower"}, ["type=set,operation=delete", "type=ordered_set,operation=delete",
                                                  "type=control,operation=none"], ["ets", "cats"]),
}


def target(start):
    return next(each for each in targets.TARGETS if each.line.startswith(start))


class Targets(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.run = self.run_of()

    def run_of(self, **how):
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        return synthetic.run(directory, EXPERIMENTS, **{"speed": {"cats": 4.2, "ets r": 0.5}, "noise": 0.001, **how})

    def set(self, of, point, factor):
        for row, figures in self.run.rows.items():
            if point in row.point:
                figures[of] = {number: factor * figure for number, figure in figures[of].items()}

    def outcome(self, start):
        return targets.outcome(target(start), self.run, "25")

    def test_the_mean_and_the_least_of_ratios(self):
        self.set("cats", "type=set,workers=1,range=2097152,phase=delete", 0.25)
        mean, least = self.outcome("ets_bench, range 2^21, 1 worker, set"), self.outcome("… any phase, set")
        self.assertAlmostEqual(mean.value, 4.2 * 0.25 ** (1 / 3), delta=0.05)
        self.assertAlmostEqual(least.value, 1.05, delta=0.01)
        self.assertEqual((mean.reached, least.reached, least.where), (False, False, "delete"))
        self.assertTrue(self.outcome("… any phase, ordered_set").reached)

    def test_at_most(self):
        self.assertAlmostEqual(self.outcome("memory per object, pair").value, 1 / 4.2, delta=0.01)
        self.assertTrue(self.outcome("memory per object, pair").reached)
        spread = self.outcome("memory per object, pair").spread
        self.assertTrue(spread.low < spread.median < spread.high)
        self.set("cats", "shape=pair", 3)
        self.assertFalse(self.outcome("memory per object, pair").reached)

    def test_two_workers_over_one(self):
        self.assertAlmostEqual(self.outcome("… with 2 workers").value, 1, delta=0.01)
        self.set("cats", "type=set,workers=2,range=1024", 0.5)
        found = self.outcome("… with 2 workers")
        self.assertAlmostEqual(found.value, 0.5, delta=0.01)
        self.assertEqual((found.where, found.reached), ("set, range 1024", False))

    def test_scaling(self):
        self.set("cats", "tables=shared", 0.8)
        self.assertAlmostEqual(self.outcome("2 workers on one table").value, 0.8, delta=0.01)

    def test_the_longest_hold_is_in_milliseconds_and_that_of_tables(self):
        self.set("cats", "type=control", 100)
        self.set("cats", "type=ordered_set", 0.004)
        self.set("cats", "type=set", 0.002)
        found = self.outcome("longest hold")
        self.assertAlmostEqual(found.value, 1000 * 0.004 / 4.2, delta=0.05)
        self.assertEqual((found.where, found.reached), ("ordered_set", True))

    def test_what_is_measured_in_part_is_not_reached(self):
        found = self.outcome("… ranges 2^3")
        self.assertEqual(found.missing, "range 8, range 65536")
        line = next(line for line in targets.table([self.run], []).splitlines() if "ranges 2^3" in line)
        self.assertTrue(line.endswith("| no |"))

    def test_the_table_of_two_runs_and_two_releases(self):
        other = self.run_of(otps=("25", "29"), speed={"cats": 3.0})
        lines = targets.table([self.run, other], []).splitlines()
        cells = next(line for line in lines if line.startswith("| ets_bench, range 2^21, 1 worker, set")).split(" | ")
        self.assertRegex(cells[2], r"^\*\*4\.\d+\*\* \(4\.\d+ to 4\.\d+\); \*\*3\.00\*\*")
        self.assertEqual(cells[4], "25: in 1 of 2 runs, 29: no |")
        self.assertEqual({line.count("|") for line in lines if line.startswith("|")}, {6})
        self.assertIn("not measured", next(line for line in lines if line.startswith("| tab2list")))

    def test_native(self):
        text = """hash               -                  1    26.90M    36.50M    40.40M    45.80M    45.00M
dashmap            -                  1    28.80M    32.10M    33.20M    34.40M    30.00M
dashmap            -                  2    28.80M    32.10M    33.20M    34.40M    99.00M
"""
        line = next(line for line in targets.table([self.run], [text]).splitlines() if "dashmap" in line)
        self.assertEqual(line.split(" | ")[1:], ["1", "1.50", "yes |"])
