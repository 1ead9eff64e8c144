import json
import tempfile
import unittest
from pathlib import Path

from tool import Problem, protocol, results

RUN = {"record": "run", "otps": [], "experiments": ["toy"]}
POINT = {"otp": "25", "experiment": "toy", "point": "type=set,n=2"}
DECLARED = {"record": "point", **POINT, "flags": "", "seconds": 1, "subjects": ["ets", "cats"]}


class Protocol(unittest.TestCase):
    def test_records(self):
        self.assertEqual(protocol.parse("sample\ttoy\tn=2\tets r\tphase=insert\t1.5e3\n"),
                         {"record": "sample", "experiment": "toy", "point": "n=2", "subject": "ets r", "row": "phase=insert", "figure": 1500})
        self.assertEqual(protocol.parse("point\ttoy\tn=2\t+S 1\t0.5\tets;cats a b\n")["subjects"], ["ets", "cats a b"])

    def test_other_lines_are_none(self):
        for line in ("", "hello\n", "sample\ttoy\n", "sample\ttoy\tn=2\tets\t\tfast\n", "done\ttoy\tn=2\tmore\n"):
            self.assertIsNone(protocol.parse(line), line)

    def test_axes(self):
        self.assertEqual(protocol.axes("type=set,n=2,share=0.5,key={a=b}"), (("type", "set"), ("n", 2), ("share", 0.5), ("key", "{a=b}")))
        self.assertEqual(protocol.axes(""), ())


class File(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "results.jsonl"

    def write(self, *records, end=""):
        self.path.write_text("".join(json.dumps(record) + "\n" for record in records) + end)

    def sample(self, subject, figure, round=1):
        return {"record": "sample", **POINT, "round": round, "subject": subject, "row": "phase=insert", "figure": figure}

    def test_a_cut_off_line_does_not_count_and_is_removed(self):
        self.write(RUN, DECLARED, self.sample("ets", 1.0), end='{"record": "done", "otp": "2')
        self.assertEqual(results.load(self.path).done, set())
        results.cut_off(self.path)
        writer = results.Writer(self.path)
        writer.write("done", **POINT, round=1)
        writer.close()
        self.assertEqual(results.load(self.path.parent).done, {("25", "toy", "type=set,n=2", 1)})

    def test_later_samples_replace_earlier_ones(self):
        self.write(RUN, DECLARED, self.sample("ets", 1.0), self.sample("ets", 2.0), self.sample("ets", 3.0, round=2))
        (row, figures), = results.load(self.path).rows.items()
        self.assertEqual(str(row), "type set, n 2, phase insert")
        self.assertEqual(figures, {"ets": {1: 2.0, 2: 3.0}})

    def test_a_lost_point_is_no_error_once_it_is_done(self):
        lost = {"record": "error", **POINT, "round": 1, "subject": "-", "text": "killed", "lost": True}
        self.write(RUN, DECLARED, lost)
        self.assertEqual(len(results.load(self.path).errors), 1)
        self.write(RUN, DECLARED, lost, {"record": "done", **POINT, "round": 1})
        self.assertEqual(results.load(self.path).errors, [])

    def test_an_exception_stays_an_error(self):
        self.write(RUN, DECLARED, {"record": "error", **POINT, "round": 1, "subject": "ets", "text": "badarg"},
                   {"record": "done", **POINT, "round": 1})
        self.assertEqual(len(results.load(self.path).errors), 1)

    def test_what_is_no_result_file_is_said(self):
        for text, message in [("", "no record of a run"), ("hello\n", "line 1"), ('{"record": "done"}\n', "line 1"), ("[]\n", "line 1"),
                              (json.dumps(RUN) + '\n{"record": "sample"}\n', "line 2")]:
            self.path.write_text(text)
            with self.assertRaisesRegex(Problem, message):
                results.load(self.path)
        with self.assertRaisesRegex(Problem, "No such file"):
            results.load(self.path.parent / "none")
        self.path.write_bytes(b"\xff\xfe\x00")
        with self.assertRaisesRegex(Problem, "not a text file"):
            results.load(self.path)
