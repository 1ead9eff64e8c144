import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from tool import growth
from tool.tests import synthetic



class Growth(unittest.TestCase):
    def test_what_grows_faster_than_it_should(self):
        for grows, factor, expected in [("1", 4, False), ("1", 100, True), ("n", 150, False), ("n", 10_000, True), ("n log n", 250, False),
                                        ("n log n", 3000, True)]:
            with self.subTest(grows=grows, factor=factor):
                self.assertEqual(growth.grows_fast(grows, {10: 1.0, 1000: 2.0, 100_000: 2.0 * factor}), expected)
        self.assertFalse(growth.grows_fast("1", {10: 1.0}))
        self.assertTrue(growth.grows_fast("n log n", {10: 1.0, 1000: 1e6, 100_000: growth.GIVEN_UP}))

    def test_rows_are_marked_and_times_have_units(self):
        calls = {("lookup", "1"): {"cats": {10: 0.05, 1000: 0.06, 100_000: 0.1}, "ets": {10: 0.1, 1000: 0.1, 100_000: 0.2}},
                 ("walk", "n"): {"cats": {10: 1.0, 1000: 100.0, 100_000: 2.5e6}, "ets": {}}}
        head, _, lookup, walk = growth.table_of(calls).splitlines()
        self.assertEqual(head, "| call | should grow as | 10 | 1,000 | 100,000 | growth | ets at the largest | growth in ets |")
        self.assertEqual(lookup, "| lookup | O(1) | 50.0 ns | 60.0 ns | 100 ns | 1.67 | 200 ns | 2.00 |")
        self.assertEqual(growth.shown(growth.GIVEN_UP), "over 20 s")
        self.assertIn("| walk **!** | O(n) | 1.00 µs | 100 µs | 2.50 s |", walk)

    def test_command(self):
        with tempfile.TemporaryDirectory() as directory:
            rows = [f"what=tables,number={number},call=all,grows=n" for number in (10, 1000)]
            synthetic.run(Path(directory), {"growth": ({"unit": "us", "better": "lower"}, rows, ["ets", "cats"])}, otps=("25",))
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                self.assertEqual(growth.main([directory]), 0)
            self.assertIn("## Tables", text.getvalue())
            self.assertIn("| all | O(n) |", text.getvalue())
