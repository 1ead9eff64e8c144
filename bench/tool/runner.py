"""Measures a plan: in each round a new VM for each group of points, every record written as it comes.

If a VM ends or falls silent, the point that it was measuring gets an error in that round. The other points go on in a new VM. A point at
which a VM fell silent is not measured again in this run, as it would take that time in every round.
"""

from . import machine, otp as installations, plan
from .vm import Lost, Vm

PATIENCE = 60  # seconds without a word, beyond ten times what the point is expected to take


class Runner:
    def __init__(self, otps, writer, progress, size, seed, patience=PATIENCE):
        self.otps = {otp.label: otp for otp in otps}
        self.writer, self.progress, self.size, self.seed, self.patience = writer, progress, size, seed, patience
        self.errors = 0
        self.silent = set()

    def round(self, number, of, points):
        """Measures these points once."""
        for (label, flags), members in plan.groups([point for point in points if point not in self.silent]):
            what = f"round {number} of {of}, OTP {label}{' ' + flags if flags else ''}"
            while members:
                members = self._in_one_vm(number, what, members)

    def _in_one_vm(self, round, what, points):
        """Measures the points until the VM is lost, and returns those that were not begun."""
        label, flags = points[0].otp, points[0].flags
        command = installations.command(self.otps[label], flags, "run", self.size, str(round), str(self.seed))
        common = {"otp": label, "flags": flags, "round": round}
        vm = Vm(command)
        point, rest = None, points
        try:
            started = vm.record(self.patience)
            self.writer.write(**common, **started, load=machine.load())
            while rest:
                point, rest = rest[0], rest[1:]
                self.progress.start(f"{what}: {point.experiment} {point.point}")
                self._measure(vm, common, point)
                self.progress.done(point.seconds)
            vm.finish()
            return []
        except Lost as lost:
            # A VM that does not start will not do so for the group's next point either.
            given_up, rest = ([point], rest) if point else (rest, [])
            for each in given_up:
                self._error(**common, experiment=each.experiment, point=each.point, subject="-", text=str(lost), lost=True)
                self.progress.done(each.seconds)
            if lost.silent:
                self.silent.update(given_up)
            return rest
        finally:
            vm.close()

    def _measure(self, vm, common, point):
        vm.ask(point.experiment, point.point)
        order = {}
        while True:
            record = vm.record(self.patience + 10 * point.seconds)
            kind = record["record"]
            if (record.get("experiment"), record.get("point")) != (point.experiment, point.point):
                self._error(**common, experiment=point.experiment, point=point.point, subject="-",
                            text=f"the VM reported something else: {record}")
            elif kind == "sample":
                self.writer.write(**common, **record, order=order.setdefault(record["subject"], len(order) + 1))
            elif kind == "error":
                del record["record"]
                self._error(**common, **record)
            elif kind == "done":
                self.writer.write(**common, **record)
                return

    def _error(self, **fields):
        self.errors += 1
        self.writer.write("error", **fields)
        self.progress.say(f"error: OTP {fields['otp']}, round {fields['round']}, {fields['experiment']} {fields['point']}, "
                          f"{fields['subject']}: {fields['text']}")
