"""A claim and its completion in a table, by one thread and by several at once."""

import os
import statistics
import threading
import time

from sqlalchemy import create_engine

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT

WARMING = 50


def measure(name: str, uri: str, threads: int, pairs: int) -> None:
    """Print the median time of a pair, and the CPU time of this process for each."""
    wall, cpu = time_pairs(uri, threads, pairs)
    print(
        f"{name:10} claim and completion, {threads:2} threads: {wall:.3f} ms, {cpu:.3f} ms of CPU"
    )


def time_pairs(uri: str, threads: int, pairs: int) -> tuple[float, float]:
    """Return the median milliseconds of a pair, and those of CPU time for each."""
    store = SqlStore(create_engine(uri, pool_size=threads), deadline=30)
    times: list[float] = []
    start = threading.Barrier(threads + 1)

    def work(count: int) -> None:
        for number in range(WARMING + count):
            if number == WARMING:
                start.wait()
            times.append(_timed_pair(store))

    share = max(1, pairs // threads)
    running = [threading.Thread(target=work, args=(share,)) for _ in range(threads)]
    for each in running:
        each.start()
    start.wait()
    times.clear()
    began = time.process_time()
    for each in running:
        each.join()
    cpu = (time.process_time() - began) * 1000 / (share * threads)
    store.close()
    store.engine.dispose()
    return statistics.median(times), cpu


def _timed_pair(store: SqlStore) -> float:
    key, owner = f"idempotence:2:key:order:{os.urandom(16).hex()}", os.urandom(16)
    started = time.perf_counter()
    store.claim(key, owner, NO_FINGERPRINT, 30, 0)
    store.complete(key, owner, NO_FINGERPRINT, b"r" * 200, 60)
    return (time.perf_counter() - started) * 1000
