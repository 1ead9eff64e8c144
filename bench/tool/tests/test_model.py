import unittest
from dataclasses import replace

from tool import model

MACHINE = model.Machine(transfer=100.0, overlapped=10.0)


def costs(**alone):
    """Round figures: a lookup takes 100 ns and an update 200 ns, in all engines and ranges."""
    cost = {(name, 1): ns for name, ns in (("pin", 5.0), ("table lock, readers", 10.0), ("atomic addition", 3.0), ("back-off", 1000.0))}
    engines, ranges = ("hash", "linear_hash", "ca", "ca_avl", "avl"), (8, 1024, 1 << 21)
    kinds = {"lookup": 100.0, "update": 200.0, **alone}
    return model.Costs(MACHINE, cost, {(e, keys, kind): ns for e in engines for keys in ranges for kind, ns in kinds.items()}, {}, {})


def throughput(engine, keys, lookups, threads, machine=MACHINE, **options):
    """Million operations a second."""
    return 1000 * model.Table(costs(), engine, keys, lookups, threads, machine, **options).throughput()


class Simulate(unittest.TestCase):
    def rate(self, threads, operation):
        return model.simulate(MACHINE, threads, operation, operations=2000)

    def test_threads_that_share_nothing_add_up(self):
        def operation(thread, chance):
            yield 50.0

        for threads in (1, 8):
            self.assertAlmostEqual(threads / 50, self.rate(threads, operation), delta=0.01 * threads / 50)

    def test_one_lock_lets_one_thread_at_a_time_in(self):
        lock = model.Lock()

        def operation(thread, chance):
            yield lock, "write", False
            yield 50.0
            yield lock, "write", True

        self.assertAlmostEqual(1 / 50, self.rate(1, operation), delta=0.001)
        self.assertLessEqual(self.rate(16, operation), 1.01 / 50)

    def test_readers_share_and_a_writer_waits_for_them(self):
        lock, inside = model.Lock(), {"read": 0, "write": 0}

        def operation(thread, chance):
            how = "write" if chance.random() < 0.1 else "read"
            yield 20.0
            yield lock, how, False
            inside[how] += 1
            self.assertTrue(inside["write"] == 0 or (inside["write"], inside["read"]) == (1, 0))
            yield 50.0
            inside[how] -= 1
            yield lock, how, True

        self.assertGreater(self.rate(8, operation), 1.5 / 50)

    def test_the_same_seed_gives_the_same_result(self):
        self.assertEqual(throughput("avl", 1024, 80, 8), throughput("avl", 1024, 80, 8))


class Tables(unittest.TestCase):
    def test_one_thread_takes_the_time_of_the_mix(self):
        for engine in ("hash", "linear_hash", "ca", "ca_avl", "avl"):
            self.assertAlmostEqual(1000 / 150, throughput(engine, 1024, 50, 1), delta=0.05 * 1000 / 150, msg=engine)

    def test_lookups_of_optimistic_engines_scale_and_updates_under_one_lock_do_not(self):
        for engine in ("hash", "ca", "avl"):
            self.assertGreater(throughput(engine, 1 << 21, 100, 64), 0.95 * 64 * 10)
        self.assertLess(throughput("avl", 1 << 21, 0, 64), 1.05 * throughput("avl", 1 << 21, 0, 1))
        self.assertGreater(throughput("ca_avl", 1 << 21, 0, 64), 15 * throughput("avl", 1 << 21, 0, 64))

    def test_few_updates_bend_the_curve_of_one_lock(self):
        self.assertGreater(throughput("avl", 1 << 21, 99, 8), 2 * throughput("avl", 1 << 21, 80, 8))

    def test_a_shared_counter_bounds_updates(self):
        free, counted = (throughput("linear_hash", 1 << 21, 0, 64, counters=counters) for counters in (0, 1))
        # Every other update moves the counter's line.
        self.assertLess(counted, 2 * 1000 / MACHINE.transfer * 1.1)
        self.assertGreater(free, counted)

    def test_a_reader_that_a_writer_overtook_begins_anew(self):
        # Lines move at no cost, so only locks and restarts slow the threads down. Without restarts there would be 40 million.
        free = replace(MACHINE, transfer=0.0, overlapped=0.0)
        self.assertLess(throughput("hash", 8, 90, 8, free), 36)


class Machines(unittest.TestCase):
    def test_transfers_between_chips_take_longer(self):
        chips = replace(MACHINE, chip=16, cores=8, far=3.0, shared=1.5)
        self.assertEqual((100.0, 300.0), (chips.move(0, 15), chips.move(15, 16)))
        self.assertEqual(100.0, chips.mean(3, 16))
        self.assertAlmostEqual((15 * 100 + 16 * 300) / 31, chips.mean(3, 32))

    def test_threads_share_a_core_when_those_of_the_chip_are_taken(self):
        chips = replace(MACHINE, chip=16, cores=8, shared=1.5)
        self.assertEqual([1] * 8, [chips.slowed(thread, 8) for thread in range(8)])
        self.assertEqual([1.5, 1, 1, 1, 1, 1, 1, 1, 1.5], [chips.slowed(thread, 9) for thread in range(9)])
        self.assertEqual(1, chips.slowed(16, 17))


class Chances(unittest.TestCase):
    def test_staleness(self):
        self.assertEqual(0, model.read_stale(0.5, 0))
        self.assertEqual(0, model.read_stale(0, 63))
        self.assertEqual(0.5, model.read_stale(1, 1))
        self.assertEqual(0, model.read_since(1, 63))
        self.assertEqual(1, model.cached(1))
        self.assertEqual(0.5, model.cached(2 * model.CACHE))
