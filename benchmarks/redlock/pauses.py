"""A holder that is frozen past its lease: how many effects happen twice.

Run as `python -m benchmarks.redlock.pauses`, this is the holder: a process whose threads claim a
key each and then wait, together, for a line of input. Before that line it is stopped by SIGSTOP.
"""

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import Idempotence, LeaseLost, SqlStore, current_guard

from .algorithm import RedLock
from .failures import HOST, Counts, RedisServer, all_at_once, new_keys

ROOT = Path(__file__).parents[2]
LEASE = 1.0
"""Seconds."""

PATIENCE = 30
"""Seconds for which a write waits for those of others."""


@dataclass(frozen=True)
class Case:
    """How a key is held, and what is checked before its effect.

    Attributes:
        by: "redlock", "once", or "within" for `once(within=session)`.
        check: whether the holder is frozen "before" or "after" it makes sure of its claim.
        unique: whether a unique index refuses the second effect.
    """

    by: str
    check: str
    unique: bool = False


class Holder:
    """Holds keys in one way, and makes their effects: rows of a table of SQLite.

    Args:
        case: the way.
        ports: of the servers; `once` uses the first.
        database: the file, which has the tables.
    """

    def __init__(self, case: Case, ports: list[int], database: str):
        self._case, self._ports = case, ports
        self._app = Flask("holder")
        self._app.config.update(SECRET_KEY="benchmark-secret", IDEMPOTENCE_LEASE=LEASE)
        self._engine = create_engine(
            f"sqlite:///{database}", connect_args={"timeout": PATIENCE}, pool_size=64
        )
        self._session = scoped_session(sessionmaker(self._engine))
        if case.by == "within":
            self._idempotence = Idempotence(
                self._app, store=SqlStore(self._engine, deadline=PATIENCE)
            )
        else:
            self._app.config["IDEMPOTENCE_STORAGE_URI"] = f"redis://{HOST}:{ports[0]}/0"
            self._idempotence = Idempotence(self._app)

    def run(self, key: str, pause: Callable[[], object]) -> bool:
        """Claim a key, pause, and make its effect; return whether the claim was granted."""
        try:
            if self._case.by == "redlock":
                return self._by_redlock(key, pause)
            return self._by_once(key, pause)
        finally:
            self._session.remove()

    def _by_redlock(self, key: str, pause: Callable[[], object]) -> bool:
        with closing(RedLock([(HOST, port) for port in self._ports])) as lock:
            held = lock.claim(key, LEASE)
            if held is not None and self._around(pause, lambda: held.is_valid):
                self._effect(key)
                self._session.commit()
            return held is not None

    def _by_once(self, key: str, pause: Callable[[], object]) -> bool:
        within = {"within": self._session} if self._case.by == "within" else {}
        granted = False
        try:
            with self._app.app_context(), self._idempotence.once("effect", key, **within) as job:
                granted = job.first
                if granted and self._around(pause, _is_held):
                    self._effect(key)
                    if not within:
                        self._session.commit()
        except LeaseLost:  # within: nothing was committed
            pass
        return granted

    def _around(self, pause: Callable[[], object], check: Callable[[], bool]) -> bool:
        if self._case.check == "before":
            pause()
            return check()
        is_held = check()
        pause()
        return is_held

    def _effect(self, key: str) -> None:
        self._session.execute(text("INSERT OR IGNORE INTO effects VALUES (:key)"), {"key": key})


def _go_on() -> None:
    """Do not pause."""


def _is_held() -> bool:
    try:
        current_guard.ensure_held()
    except LeaseLost:
        return False
    return True


def freeze(claims: int, case: Case, *, servers: int = 1) -> Counts:
    """Freeze a process that holds claims, until a second caller has been granted them.

    Returns:
        The counts, with effects that happened twice in place of claims that were granted twice.
    """
    keys = new_keys(claims)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        ports = [stack.enter_context(RedisServer()).port for _ in range(servers)]
        database = f"{directory}/effects.db"
        _prepare(database, case)
        order = {"case": asdict(case), "ports": ports, "database": database, "keys": keys}
        command = [sys.executable, "-m", f"{__package__}.pauses", json.dumps(order)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        try:
            granted = json.loads(child.stdout.readline() or "0")  # it holds them by now
            with closing(sqlite3.connect(database, timeout=PATIENCE)) as writer:
                writer.execute("BEGIN IMMEDIATE")  # frozen in a write, it would lock all out
                child.send_signal(signal.SIGSTOP)
                os.waitpid(child.pid, os.WUNTRACED)
            time.sleep(LEASE + 0.1)
            rival = Holder(case, ports, database)
            if not all(all_at_once([lambda key=key: rival.run(key, _go_on) for key in keys])):
                raise RuntimeError("The second caller was refused: the leases had not ended.")
            child.stdin.write("go\n")
            child.stdin.flush()
            child.send_signal(signal.SIGCONT)
            if child.wait(60):
                raise RuntimeError("The holder failed.")
        finally:
            child.kill()
            child.communicate()
        return Counts(granted, claims - granted, _twice(database))


def _prepare(database: str, case: Case) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # nor does a reader that is frozen
        connection.execute("CREATE TABLE effects (key TEXT NOT NULL)")
        if case.unique:
            connection.execute("CREATE UNIQUE INDEX once_each ON effects (key)")
        connection.commit()
    SqlStore(create_engine(f"sqlite:///{database}")).create_table()


def _twice(database: str) -> int:
    query = "SELECT COUNT(*) FROM (SELECT 1 FROM effects GROUP BY key HAVING COUNT(*) > 1)"
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchone()[0]


def main() -> None:
    """Hold the keys of an order, and go on when a line comes."""
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)  # leases are lost on purpose
    order = json.loads(sys.argv[1])
    keys = order["keys"]
    holder = Holder(Case(**order["case"]), order["ports"], order["database"])

    def together() -> None:
        print(len(keys), flush=True)
        sys.stdin.readline()

    barrier = threading.Barrier(len(keys), together)
    all_at_once([lambda key=key: holder.run(key, barrier.wait) for key in keys])


if __name__ == "__main__":
    main()
