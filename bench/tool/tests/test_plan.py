import io
import unittest

from tool import plan, progress


def point(name, flags="", otp="25"):
    return plan.Point(otp, "toy", name, flags, 1.0, ("ets", "cats"))


class Plan(unittest.TestCase):
    def test_points_of_an_installation_and_flags_are_together(self):
        points = [point("a"), point("b", "+S 1"), point("c"), point("a", otp="29"), point("d", "+S 1")]
        self.assertEqual([(key, [each.point for each in members]) for key, members in plan.groups(points)],
                         [(("25", ""), ["a", "c"]), (("25", "+S 1"), ["b", "d"]), (("29", ""), ["a"])])

    def test_what_is_done_is_left_out(self):
        points = [point("a"), point("b"), point("a", otp="29")]
        done = {("25", "toy", "a", 2), ("29", "toy", "a", 1)}
        self.assertEqual(plan.missing(points, done, 2), [points[1], points[2]])


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Progress(unittest.TestCase):
    def setUp(self):
        self.now = 0.0

    def progress(self, out):
        return progress.Progress(100, out, lambda: self.now)

    def test_time_left_follows_what_it_took_so_far(self):
        shown = self.progress(io.StringIO())
        self.assertIsNone(shown.left())
        self.now = 30
        shown.done(10)
        self.assertEqual(shown.left(), 270)

    def test_a_terminal_has_one_line_that_is_written_over(self):
        out = Terminal()
        shown = self.progress(out)
        shown.start("one")
        shown.done(50)
        self.now = 50
        shown.start("two")
        self.assertNotIn("\n", out.getvalue())
        self.assertIn(" 50 %, 50 s left: two", out.getvalue())

    def test_elsewhere_there_is_a_line_now_and_then(self):
        out = io.StringIO()
        shown = self.progress(out)
        for second in range(0, 100, 10):
            self.now = second
            shown.start("more")
            shown.done(10)
        self.assertEqual(out.getvalue().count("\n"), 4)
        self.assertNotIn("\r", out.getvalue())

    def test_durations(self):
        self.assertEqual([progress.duration(seconds) for seconds in (5, 89, 120, 7200)], ["5 s", "89 s", "2 min", "2.0 h"])
