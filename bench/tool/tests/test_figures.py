import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tool import figures, results, run
from tool.tests import synthetic

try:
    from tool import charts
    DRAWS = True
except ImportError:
    DRAWS = False


class Figures(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def measured(self, experiments, **how):
        return synthetic.run(self.directory, experiments, **how)

    def test_names_are_different_and_texts_known(self):
        names = [figure.name for figure in figures.FIGURES]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({figure.text for figure in figures.FIGURES}, set(figures.TEXTS))

    def test_figures_are_chosen_by_name_and_by_text(self):
        self.assertEqual([figure.name for figure in figures.named(["adaptation-5", "tweak"])], ["adaptation-5", "tweak-1"])
        self.assertEqual(figures.named(None), figures.FIGURES)
        with self.assertRaises(figures.Problem):
            figures.named(["adaptation-99"])

    def test_schedulers_of_machines(self):
        self.assertEqual([figures.schedulers(number) for number in (1, 2, 6, 64)],
                         [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8, 16, 32, 64]])

    def test_rows_of_a_figure(self):
        points = [f"schedulers={n},type={kind},phase={phase}" for n in (1, 2) for kind in ("set", "ordered_set")
                  for phase in ("90% lookups", "insert")]
        measured = self.measured({"engines": ({}, points, ["ets r", "ets r w", "cats skip_list", "cats"])})
        figure, = figures.named(["scalability-23"])
        rows, subjects = figures.rows_of(figure, measured)
        self.assertEqual({(dict(row.axes)["schedulers"], dict(row.axes)["type"]): set(by) for row, by in rows.items()},
                         {(n, kind): set(figures.SKIP_LIST[kind]) for n in (1, 2) for kind in ("set", "ordered_set")})
        self.assertEqual(subjects, ["ets r", "ets r w", "cats skip_list", "cats"])

    def test_speedup_is_within_a_round(self):
        row = [results.Row("programs", "25", (("schedulers", n), ("program", "ran")), f"n={n}") for n in (1, 2)]
        quotients = figures.speedups({row[0]: {"ets": {1: 6.0, 2: 8.0}}, row[1]: {"ets": {1: 3.0, 2: 2.0}, "cats": {1: 1.0}}})
        self.assertEqual(quotients, {row[0]: {"ets": {1: 1.0, 2: 1.0}}, row[1]: {"ets": {1: 2.0, 2: 4.0}}})

    @unittest.skipUnless(DRAWS, "needs Matplotlib and Jinja2")
    def test_the_page_has_what_was_measured_in_the_papers_order(self):
        self.measured({"reader_groups": ({"lines": "groups"}, [f"schedulers={n},type={kind},groups={groups},phase={share}% lookups"
                                                               for n in (1, 2) for kind in ("set", "ordered_set") for groups in (1, 2)
                                                               for share in (90, 99)], ["ets r", "cats avl r"])})
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(figures.draw(Path(self.directory), figures.named(["scalability", "release"])), 1)
        self.assertIn("not measured: scalability-15, scalability-18", said.getvalue())
        text = (Path(self.directory) / "figures.html").read_text()
        order = [text.index(f'id="{name}"') for name in ("scalability-13", "scalability-14", "scalability-16", "release-6a")]
        self.assertEqual(order, sorted(order))
        self.assertNotIn('id="scalability-20"', text)
        drawn = (Path(self.directory) / "scalability-16.svg").read_text()
        for line in ("cats avl r (groups 1)", "cats avl r (groups 2)"):
            self.assertIn(line, drawn)

    @unittest.skipUnless(DRAWS, "needs Matplotlib and Jinja2")
    def test_what_is_measured_with_one_value_is_one_line(self):
        rows = {results.Row("toy", otp, (("n", n),), f"n={n}"): {"ets": {1: n}, **({"cats": {1: n}} if n == 2 else {})}
                for otp in ("25", "29") for n in (1, 2)}
        found, subjects = charts.by_lines(["n"], rows, ["ets", "cats"])
        self.assertEqual(subjects, ["ets (n 1)", "ets (n 2)", "cats"])
        self.assertEqual([(row.otp, row.axes, by) for row, by in found.items()],
                         [(otp, (), {"ets (n 1)": {1: 1}, "ets (n 2)": {1: 2}, "cats": {1: 2}}) for otp in ("25", "29")])
        _, subjects = charts.by_lines(["otp"], rows, ["ets", "cats"])
        self.assertEqual(subjects, ["ets (OTP 25)", "ets (OTP 29)", "cats (OTP 25)", "cats (OTP 29)"])

    def test_measures_what_its_figures_need(self):
        with mock.patch.object(run, "main", return_value=2) as called:
            self.assertEqual(figures.main(["--size", "papers", "--only", "adaptation-6", "release-10a", "--schedulers", "1,2"]), 2)
        words = called.call_args[0][0]
        self.assertEqual(words[:words.index("--out")], ["--size", "full", "--rounds", "3", "--flags=+sbt tnnps", "--schedulers", "1,2", "--only",
                                                        "key_range", "locks"])
