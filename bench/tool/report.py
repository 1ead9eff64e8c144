"""The command bench/report."""

import argparse
import sys

from . import Problem, page, results


def main(words=None):
    parser = argparse.ArgumentParser(prog="bench/report", description="Writes report.html and the charts (SVG) beside a result file.")
    parser.add_argument("run", help="the directory of a run, or its results.jsonl")
    try:
        print(page.write(results.load(parser.parse_args(words).run)))
    except Problem as problem:
        print(f"bench/report: {problem}", file=sys.stderr)
        return 2
    return 0
