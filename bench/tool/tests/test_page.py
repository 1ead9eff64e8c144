import html.parser
import re
import tempfile
import unittest
from pathlib import Path

from tool.tests import synthetic

try:
    from tool import charts, page
except ImportError as error:
    raise unittest.SkipTest(f"Python lacks {error.name}")

MANY = ["ets"] + [f"ets {n}" for n in range(6)] + ["cats"] + [f"cats {name}" for name in "abcdef"]
EXPERIMENTS = {
    "classes": ({"title": "A & <b>", "source": "On <Tables>", "panels": "type,workers"},
                [f"type={kind},workers={n},n={name}" for kind in ("set", "bag") for n in (1, 2) for name in ("insert", "delete")], MANY),
    "sizes": ({"scale": "log", "unit": "ns", "better": "lower"}, [f"n={8 ** n}" for n in range(1, 8)], ["ets", "cats"]),
    "single": ({"scale": "linear", "x": "size"}, ["size=5"], ["ets", "cats"]),
    "control": ({"scale": "linear", "unit": "s", "better": "lower"}, ["n=1", "n=2"], ["orbit"]),
    "empty": ({}, [], []),
    "crowd": ({"panels": "a,b"}, [f"a={a},b={b},n={n}" for a in range(4) for b in range(5) for n in "xy"], ["ets", "cats"]),
}


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = Path(directory.name)
        cls.results = synthetic.run(directory.name, EXPERIMENTS, otps=("25", "29"), rounds=3, speed={"cats": 2, "cats a": 0.5, "orbit": 1})
        cls.results.errors.append({"otp": "25", "experiment": "sizes", "point": "n=8", "subject": "ets", "round": 1,
                                   "text": "<script>alert(1)</script>"})
        cls.text = page.write(cls.results).read_text()

    def test_it_is_whole(self):
        class Parser(html.parser.HTMLParser):
            def __init__(self):
                super().__init__()
                self.elements, self.references = [], []

            def handle_starttag(self, tag, attributes):
                self.elements.append(tag)
                self.references += [value for name, value in attributes if name in ("href", "src", "xlink:href")]

        parser = Parser()
        parser.feed(self.text)
        self.assertGreaterEqual(parser.elements.count("svg"), 6)
        self.assertNotIn("script", parser.elements)
        self.assertTrue(all(reference.startswith("#") for reference in parser.references))
        self.assertNotIn("alert(1)</script>", self.text)
        self.assertIn("A &amp; &lt;b&gt;", self.text)

    def test_references_within_the_page_lead_somewhere(self):
        targets = set(re.findall(r'id="([^"]+)"', self.text))
        wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', self.text))
        self.assertLessEqual(wanted, targets)

    def test_each_chart_is_a_file_too(self):
        files = {file.name for file in self.directory.glob("*.svg")}
        self.assertLessEqual({"classes-otp-25.svg", "sizes.svg", "single.svg", "control.svg"}, files)
        self.assertTrue(all(file in self.text for file in files))

    def test_more_panels_than_a_page_holds_are_several_figures(self):
        self.assertEqual({file.name for file in self.directory.glob("crowd*.svg")}, {"crowd-otp-25.svg", "crowd-otp-29.svg"})

    def test_the_headline(self):
        line = page.lines(self.results)["sizes"]["29"]
        self.assertEqual((line.rows, line.behind), (7, 0))
        self.assertAlmostEqual(line.mean, 2, delta=0.1)
        self.assertNotIn("control", page.lines(self.results))

    def test_axes_and_subjects_are_named(self):
        svg = (self.directory / "sizes.svg").read_text()
        for word in ("n, log scale; lower is better", "ets", "cats", "ms"):
            self.assertTrue(f">{word}" in svg or f"{word}<" in svg, word)

    def test_figures_are_readable_on_a_dark_page(self):
        for file in self.directory.glob("*.svg"):
            background = re.search(r'<g id="patch_1">\s*<path [^>]*style="([^"]*)"', file.read_text())
            self.assertEqual(background[1], "fill: #ffffff", file.name)

    def test_subjects_are_told_apart(self):
        looks = charts.appearance(MANY)
        self.assertEqual(len(set(looks.values())), len(MANY))
        self.assertEqual(looks["cats"], charts.appearance(["cats"])["cats"])
