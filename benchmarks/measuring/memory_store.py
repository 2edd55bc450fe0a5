"""Single operations of the memory store, while many keys are held, expire and go.

The clock of the store is the benchmark's own. The slowest operations are told in the processor's
time of the thread, so that no other program counts. The collector of cyclic garbage is off.
"""

import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterable

from flask_idempotence import MemoryStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Renewal
from flask_idempotence.testing import FakeClock

LIMIT = 0.005  # seconds of a single operation
OWNER = b"o" * 16
ROUND = 20_000
THREADS = 64


def measure(count: int) -> int:
    """Print what operations take; return how many of them took too long."""
    keys = [f"idempotence:2:lock:orders:{number:032x}" for number in range(count)]
    gc.collect()
    gc.freeze()
    gc.disable()
    _single_operations(keys[:ROUND])
    print(f"{'':<52} {'median':>9} {'p99.9':>9} {'slowest':>9}  over {LIMIT * 1000:.0f} ms")
    return _claims_expire(keys) + _tokens_are_taken(keys) + _threads_claim(keys)


def _single_operations(keys: list[str]) -> None:
    """Print what each operation costs by itself, the time of the loop included."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    steps = {
        "an empty call": lambda key: key,
        "claim": lambda key: _claim(store, key),
        "claim, refused": lambda key: _claim(store, key, b"x" * 16),
        "renew": lambda key: store.renew([Renewal(key, OWNER, 5.0)]),
        "complete": lambda key: store.complete(key, OWNER, NO_FINGERPRINT, b"record", 60.0),
        "claim, replay": lambda key: _claim(store, key, b"x" * 16),
        "put_token": lambda key: store.put_token(key + "t", b"", 60.0),
        "take_token": lambda key: store.take_token(key + "t", b""),
        "remove": store.remove,
        "claim, anew": lambda key: _claim(store, key),
        "release": lambda key: store.release(key, OWNER),
    }
    for name, operation in steps.items():
        start = time.perf_counter()
        for key in keys:
            operation(key)
        took = (time.perf_counter() - start) / len(keys)
        print(f"{name:<52} {took * 1e6:7.2f}µs")
        clock.advance(0.1)


def _claims_expire(keys: list[str]) -> int:
    """A full store whose claims all expire in the same moment, and new ones that come."""
    clock = FakeClock()
    store = MemoryStore(max_entries=len(keys), clock=clock)
    slow = _show("claim, until full", _timed(lambda key: _claim(store, key), keys))
    clock.advance(6.0)
    new = [f"{key}:new" for key in keys]
    times = _timed(lambda key: _claim(store, key), new)
    slow += _show("claim, the others all expired at once", times)
    return slow + _show("release", _timed(lambda key: store.release(key, OWNER), new))


def _tokens_are_taken(keys: list[str]) -> int:
    """Tokens that are taken long before they expire, and others that are put in their place."""
    clock = FakeClock()
    store = MemoryStore(max_entries=len(keys), clock=clock)
    put = lambda key: store.put_token(key, b"", 300.0)  # noqa: E731
    slow = _show("put_token, until full", _timed(put, keys))
    slow += _show("take_token", _timed(lambda key: store.take_token(key, b""), keys))
    slow += _show("put_token, anew", _timed(put, keys))
    clock.advance(301.0)
    times = _timed(put, [f"{key}:new" for key in keys])
    return slow + _show("put_token, the others all expired at once", times)


def _threads_claim(keys: list[str]) -> int:
    """Threads that claim at once, while the claims of others expire."""
    store = MemoryStore(max_entries=len(keys))
    times: list[list[float]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        times[number] = _timed(lambda key: _claim(store, key, lease=0.5), keys[number::THREADS])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    slow = _show(f"claim, {THREADS} threads", [one for some in times for one in some])
    print(f"{len(keys) / took:,.0f} claims a second")
    return slow


def _claim(store: MemoryStore, key: str, owner: bytes = OWNER, lease: float = 5.0) -> object:
    return store.claim(key, owner, NO_FINGERPRINT, lease, 0.0)


def _timed(operation: Callable[[str], object], keys: Iterable[str]) -> list[float]:
    """Return the processor's seconds of one operation on each key."""
    times, clock = [], time.thread_time
    for key in keys:
        start = clock()
        operation(key)
        times.append(clock() - start)
    return times


def _show(step: str, times: list[float]) -> int:
    """Print the times of a step; return how many were too long."""
    p999 = statistics.quantiles(times, n=1000)[-1]
    slow = sum(one > LIMIT for one in times)
    told = (statistics.median(times) * 1e6, p999 * 1e6, max(times) * 1e6)
    print(f"{step:<52} " + " ".join(f"{one:7.1f}µs" for one in told) + f"  {slow}")
    return slow
