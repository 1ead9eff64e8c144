"""What differs between two runs, and what is noise.

The unit of chance is the round, as each round has VMs of its own. Three things are compared:

- a row, by the logarithms of its ratio to ets within each round (of its own figure where ets is no subject)
- an experiment, by the trimmed means of these over its rows, round by round
- all experiments of cats with its defaults together, in the same way

So a change of all rows shows even where no single row could show it. A few rows that jump between two figures (ets under contention) do
not hide it.

The test is Student's t-test for two samples. A handful of rounds gives a poor estimate of the variance. So it is moderated by those of
the experiment's other rows: Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression" (2004), sections 4
and 6.2. Holm's method corrects for the number of tests, for rows and for experiments separately. The chance that any verdict on
experiments is wrong is LEVEL. The same holds for rows.

The ratio removes what slowed both subjects alike. Other programs that fill the caches slow them unlike. That effect is assumed to be at
most half of the change of ets itself. A smaller change is put down to the machine.
"""

import math
from dataclasses import dataclass

import numpy
from scipy import optimize, special, stats

from . import statistics

LEVEL = 0.01
POWER = 0.8
ALL = "all"  # the name of all experiments together
TRIMMED = 0.25  # share of the rows that is left out at each end
IRRELEVANT = math.log(1.01)  # a smaller change is no difference
MACHINE = 0.5  # share of the change of ets that a change of the ratio may be due to


@dataclass
class Test:
    """A change from run A to run B, of logarithms by round, more than 0 for the better. `row` is None for a whole experiment.

    `machine` is how much ets itself changed, or None without ets.
    """

    experiment: str
    otp: str
    subject: str
    row: object
    rows: int
    a: dict
    b: dict
    machine: float

    def __post_init__(self):
        samples = [numpy.array(list(values.values())) for values in (self.a, self.b)]
        self.change = samples[1].mean() - samples[0].mean()
        self.degrees = sum(map(len, samples)) - 2
        self.variance = sum(((sample - sample.mean()) ** 2).sum() for sample in samples) / self.degrees
        self.weight = sum(1 / len(sample) for sample in samples)

    def judge(self, variance, degrees, level):
        """Sets the half width of the confidence interval, the change that POWER of all comparisons would see, and the verdict."""
        error = math.sqrt(variance * self.weight)
        self.half = stats.t.ppf(1 - level / 2, degrees) * error
        self.unseen = max(IRRELEVANT, MACHINE * abs(self.machine or 0))
        self.visible = max(self.unseen, self.half + stats.t.ppf(POWER, degrees) * error)
        self.significant = abs(self.change) > self.half
        self.differs = self.significant and abs(self.change) > self.unseen


def compare(a, b):
    """The tests of whole experiments and of all of them together, those of rows, and how many rows could not be compared."""
    rows, left_out = [], 0
    for row in {**a.rows, **b.rows}:
        tests = tests_of(row, a.rows.get(row, {}), b.rows.get(row, {}), (a if row in a.rows else b).better(row.experiment))
        rows += tests
        left_out += not tests
    groups = {}
    for test in rows:
        groups.setdefault((test.experiment, test.otp, test.subject), []).append(test)
    experiments = [whole(experiment, tests) for (experiment, _, _), tests in groups.items()]
    for tests, experiment in zip(groups.values(), experiments):
        for test in tests:
            test.machine = experiment.machine
    for otp in dict.fromkeys(otp for _, otp, _ in groups):
        of_all = [test for test in rows if test.otp == otp and test.subject == statistics.OWN]
        if len({test.experiment for test in of_all}) > 1:
            experiments.append(whole(ALL, of_all))
    judge(experiments, [experiments])
    judge(rows, groups.values())
    return experiments, rows, left_out


def tests_of(row, a, b, better):
    """A test for each subject but ets that has two rounds at least in both runs."""
    subjects = [subject for subject in a if subject in b]
    base = statistics.best_ets({subject: {(run, number): figure for run, figures in enumerate((a, b))
                                          for number, figure in figures[subject].items()} for subject in subjects}, better)
    machine = None
    if base:
        of_ets = [logarithms(figures[base], better) for figures in (a, b)]
        if all(of_ets):
            machine = numpy.mean(list(of_ets[1].values())) - numpy.mean(list(of_ets[0].values()))
    tests = []
    for subject in subjects:
        if statistics.is_ets(subject):
            continue
        samples = [logarithms(statistics.ratios(figures, subject, base, better), "higher") if base
                   else logarithms(figures[subject], better) for figures in (a, b)]
        if min(map(len, samples)) >= 2:
            tests.append(Test(row.experiment, row.otp, subject, row, 1, *samples, machine))
    return tests


def logarithms(figures, better):
    """By round, more for the better."""
    sign = 1 if better == "higher" else -1
    return {number: sign * math.log(figure) for number, figure in figures.items() if figure > 0}


def whole(name, tests):
    """The test of an experiment, or of all: round by round, the trimmed mean of what its rows deviate by from their middle."""
    middle = [(numpy.mean(list(test.a.values())) + numpy.mean(list(test.b.values()))) / 2 for test in tests]

    def means(run):
        rounds = sorted({number for test in tests for number in getattr(test, run)})
        return {number: stats.trim_mean([getattr(test, run)[number] - at for test, at in zip(tests, middle)
                                         if number in getattr(test, run)], TRIMMED) for number in rounds}

    machine = [test.machine for test in tests if test.machine is not None]
    return Test(name, tests[0].otp, tests[0].subject, None, len(tests), means("a"), means("b"),
                numpy.mean(machine) if machine else None)


def judge(tests, alike):
    """Judges all tests by Holm's method, each with its variance moderated by those that are alike. Without variance there is no chance."""
    judged = []
    for members in alike:
        prior_degrees, prior = prior_of(members)
        for test in members:
            variance, degrees = test.variance, test.degrees
            if math.isinf(prior_degrees) and variance > 0:
                variance, degrees = prior, prior_degrees
            elif variance > 0:
                degrees += prior_degrees
                variance = (prior_degrees * prior + test.degrees * test.variance) / degrees
            error = math.sqrt(variance * test.weight)
            chance = 2 * stats.t.sf(abs(test.change) / error, degrees) if error > 0 else float(test.change == 0)
            judged.append((chance, variance, degrees, test))
    standing = True
    for number, (_, variance, degrees, test) in enumerate(sorted(judged, key=lambda each: each[0])):
        test.judge(variance, degrees, LEVEL / (len(tests) - number))
        standing = standing and test.significant
        test.differs = test.differs and standing


def prior_of(tests):
    """Degrees of freedom and value of the variance that these tests have in common (Smyth 2004, section 6.2)."""
    known = [test for test in tests if test.variance > 0]
    if len(known) < 3:
        return 0, 0
    half = numpy.array([test.degrees for test in known]) / 2
    deviations = numpy.log([test.variance for test in known]) - special.digamma(half) + numpy.log(half)
    excess = deviations.var(ddof=1) - special.polygamma(1, half).mean()
    if excess <= 0:
        return math.inf, math.exp(deviations.mean())
    half_prior = optimize.brentq(lambda value: special.polygamma(1, value) - excess, 1e-9, 1e9)
    return 2 * half_prior, math.exp(deviations.mean() + special.digamma(half_prior) - math.log(half_prior))
