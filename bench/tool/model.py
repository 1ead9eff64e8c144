"""A model of many cores: the throughput of ets_bench by engine and number of threads (docs/internals/many-cores.md).

It is a simulation of discrete events. Threads call operations in a loop. An operation takes the time that it takes alone, and what sharing
adds: the transfer of cache lines that other threads have written, and the wait for locks. Readers-writer locks and locks that whoever comes
first takes have no closed formula, so the model is no queueing network.

All costs are measured by native/bench/examples/many_cores.rs, on at most two threads.
"""

import heapq
import json
import math
import random
import statistics
from dataclasses import dataclass, replace

OPERATIONS = 3000  # simulated for a point, after a third of them to get going
BUCKET_LOCKS = 64
CACHE = 512 * 1024  # bytes of a core's own cache
LINE = 64
BYTES = {"hash": 26, "linear_hash": 40, "ca": 26, "ca_avl": 48, "avl": 48}  # of the table, an object
CONTENDED = 250  # a wait adds so much to a base node's statistic, and an operation without one takes 1 off


@dataclass(frozen=True)
class Machine:
    """What accesses cost, and how threads are placed: they fill the cores of a chip, then share them, then go on to the next chip."""

    transfer: float  # nanoseconds until a thread has a line that another thread of the chip has written
    overlapped: float  # the same for each further line, where a thread reads many
    chip: int = 64  # threads
    cores: int = 64  # of a chip
    far: float = 1  # times a transfer takes between chips
    shared: float = 1  # times as long a thread computes that shares its core

    def move(self, a, b):
        return self.transfer * (1 if a // self.chip == b // self.chip else self.far)

    def mean(self, thread, threads):
        """A transfer from any other thread."""
        first = thread // self.chip * self.chip
        near = min(threads - first, self.chip) - 1
        return self.transfer * (near + self.far * (threads - 1 - near)) / max(1, threads - 1)

    def slowed(self, thread, threads):
        """How many times as long a thread computes as it does alone."""
        place = thread % self.chip
        of_chip = min(threads - thread + place, self.chip)
        return self.shared if place >= self.cores or place + self.cores < of_chip else 1


@dataclass(frozen=True)
class Costs:
    """What was measured in one round, or the medians of all."""

    machine: Machine
    cost: dict  # by name and threads
    alone: dict  # nanoseconds of an operation, by engine, range, and lookup or update
    measured: dict  # the same, by engine, range, lookups and threads
    transfer: dict  # while that was measured with two threads


def load(path):
    """The rounds of a run of the example many_cores."""
    rounds = {}
    with open(path) as lines:
        for row in map(json.loads, lines):
            rounds.setdefault(row["round"], []).append(row)
    return [costs(rows) for rows in rounds.values()]


def costs(rows):
    cost = {(row["cost"], row["threads"]): row["ns"] for row in rows if "cost" in row}
    rows = [row for row in rows if math.isfinite(row["ns"])]  # others have no undisturbed sample
    measured = {(row["engine"], row["range"], row["lookups"], row["threads"]): row["ns"] for row in rows if "lookups" in row}
    alone = {(engine, keys, kind): ns for (engine, keys, share, threads), ns in measured.items() if threads == 1
             for kind in [{100: "lookup", 0: "update"}.get(share)] if kind}
    # A line comes back after four transactions.
    transfer = {(row["engine"], row["range"], row["lookups"]): row["passes"] / 4
                for row in rows if math.isfinite(row.get("passes", math.nan))}
    machine = Machine(statistics.median(transfer.values()), cost["scan of a line written by the other", 2])
    return Costs(machine, cost, alone, measured, transfer)


def medians(rounds):
    def middle(dictionaries):
        dictionaries = list(dictionaries)
        keys = dict.fromkeys(key for each in dictionaries for key in each)
        return {key: statistics.median(each[key] for each in dictionaries if key in each) for key in keys}

    machine = Machine(*(statistics.median(getattr(each.machine, name) for each in rounds) for name in ("transfer", "overlapped")))
    return Costs(machine, *(middle(getattr(each, name) for each in rounds) for name in ("cost", "alone", "measured", "transfer")))


# ---------------------------------------------------------------------------------------------------------------------------------


class Lock:
    """A lock for one writer or several readers. Whoever comes first takes it; those who wait look again when it becomes free. A writer
    that finds readers keeps others out, and waits for the readers to leave."""

    __slots__ = ("writer", "draining", "readers", "waiting", "owner")

    def __init__(self):
        self.writer, self.draining, self.readers, self.waiting, self.owner = False, None, 0, [], None

    def take(self, thread, how):
        """Whether the thread has the lock now. If not, it will be called."""
        if self.writer:
            self.waiting.append((thread, (self, how)))
            return False
        if how == "read":
            self.readers += 1
            return True
        self.writer = True
        self.draining = thread if self.readers else None
        return not self.readers

    def free(self, how):
        """Who is to be called, each with the lock that it asks for again, if it has not got it."""
        if how == "write":
            self.writer = False
            called, self.waiting = self.waiting, []
            return called
        self.readers -= 1
        if self.readers or self.draining is None:
            return []
        called, self.draining = [(self.draining, None)], None
        return called


def simulate(machine, threads, operation, seed=1, operations=OPERATIONS):
    """Operations a nanosecond. `operation(thread, random)` yields what an operation does: a number of nanoseconds to let pass, or
    (lock, how, whether it is freed)."""
    chance = random.Random(seed)
    events = [(chance.random() * 100, thread, thread, None) for thread in range(threads)]
    heapq.heapify(events)
    busy = [operation(thread, chance) for thread in range(threads)]
    number, done, warm, since = threads, 0, operations // 3, 0.0
    while True:
        now, _, thread, again = heapq.heappop(events)
        if again and not again[0].take(thread, again[1]):
            continue
        while True:
            step = next(busy[thread], None)
            if step is None:
                done += 1
                if done == warm:
                    since = now
                if done == warm + operations:
                    return operations / (now - since)
                busy[thread] = operation(thread, chance)
            elif isinstance(step, float):
                number += 1
                heapq.heappush(events, (now + step, number, thread, None))
                break
            else:
                lock, how, freed = step
                if freed:
                    # Those who wait fetch the line. Requests of several cores overlap.
                    for place, (other, wanted) in enumerate(lock.free(how)):
                        number += 1
                        heapq.heappush(events, (now + machine.move(thread, other) + place * machine.overlapped, number, other, wanted))
                elif not lock.take(thread, how):
                    break


# ---------------------------------------------------------------------------------------------------------------------------------


def read_stale(writes, others):
    """The chance that another thread wrote a line since this thread read it, if this share of all accesses to the line are writes."""
    return writes * others / (writes * others + 1)


def read_since(writes, others):
    """The chance that another thread read a line since this thread wrote it, if no other thread has written it."""
    return (1 - writes) * others / ((1 - writes) * others + writes) if others else 0.0


def cached(size):
    """The share of so many bytes that a core's own cache holds. What it does not hold is fetched anew, shared or not."""
    return min(1.0, CACHE / max(size, 1))


class Table:
    """What the operations of an engine do. Half of `keys` keys are in the table. Of 100 operations `lookups` are lookups. Outside of the
    engine an operation takes `outside` nanoseconds. Insertions and deletions change so many `counters` that all threads share."""

    def __init__(self, costs, engine, keys, lookups, threads, machine=None, outside=0.0, counters=0):
        self.machine, self.threads, self.others, self.engine = machine or costs.machine, threads, threads - 1, engine
        self.updates, self.entries, self.outside = 1 - lookups / 100, max(1, keys // 2), outside
        self.lookup, self.update = costs.alone[engine, keys, "lookup"], costs.alone[engine, keys, "update"]
        self.cost = costs.cost
        self.pin = costs.cost["pin", 1]
        self.hold = cached(BYTES[engine] * self.entries)
        self.locks, self.shared, self.counters = {}, Lock(), [Lock() for _ in range(counters)]
        self.readers, self.met = set(), [None] * threads

    def throughput(self, seed=1):
        """Operations a nanosecond, of all threads."""
        return simulate(self.machine, self.threads, self._operation, seed)

    def _operation(self, thread, chance):
        yield from getattr(self, "_" + self.engine)(thread, chance)
        # Every other update adds or removes an entry.
        if self.counters and chance.random() < self.updates / 2:
            for counter in self.counters:
                yield from self._add(thread, counter)

    def _lock(self, number, chance):
        lock = self.locks.get(number)
        if lock is None:
            lock = self.locks[number] = Lock()
            lock.owner = chance.randrange(self.threads)
        return lock

    def _moves(self, thread, lines):
        return self.machine.mean(thread, self.threads) * lines

    def _section(self, thread, lock, time, lines, how="write", kept=1.0):
        """Takes the lock, works for so long, and frees it. If another thread had the lock last, its line is to be moved, unless the cache
        has not `kept` it anyway, and so many other lines. Who waits fetches the line to look, and then gets it for itself."""
        waits = lock.writer
        if lock.owner != thread:
            yield self._moves(thread, kept)
        yield lock, how, False
        stale, lock.owner = lock.owner != thread, thread
        yield time * self.machine.slowed(thread, self.threads) + (self._moves(thread, waits + lines) if stale else 0.0)
        # Those who wait have looked at the lock.
        if lock.waiting or lock.owner != thread:
            yield self._moves(thread, 1)
        yield lock, how, True

    def _add(self, thread, counter):
        """An atomic addition. The line goes from one thread to the next."""
        yield counter, "write", False
        stale, counter.owner = counter.owner != thread, thread
        yield self.cost["atomic addition", 1] + self._moves(thread, stale)
        yield counter, "write", True

    # `hash` and `ca`: whoever reads takes no lock, and begins anew if a writer overtakes it.
    # The marks of a leaf are in `more` lines.
    def _optimistic(self, thread, chance, places, more):
        compute = self.machine.slowed(thread, self.threads)
        update, place, present = chance.random() < self.updates, chance.randrange(places), chance.random() < 0.5
        writes = 0.75 * self.updates
        yield (self.outside + self.pin) * compute
        if update and (present or chance.random() < 0.5):
            lock = self._lock(place, chance)
            # Who meets the same lock held again stays away from it for a while.
            if lock.writer and self.met[thread] is lock:
                yield self.cost["back-off", 1]
            if lock.writer:
                self.met[thread] = lock
            elif lock.owner == thread:
                yield self._moves(thread, self.hold * read_since(writes, self.others))
            yield from self._section(thread, lock, self.update - self.pin, (1 + more) * self.hold, kept=self.hold)
        else:
            alone = self.update if update else self.lookup
            lock = self.locks.get(place)
            lines = (1 + more + 0.5 * present) * self.hold * read_stale(writes, self.others)
            while True:
                owner = lock and lock.owner
                if lock and lock.writer:
                    yield lock, "read", False
                    yield lock, "read", True
                yield (alone - self.pin) * compute + self._moves(thread, lines)
                if not lock or not lock.writer and lock.owner == owner:
                    break

    def _hash(self, thread, chance):
        yield from self._optimistic(thread, chance, max(1, int(self.entries / 6.8)), 0)
        # One insertion and one deletion in eight count in the sample of the load.
        if chance.random() < self.updates / 16:
            yield from self._add(thread, self.shared)

    def _ca(self, thread, chance):
        yield from self._optimistic(thread, chance, max(1, self.entries // 80), 0.5)

    # The engines of the papers: readers lock, too.
    def _blocks(self):
        """Lines that an update moves in the allocator. One update in four frees a block, mostly of another thread's page. One in four takes
        a block that another thread has freed: the page's line and the block's."""
        return 0.75 * self.others / self.threads

    def _linear_hash(self, thread, chance):
        lock = self._lock(chance.randrange(min(BUCKET_LOCKS, 2 * self.entries)), chance)
        before = self.pin + self.cost["table lock, readers", 1]
        yield (self.outside + before) * self.machine.slowed(thread, self.threads)
        if chance.random() < self.updates:
            yield from self._section(thread, lock, self.update - before, 2 * self.hold + self._blocks())
        else:
            lines = 2 * self.hold * read_stale(self.updates, self.others)
            yield from self._section(thread, lock, self.lookup - before, lines, "read")

    def _path(self):
        """Lines of nodes on the way down a tree that another thread has written. A change of a node's height goes up half of the time."""
        lines, size, writes = 0.0, BYTES["avl"] * self.entries, 0.75 * self.updates
        while size >= BYTES["avl"]:
            lines += cached(size) * read_stale(writes, self.others)
            size, writes = size / 2, writes / 2
        return lines

    def _lines(self, update):
        """Every other update also changes the count of entries."""
        return self._path() + (self._blocks() + self.hold + 0.5 if update else 0)

    def _ca_avl(self, thread, chance):
        update = chance.random() < self.updates
        lock = self._lock(chance.randrange(self._bases()), chance)
        yield (self.outside + self.pin) * self.machine.slowed(thread, self.threads)
        time = (self.update if update else self.lookup) - self.pin
        yield from self._section(thread, lock, time, self._lines(update), kept=cached(2 * LINE * self._bases()))

    def _bases(self):
        """Base nodes split until one operation in 251 waits."""
        return max(1, min(self.entries, CONTENDED * self.others))

    def _avl(self, thread, chance):
        compute, lock = self.machine.slowed(thread, self.threads), self.shared
        yield (self.outside + self.pin) * compute
        if chance.random() < self.updates:
            if lock.owner == thread and self.readers:
                yield self._moves(thread, 1)
            yield from self._section(thread, lock, self.update - self.pin + self._scan(thread), self._lines(True))
        else:
            before = self.cost["table lock, readers", 1]
            # Since a writer came, its lock and the line of this thread's group are to be fetched.
            yield before * compute + self._moves(thread, 2 * (self.updates > 0 and thread not in self.readers))
            yield lock, "read", False
            self.readers.add(thread)
            yield (self.lookup - self.pin - before) * compute + self._moves(thread, self._path())
            yield lock, "read", True

    def _scan(self, thread):
        """A writer reads the lines of all groups. Those whose readers came since the last writer are elsewhere."""
        read = len(self.readers - {thread})
        self.readers.clear()
        return self._moves(thread, 1) + (read - 1) * self.machine.overlapped if read else 0.0
