import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from tool import table
from tool.tests import synthetic

EXPERIMENTS = {"everyday": ({"unit": "ns", "better": "lower"},
                            [f"call={call},workers={workers}" for call in ("lookup", "insert", "next") for workers in (1, 2)],
                            ["ets", "ets r w", "cats"]),
               "alone": ({}, ["call=lookup"], ["cats"])}


class Table(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.runs = []
        for number, speed in enumerate((2.0, 3.0)):
            path = Path(directory.name) / str(number)
            path.mkdir()
            synthetic.run(path, EXPERIMENTS, otps=("25", "29"), noise=0.001, speed={"cats": speed, "ets r w": 0.5})
            self.runs.append(str(path))

    def printed(self, *words):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            self.assertEqual(table.main(list(words)), 0)
        return text.getvalue()

    def test_rows_and_means(self):
        means, rows = (part.splitlines() for part in self.printed("everyday", self.runs[0]).split("\n\n"))
        self.assertEqual(means[0], "|  | OTP 25, 1 worker | OTP 25, 2 workers | OTP 29, 1 worker | OTP 29, 2 workers |")
        self.assertEqual(means[2].split(" | ")[1:3], ["**2.00**", "**2.00**"])
        self.assertEqual(means[3:], ["| rows | 3 | 3 | 3 | 3 |", "| rows below 1 | 0 | 0 | 0 | 0 |"])
        self.assertEqual([row.split(" | ")[0] for row in rows], ["| call", "| ---", "| lookup", "| insert", "| next"])
        self.assertRegex(rows[2], r"^\| lookup (\| \*\*(2\.0\d|1\.99)\*\* \([0-9.]+ to [0-9.]+\) ){4}\|$")

    def test_runs_are_taken_together(self):
        rows = self.printed("everyday", *self.runs)
        self.assertRegex(rows, r"\| lookup \| \*\*2\.[45]\d\*\* \((2\.00|1\.99) to 3\.0\d\)")

    def test_rows_behind_come_with_the_least_first(self):
        lines = {(("call", call),): {("25", None): table.statistics.spread([figure])} for call, figure in (("a", 0.9), ("b", 1.2), ("c", 0.3))}
        self.assertEqual([dict(axes)["call"] for axes in table.behind(lines)], ["c", "a"])
        self.assertNotIn("| lookup", self.printed("everyday", self.runs[0], "--behind"))

    def test_other_subjects_are_compared(self):
        rows = self.printed("everyday", self.runs[0], "--of", "ets r w", "--to", "cats").split("\n\n")[1].splitlines()
        self.assertRegex(rows[2], r"^\| lookup \| \*\*0\.25\*\* ")
        rows = self.printed("everyday", self.runs[0], "--to", "ets r w").split("\n\n")[1].splitlines()
        self.assertRegex(rows[2], r"^\| lookup \| \*\*(4\.0\d|3\.99)\*\* ")

    def test_figures_of_all_subjects(self):
        lines = self.printed("everyday", *self.runs, "--figures").splitlines()
        self.assertEqual(lines[0], "| otp | call | workers | ets, ns | ets r w, ns | cats, ns |")
        self.assertEqual(len(lines), 2 + 2 * 6)
        thousands = "[0-9\u2009]+"
        self.assertRegex(lines[2], rf"^\| 25 \| lookup \| 1 (\| \*\*{thousands}\*\* \({thousands} to {thousands}\) ){{3}}\|$")
        self.assertRegex(lines[2], r"\((33\d|332)\u2009\d+ to (50\d|499)\u2009\d+\) \|$")
        self.assertEqual(self.printed("alone", self.runs[0], "--figures").splitlines()[0], "| otp | call | cats, operations/s |")

    def test_what_cannot_be_compared_is_an_error(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(table.main(["alone", self.runs[0]]), 2)
        self.assertIn("no row of alone", said.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(table.main(["everyday", self.runs[0], "--to", "mnesia"]), 2)
        self.assertIn("no row of everyday that has mnesia and cats", said.getvalue())
