import contextlib
import io
import tempfile
import unittest
import xml.etree.ElementTree

from tool import headline
from tool.tests import synthetic

TYPES, CALLS = ("set", "ordered_set"), ("lookup", "select of 1000 by guards", "delete of the table")
EXPERIMENTS = {"large_tables": ({"unit": "us", "better": "lower"},
                                [f"type={kind},objects=4000000,call={call}" for kind in TYPES for call in CALLS], ["ets", "cats"]),
               "everyday": ({"unit": "ns", "better": "lower"},
                            [f"group=shapes,call={call} of a session as a map among 1000,workers=1" for call in ("lookup", "insert")], ["ets", "cats"])}


class Headline(unittest.TestCase):
    def run_of(self, experiments):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return synthetic.run(directory.name, experiments, otps=("25", "29"), speed={"cats": 2})

    def test_bars_are_as_long_as_figures_are_large(self):
        chart = xml.etree.ElementTree.fromstring(headline.chart(self.run_of(EXPERIMENTS)))
        widths = {name: [float(bar.get("width")) for bar in chart.iter() if bar.get("class") == name] for name in ("ets", "cats")}
        self.assertEqual([headline.BAR] * len(headline.PAIRS), widths["ets"])
        for width in widths["cats"]:
            self.assertAlmostEqual(headline.BAR / 2, width, delta=headline.BAR / 10)
        self.assertIn("4 million objects", "".join(chart.itertext()))

    def test_a_run_without_an_experiment_is_refused(self):
        run = self.run_of({"everyday": EXPERIMENTS["everyday"]})
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(2, headline.main([str(run.path)]))
        self.assertIn("large_tables", said.getvalue())
