"""A claim and its completion in a table, by one thread and by several at once."""

import os
import shutil
import statistics
import threading
import time
from contextlib import ExitStack

from helpers.servers.mariadb import MariaDbServer
from measuring.stores import Stores, make_table
from sqlalchemy import create_engine

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT

WARMING = 50

DURABLE = {
    "innodb_flush_log_at_trx_commit": 1,
    "innodb_flush_method": "O_DIRECT",
    "innodb_doublewrite": 1,
}
"""As by default: each commit waits for the disk."""


def measure(stores: Stores, pairs: int) -> None:
    """Print the median time of a pair in each database, and the CPU time of this process."""
    with ExitStack() as stack:
        uris = {name: stores.new_table(name) for name in stores.databases()}
        if shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin"):
            uris["MariaDB"] = stack.enter_context(MariaDbServer(**DURABLE)).new_database()
            make_table(uris["MariaDB"])
        for name, uri in uris.items():
            for threads in (1, 32):
                wall, cpu = time_pairs(uri, threads, pairs)
                print(f"{name:10} {threads:2} threads: {wall:.3f} ms a pair, {cpu:.3f} ms of CPU")


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
