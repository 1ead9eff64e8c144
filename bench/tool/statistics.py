"""Medians of the samples with their spread, and ratios to ets, taken within each round.

A ratio above 1 means that cats is better, also where lower figures are better.
"""

import math
import statistics
from dataclasses import dataclass

OWN = "cats"  # the subject that is cats with its defaults


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float


def spread(values):
    values = list(values)
    return Spread(statistics.median(values), min(values), max(values))


def geometric_mean(values):
    values = list(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def is_ets(subject):
    return subject == "ets" or subject.startswith("ets ")


def best_ets(figures, better):
    """The subject that is ets with the options that do best in this row by their median, or None."""
    medians = {subject: statistics.median(rounds.values()) for subject, rounds in figures.items() if is_ets(subject)}
    return (max if better == "higher" else min)(medians, key=medians.get) if medians else None


def ratios(figures, subject, base, better):
    """How many times as good the subject is as the base, by round, for the rounds that have positive figures of both."""
    mine, theirs = figures[subject], figures[base]
    both = {round: (mine[round], theirs[round]) for round in sorted(mine.keys() & theirs.keys())}
    return {round: (m / t if better == "higher" else t / m) for round, (m, t) in both.items() if m > 0 and t > 0}


@dataclass(frozen=True)
class Compared:
    """cats with its defaults and ets with its best options in a row."""

    base: str
    rounds: dict
    ratio: Spread


def compared(figures, better, subject=OWN):
    """How the subject compares with ets, or None where one of them is missing."""
    base = best_ets(figures, better)
    if base is None or subject not in figures:
        return None
    rounds = ratios(figures, subject, base, better)
    return Compared(base, rounds, spread(rounds.values())) if rounds else None
