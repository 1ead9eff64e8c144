import unittest

from tool import statistics, units

FIGURES = {"ets": {1: 10.0, 2: 12.0, 3: 11.0}, "ets r": {1: 8.0, 2: 20.0, 3: 9.0}, "cats": {1: 20.0, 2: 18.0, 4: 30.0}}


class Statistics(unittest.TestCase):
    def test_the_best_ets_is_that_of_the_best_median(self):
        self.assertEqual(statistics.best_ets(FIGURES, "higher"), "ets")
        self.assertEqual(statistics.best_ets(FIGURES, "lower"), "ets r")
        self.assertIsNone(statistics.best_ets({"cats": {1: 1.0}, "etsy": {1: 1.0}}, "higher"))

    def test_ratios_are_within_rounds_and_more_than_one_is_better(self):
        self.assertEqual(statistics.ratios(FIGURES, "cats", "ets", "higher"), {1: 2.0, 2: 1.5})
        self.assertEqual(statistics.ratios(FIGURES, "cats", "ets", "lower"), {1: 0.5, 2: 12 / 18})
        self.assertEqual(statistics.ratios({"a": {1: 0.0}, "b": {1: 1.0}}, "a", "b", "higher"), {})

    def test_compared(self):
        against = statistics.compared(FIGURES, "higher")
        self.assertEqual((against.base, against.ratio), ("ets", statistics.Spread(1.75, 1.5, 2.0)))
        self.assertIsNone(statistics.compared({"cats": {1: 1.0}}, "higher"))
        self.assertIsNone(statistics.compared({"ets": {1: 1.0}}, "higher"))
        self.assertIsNone(statistics.compared({"ets": {1: 1.0}, "cats": {2: 1.0}}, "higher"))

    def test_geometric_mean(self):
        self.assertAlmostEqual(statistics.geometric_mean([1, 4]), 2)


class Units(unittest.TestCase):
    def test_scaled(self):
        for unit, figures, shown in [("operations/s", [4e6, 100], (4, "million operations/s")), ("ns", [2.5e6], (2.5, "ms")),
                                     ("ms", [0.5], (500, "µs")), ("words", [12], (12, "words")), ("bytes/object", [72], (72, "bytes/object")),
                                     ("bytes", [2**20 * 64], (64, "MiB")), ("x", [], (0, "x"))]:
            factor, name = units.scaled(unit, figures)
            self.assertAlmostEqual(factor * max(figures, default=0), shown[0])
            self.assertEqual(name, shown[1])

    def test_figures_have_three_digits_that_count(self):
        self.assertEqual([units.figure(number) for number in (0, 1.2345, 12.345, 0.0012345, 1234.5)],
                         ["0", "1.23", "12.3", "0.00123", "1\u2009234"])
