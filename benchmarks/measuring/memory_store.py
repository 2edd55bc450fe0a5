#!/usr/bin/env python3
"""Time single operations of the memory store, while a million keys are held, expire and go.

The clock of the store is the benchmark's own. The slowest operations are told in the processor's
time of the thread, so that no other program counts. The collector of cyclic garbage is off while
operations are timed; its full collections are timed by themselves.
"""

import argparse
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable

from flask_idempotence import MemoryStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Renewal

LIMIT = 0.005  # seconds of a single operation
OWNER = b"o" * 16
ROUND = 20_000
THREADS = 64


def timed(operation: Callable[[str], object], keys: Iterable[str]) -> list[float]:
    """Return the processor's seconds of one operation on each key."""
    times, clock = [], time.thread_time
    for key in keys:
        start = clock()
        operation(key)
        times.append(clock() - start)
    return times


class Now:
    """A clock that stands still."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


class Report:
    """Prints a line for each step, and counts the operations that took too long."""

    def __init__(self) -> None:
        self.slow = 0
        print(f"{'':<52} {'median':>9} {'p99.9':>9} {'slowest':>9}  over {LIMIT * 1000:.0f} ms")

    def show(self, step: str, times: list[float]) -> None:
        p999 = statistics.quantiles(times, n=1000)[-1]
        slow = sum(one > LIMIT for one in times)
        self.slow += slow
        told = (statistics.median(times) * 1e6, p999 * 1e6, max(times) * 1e6)
        print(f"{step:<52} " + " ".join(f"{one:7.1f}µs" for one in told) + f"  {slow}")


def single_operations() -> None:
    """Print what each operation costs by itself, without the time of the loop."""
    now = Now()
    store = MemoryStore(clock=now)
    keys = [f"idempotence:2:lock:orders:{number:032x}" for number in range(ROUND)]
    claim = lambda key: store.claim(key, OWNER, NO_FINGERPRINT, 5.0, 0.0)  # noqa: E731
    other = lambda key: store.claim(key, b"x" * 16, NO_FINGERPRINT, 5.0, 0.0)  # noqa: E731
    steps = {
        "claim": claim,
        "claim, refused": other,
        "renew": lambda key: store.renew([Renewal(key, OWNER, 5.0)]),
        "complete": lambda key: store.complete(key, OWNER, NO_FINGERPRINT, b"record", 60.0),
        "claim, replay": other,
        "put_token": lambda key: store.put_token(key + "t", b"", 60.0),
        "take_token": lambda key: store.take_token(key + "t", b""),
        "remove": store.remove,
        "claim, anew": claim,
        "release": lambda key: store.release(key, OWNER),
    }
    for name, operation in {"": lambda key: key, **steps}.items():
        start = time.perf_counter()
        for key in keys:
            operation(key)
        took = (time.perf_counter() - start) / len(keys)
        print(f"{name or 'an empty call':<52} {took * 1e6:7.2f}µs")
        now.at += 0.1
    start = time.perf_counter()
    for number in range(5 * ROUND):  # a thousand a second, five seconds each
        now.at += 0.001
        claim(f"steady:{number}")
    took = (time.perf_counter() - start) / (5 * ROUND)
    print(f"{'claim, others expiring':<52} {took * 1e6:7.2f}µs")


def claims_expire(report: Report, keys: list[str]) -> None:
    """A full store whose claims all expire in the same moment, and new ones that come."""
    now = Now()
    store = MemoryStore(max_entries=len(keys), clock=now)
    report.show("claim, until full", timed(lambda key: claim(store, key), keys))
    collections(f"with {len(keys):,} claims")
    now.at = 6.0
    new = [f"{key}:new" for key in keys]
    report.show("claim, the others all expired at once", timed(lambda key: claim(store, key), new))
    report.show("release", timed(lambda key: store.release(key, OWNER), new))


def tokens_are_taken(report: Report, keys: list[str]) -> None:
    """Tokens that are taken long before they expire, and others that are put in their place."""
    now = Now()
    store = MemoryStore(max_entries=len(keys), clock=now)
    put = lambda key: store.put_token(key, b"", 300.0)  # noqa: E731
    report.show("put_token, until full", timed(put, keys))
    report.show("take_token", timed(lambda key: store.take_token(key, b""), keys))
    report.show("put_token, anew", timed(put, keys))
    now.at = 301.0
    report.show("put_token, the others all expired at once", timed(put, [f"{k}:n" for k in keys]))


def threads_claim(report: Report, keys: list[str]) -> None:
    """Threads that claim at once, while the claims of others expire."""
    store = MemoryStore(max_entries=len(keys))
    times: list[list[float]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        mine = keys[number::THREADS]
        times[number] = timed(lambda key: store.claim(key, OWNER, NO_FINGERPRINT, 0.5, 0.0), mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    report.show(f"claim, {THREADS} threads", [one for some in times for one in some])
    print(f"{len(keys) / took:,.0f} claims a second")


def claim(store: MemoryStore, key: str) -> object:
    return store.claim(key, OWNER, NO_FINGERPRINT, 5.0, 0.0)


def collections(label: str) -> None:
    """Print the time of full collections: the first, and one when nothing is new."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        gc.collect()
        times.append((time.perf_counter() - start) * 1000)
    print(f"full collections {label}: " + ", ".join(f"{one:.0f} ms" for one in times))


def main() -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="end with 1 if one took too long")
    arguments = parser.parse_args()
    keys = [f"idempotence:2:lock:orders:{number:032x}" for number in range(arguments.keys)]
    gc.collect()
    gc.freeze()
    gc.disable()
    single_operations()
    report = Report()
    claims_expire(report, keys)
    tokens_are_taken(report, keys)
    threads_claim(report, keys)
    return 1 if arguments.check and report.slow else 0


if __name__ == "__main__":
    sys.exit(main())
