"""Runs the tests of the bench, and ends with a line that .ci/run counts."""

import sys
import unittest
from pathlib import Path

here = Path(__file__).resolve().parent
result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.discover(str(here), top_level_dir=str(here.parents[1])))
failed = len(result.failures) + len(result.errors)
print(f"bench test: {result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped")
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
