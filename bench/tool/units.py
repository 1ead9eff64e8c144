"""How figures are written: three significant digits, in a unit that keeps them short."""

import math

TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3,
         "seconds": 1.0}
SHOWN_TIMES = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
SHOWN_NUMBERS = [(1e9, "billion "), (1e6, "million "), (1e3, "thousand ")]
SHOWN_BYTES = [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")]


def scaled(unit, figures):
    """A factor for these figures and the unit that they are then in, chosen for the largest of them."""
    largest = max((abs(figure) for figure in figures), default=0)
    if unit in TIMES:
        seconds = TIMES[unit] * largest
        size, name = next(((size, name) for size, name in SHOWN_TIMES if seconds >= size), SHOWN_TIMES[-1])
        return TIMES[unit] / size, name
    if unit == "bytes" or unit.startswith(("bytes/", "bytes ")):
        size, name = next(((size, name) for size, name in SHOWN_BYTES if largest >= 10 * size), (1, "bytes"))
        return 1 / size, name + unit[len("bytes"):]
    size, name = next(((size, name) for size, name in SHOWN_NUMBERS if largest >= size), (1, ""))
    return 1 / size, name + unit


def figure(number):
    """Three significant digits, without an exponent."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:,.{decimals}f}"
    return text.replace(",", "\u2009")


def ratio(number):
    return f"{number:.2f}" if 0.1 <= number < 10 else figure(number) if number >= 10 else f"{number:.2g}"


def count(number, one, many=None):
    return f"{number} {one if number == 1 else many or one + 's'}"
