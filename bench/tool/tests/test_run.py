"""The whole of bench/run with an erl that is made up (fake_otp)."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tool import results, run

ERL = Path(__file__).parent / "fake_otp/bin/erl"


class Run(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.out = self.directory / "run"
        (self.directory / "cats.beam").touch()
        for patch in (mock.patch.object(run, "EBIN", self.directory), mock.patch.object(run, "report", return_value=0),
                      mock.patch.dict(os.environ, ERL=str(ERL))):
            patch.start()
            self.addCleanup(patch.stop)

    def bench(self, *words, fake="", patience=60):
        """The exit code of bench/run, with what it printed in self.printed."""
        stderr, stdout = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, FAKE=fake), contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout), \
                mock.patch.object(run.progress.Progress.__init__, "__defaults__", (stderr, run.time.monotonic)):
            try:
                code = run.main(list(words), patience)
            except SystemExit as end:
                code = end.code
        self.printed = stderr.getvalue() + stdout.getvalue()
        return code

    def measure(self, *words, **how):
        return self.bench("--only", "toy", "memory", "--rounds", "2", "--out", str(self.out), *words, **how)

    def results(self):
        return results.load(self.out)

    def assert_complete_but_for(self, *lost):
        """All samples are there, but those of the points `lost`, as (part of the point, round)."""
        found = self.results()
        every = {(*key, number) for key in found.points for number in (1, 2)}
        self.assertEqual(len(every), 14)
        missing = {(*key, number) for key in found.points for part, number in lost for number in [number] if part in key[2]}
        self.assertEqual(found.done, every - missing)
        for row, figures in found.rows.items():
            rounds = {number for number in (1, 2) if (row.otp, row.experiment, row.point, number) not in missing}
            self.assertEqual({subject: set(by) for subject, by in figures.items()},
                             {subject: rounds for subject in found.points[row.otp, row.experiment, row.point]["subjects"]})

    def test_everything_is_measured(self):
        self.assertEqual(self.measure("--seed", "7"), 0)
        self.assert_complete_but_for()
        found = self.results()
        self.assertEqual(found.errors, [])
        self.assertTrue(found.end)
        self.assertEqual([found.run[key] for key in ("size", "rounds", "seed", "experiments")], ["default", 2, 7, ["memory", "toy"]])
        self.assertEqual(found.otps, ["25"])
        self.assertEqual(len(found.vms), 4)  # two rounds, with and without +S 1

    def test_a_vm_that_crashes_costs_one_point_in_one_round(self):
        self.assertEqual(self.measure(fake="crash,once"), 1)
        self.assert_complete_but_for(("n=2", 1))
        errors = self.results().errors
        self.assertEqual([(error["point"], error["round"]) for error in errors], [("type=set,n=2", 1), ("type=ordered_set,n=2", 1)])
        self.assertIn("killed by SIGKILL", errors[0]["text"])
        self.assertIn("Segmentation fault, as it were", errors[0]["text"])
        self.assertIn("type=set,n=2", self.printed)

    def test_a_vm_that_falls_silent_is_ended_and_its_point_not_measured_again(self):
        self.assertEqual(self.measure(fake="silent", patience=0.5), 1)
        self.assert_complete_but_for(("n=2", 1), ("n=2", 2))
        self.assertEqual(["no word for" in error["text"] for error in self.results().errors], [True, True])

    def test_garbage_is_passed_over(self):
        self.assertEqual(self.measure(fake="garbage"), 0)
        self.assert_complete_but_for()

    def test_an_exception_is_an_error_of_its_subject(self):
        self.assertEqual(self.measure(fake="exception,once"), 1)
        self.assert_complete_but_for()
        self.assertEqual([(error["subject"], error["text"]) for error in self.results().errors], [("ets r", "error: badarg")] * 2)

    def test_an_interrupted_run_resumes(self):
        self.assertEqual(self.measure(fake="interrupt"), 130)
        self.assertIn(f"bench/run --resume {self.out}", self.printed)
        before = self.results()
        self.assertFalse(before.end)
        self.assertIn("9 of 14 measurements left", self.printed)
        self.assertEqual(self.bench("--resume", str(self.out)), 0)
        self.assert_complete_but_for()
        after = self.results()
        for row, figures in before.rows.items():
            for subject, rounds in figures.items():
                self.assertEqual({number: after.rows[row][subject][number] for number in rounds}, rounds)

    def test_another_build_does_not_resume(self):
        self.measure(fake="interrupt")
        with mock.patch.object(run.machine, "build", return_value="another"):
            self.assertEqual(self.bench("--resume", str(self.out)), 2)
        self.assertIn("another build", self.printed)

    def test_a_missing_installation_lets_the_others_go_on(self):
        self.assertEqual(self.measure("--otp", "/nowhere", str(ERL.parents[1]), str(self.directory)), 1)
        self.assertIn("/nowhere: no such file or directory; the others go on", self.printed)
        self.assertIn("nor the directory of an Erlang/OTP installation", self.printed)
        self.assert_complete_but_for()
        self.assertEqual(len(self.results().errors), 2)

    def test_no_installation_at_all(self):
        self.assertEqual(self.measure("--otp", "/nowhere"), 2)
        self.assertEqual(self.measure(fake="broken"), 2)
        self.assertIn("erl: cannot start", self.printed)
        self.assertFalse(self.out.exists())

    def test_flags_that_an_erl_does_not_take(self):
        self.assertEqual(self.measure(fake="flags"), 1)
        self.assert_complete_but_for(("n=3", 1), ("n=3", 2))
        self.assertIn("ended with exit code 1; it printed last: bad flag", self.results().errors[0]["text"])

    def test_flags_that_no_erl_takes(self):
        self.assertEqual(self.measure("--schedulers", "99999", fake="refuses"), 2)
        self.assertRegex(self.printed, r"OTP 25 refuses the flags `\+S 99999:99999 -sweep 99999`: bad amount of schedulers\n")
        self.assertNotIn("more text", self.printed)

    def test_an_experiment_that_does_not_declare_itself(self):
        self.assertEqual(self.bench("--rounds", "1", "--out", str(self.out)), 1)
        self.assertEqual([(error["experiment"], error["text"]) for error in self.results().errors], [("ill", "error: undef")])

    def test_bad_arguments(self):
        for words, message in [(["--only", "toys"], "no such experiment: toys; there are memory, toy"), (["--rounds", "0"], "--rounds"),
                               (["--size", "huge"], "invalid choice"), (["--resume", "/nowhere"], "No such file"),
                               (["--resume", "x", "--rounds", "3"], "takes no others"), (["--schedulers", "1,0"], "--schedulers"),
                               (["--resume", "x", "--flags", "+S 1"], "takes no others"), (["--own", "/nowhere.erl"], "no such file"),
                               (["--own", "engines.erl"], "no such file"), (["--out", "/dev/null/x"], "cannot write")]:
            self.assertEqual(self.bench(*words), 2, words)
            self.assertIn(message, self.printed)

    def test_nothing_is_overwritten(self):
        self.measure()
        self.assertEqual(self.measure(), 2)
        self.assertIn("exists already", self.printed)

    def test_a_sweep_measures_every_point_on_each_number_of_schedulers(self):
        self.assertEqual(self.measure("--schedulers", "2,1", "--processes", "4,16", "--flags", "+sbt db"), 0)
        found = self.results()
        self.assertEqual(len(found.points), 14)
        self.assertEqual({(point["point"].split(",")[0], point["flags"].removesuffix(" +S 1")) for point in found.points.values()},
                         {(f"schedulers={n}", f"+sbt db -processes 4 16 +S {n}:{n} -sweep 2") for n in (1, 2)})
        self.assertEqual(found.run["sweep"], "--schedulers 1,2 --processes 4,16 --flags '+sbt db'")

    def test_flags_without_a_sweep(self):
        self.assertEqual(self.measure("--flags=+sbt db"), 0)
        self.assertEqual({point["flags"] for point in self.results().points.values()}, {"+sbt db", "+sbt db +S 1"})

    def test_an_experiment_of_ones_own(self):
        own = self.directory / "toy.erl"
        own.touch()
        self.assertEqual(self.bench("--own", str(own), "--rounds", "1", "--out", str(self.out)), 0)
        self.assertEqual(self.results().run["experiments"], ["toy"])
        self.assertEqual(self.results().run["own"], str(own))
        taken = self.directory / "engines.erl"
        taken.touch()
        self.assertEqual(self.bench("--own", str(taken)), 2)
        self.assertIn("name yours otherwise", self.printed)

    def test_unbuilt(self):
        (self.directory / "cats.beam").unlink()
        self.assertEqual(self.measure(), 2)
        self.assertIn("make build", self.printed)

    def test_list(self):
        self.assertEqual(self.bench("--list"), 0)
        self.assertRegex(self.printed, r"toy +\d+ s +6 points  A toy")
