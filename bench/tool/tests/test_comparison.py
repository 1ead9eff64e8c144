import contextlib
import io
import math
import tempfile
import unittest
from pathlib import Path

from tool.tests import synthetic

try:
    from tool import compare, comparison
except ImportError as error:
    raise unittest.SkipTest(f"Python lacks {error.name}")

POINTS = [f"n={n}" for n in range(12)]
SUBJECTS = ["ets", "ets r", "cats", "cats avl"]
EXPERIMENTS = {name: ({}, POINTS, SUBJECTS) for name in ("one", "two", "three")}
SPEED = {"ets r": 0.8, "cats": 2, "cats avl": 0.5}


class Comparison(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.runs = 0

    def run_of(self, seed, experiments=EXPERIMENTS, **how):
        self.runs += 1
        directory = self.directory / str(self.runs)
        directory.mkdir()
        return synthetic.run(directory, experiments, seed=seed, **{"speed": SPEED, **how})

    def compare(self, a, b):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = compare.main([str(a.path), str(b.path)])
        return code, out.getvalue()

    def test_runs_of_the_same_do_not_differ(self):
        # Each comparison is wrong with a chance of 2 % at most; the seeds are fixed, so that the outcome is.
        wrong = 0
        for seed in range(24):
            experiments, rows, _ = comparison.compare(*(self.run_of(2 * seed + n, rounds=3 + 2 * (seed % 2)) for n in (0, 1)))
            wrong += any(test.differs for test in experiments + rows)
        self.assertLessEqual(wrong, 1)

    def test_a_slowdown_by_a_tenth_is_seen_in_each_experiment(self):
        for rounds in (3, 5):
            a, b = self.run_of(1, rounds=rounds), self.run_of(2, rounds=rounds, speed={**SPEED, "cats": 1.8})
            experiments, _, _ = comparison.compare(a, b)
            self.assertEqual({test.subject for test in experiments if test.differs}, {"cats"})
            self.assertEqual([test.experiment for test in experiments if test.differs], ["one", "two", "three", "all"])
            code, text = self.compare(a, b)
            self.assertEqual(code, 1)
            self.assertRegex(text, r"one +25 +cats +12 +slower by (9|10)\.\d % \(-1\d\.\d to -\d\.\d %\)")

    def test_a_row_that_changed_much_is_named(self):
        a, b = self.run_of(1, rounds=3), self.run_of(2, rounds=3)
        for row, figures in b.rows.items():
            if row.experiment == "two" and row.point == "n=7":
                figures["cats"] = {number: 0.7 * figure for number, figure in figures["cats"].items()}
        experiments, rows, _ = comparison.compare(a, b)
        self.assertEqual([(test.experiment, test.row.point) for test in rows if test.differs], [("two", "n=7")])
        self.assertLessEqual({test.experiment for test in experiments if test.differs}, {"two"})

    def test_rounds_that_a_row_lacks_do_not_count_for_the_experiment(self):
        a, b = self.run_of(1), self.run_of(2)
        for row, figures in b.rows.items():
            figures["cats"] = {number: figure * (10 if row.point in POINTS[:6] else 1) for number, figure in figures["cats"].items()
                               if number > 2 or row.point not in POINTS[:6]}
        for row, figures in a.rows.items():
            figures["cats"] = {number: figure * (10 if row.point in POINTS[:6] else 1) for number, figure in figures["cats"].items()}
        experiments, _, _ = comparison.compare(a, b)
        self.assertFalse(any(test.differs for test in experiments))
        self.assertTrue(all(test.half < 0.1 for test in experiments if test.subject == "cats"))

    def test_a_machine_that_slows_all_down_makes_no_difference(self):
        experiments, _, _ = comparison.compare(self.run_of(1), self.run_of(2, machine=0.6))
        self.assertFalse(any(test.differs for test in experiments))
        self.assertAlmostEqual(experiments[0].machine, math.log(0.6), delta=0.05)

    def test_a_change_beside_a_greater_one_of_ets_is_the_machines(self):
        a, b = self.run_of(1), self.run_of(2, machine=0.6, speed={**SPEED, "cats": 1.8})
        code, text = self.compare(a, b)
        self.assertEqual(code, 0)
        self.assertIn("no difference that is not the machine's", text)

    def test_without_ets_the_figure_counts(self):
        experiments = {"programs": ({"unit": "ms", "better": "lower"}, POINTS, ["orbit"])}
        a, b = self.run_of(1, experiments), self.run_of(2, experiments, speed={"orbit": 0.8})
        code, text = self.compare(a, b)
        self.assertRegex(text, r"programs +25 +orbit +12 +slower by 2\d\.\d % \(\+")
        self.assertEqual(code, 1)

    def test_figures_without_chance_differ_when_they_change(self):
        experiments = {"memory": ({"unit": "bytes", "better": "lower"}, POINTS, ["ets", "cats"])}
        a, b = (self.run_of(1, experiments, noise=0, speed={"cats": speed}) for speed in (2, 1.9))
        code, text = self.compare(a, b)
        self.assertRegex(text, r"memory +25 +cats +12 +larger by 5\.3 %")
        self.assertEqual(self.compare(a, a)[0], 0)

    def test_what_cannot_be_compared_is_said(self):
        a, b = self.run_of(1), self.run_of(1, {"other": ({}, POINTS, SUBJECTS)})
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            self.assertEqual(self.compare(a, b)[0], 2)
        self.assertIn("no row in common", stderr.getvalue())

    def test_the_prior_of_variances(self):
        """Variances drawn around a common one, s0² d0 / chi²(d0), give s0² and d0 back."""
        import numpy
        chance = numpy.random.default_rng(1)
        common = 4.0 * 8 / chance.chisquare(8, 20000)
        tests = [type("Test", (), {"degrees": 4, "variance": variance})() for variance in common * chance.chisquare(4, 20000) / 4]
        degrees, variance = comparison.prior_of(tests)
        self.assertAlmostEqual(degrees, 8, delta=0.8)
        self.assertAlmostEqual(variance, 4, delta=0.1)
