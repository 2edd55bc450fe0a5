"""An application, its clients and its faults, brought together; a history comes of it."""

import time
from pathlib import Path

from helpers.servers.processes import Gunicorn, environment

from .faults import Workers, plans
from .history import History, history_in
from .load import Load

LEASE = 3.0
INTERVAL = 2.0
MARGIN = 5.0
"""Seconds that are granted beyond the lease: how long Redis or a worker may take to be itself."""

PATIENCE = 60.0
"""Seconds after the last fault in which every client must have had a final answer."""

WORKERS = 4


def application(directory: Path, url: str) -> Gunicorn:
    settings = {"lease": LEASE, "lock_interval": INTERVAL, "key_required": "true"}
    return Gunicorn(
        "proofs.chaos.application:app",
        workers=WORKERS,
        threads=16,
        env=environment(url, **settings, JOURNAL=directory),
        extra=("--timeout=120", "--log-level=warning"),
    )


def play(store, directory: Path, *, seconds: float, seed: int) -> History:
    """Let the clients work while faults strike, then have them finish and look at every key.

    Each kind of fault strikes at least once, however slow the machine is.
    """
    with store, application(directory, store.url) as server:
        workers = Workers(server, directory)
        load = Load(server, seed, long_work=2.2 * LEASE)
        kinds = [*workers.kinds, *store.kinds]
        plan, struck = plans(seed, kinds, LEASE), 0
        load.start()
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until or struck < len(kinds):
                coming, struck = next(plan), struck + 1
                time.sleep(coming.pause)
                (store if coming.kind in store.kinds else workers).do(coming)
        finally:
            workers.end()
            load.end(within=PATIENCE)
        time.sleep(LEASE + MARGIN)
        load.probe()
    history = history_in(directory)
    history.attempts, history.given_up = load.attempts, load.given_up
    history.faults += [*store.faults, *workers.faults]
    history.lease, history.interval = LEASE, INTERVAL
    return history
