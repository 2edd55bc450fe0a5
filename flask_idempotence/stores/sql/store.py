"""A store in a table: every operation is one conditional statement, or two of which one reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ...errors import ConfigurationError, StoreError
from ..base import ClaimOutcome, Entry, Outcome, Renewal, Store, TokenOutcome
from ..facts import DatabaseFacts
from ..process import call_in_children
from ..sql_extra import BATCH
from . import schema
from .dialects import dialect_of
from .link import Link
from .pruning import Pruning
from .table import NAME, TOKEN, TOKEN_AGAIN, milliseconds

T = TypeVar("T")

_PAGE = 500
"""Keys that a scan reads at a time."""

_RACES = 10
"""How often a claim is sent at most: each time, what was in its way has come or gone meanwhile."""


class SqlStore(Store):
    """Claims, records and tokens in a table of a SQLite or PostgreSQL database.

    `flask idempotence init-db` or a migration makes the table; the store never does.

    Args:
        engine: the application's `sqlalchemy.Engine`. Connections are made as it makes them, in a
            pool of the same kind; the engine itself is neither used nor altered.
        deadline: seconds that an operation may take in all.

    Attributes:
        engine: as it was given.

    Raises:
        ConfigurationError: the database is not supported, or is SQLite in memory.
    """

    def __init__(self, engine: Engine, *, deadline: float = 1.0) -> None:
        is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
        if not is_number or not 0 < deadline <= threading.TIMEOUT_MAX:
            raise ConfigurationError("deadline must be a number of seconds greater than 0.")
        self._dialect = dialect_of(engine)
        self.engine = engine
        self._link = Link(engine, self._dialect, deadline)
        self._place: int | None = None
        self._knows_place: bool = False
        self._pruning = Pruning(self.prune)
        call_in_children(self._pruning.forget)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or say what is there."""
        times = (milliseconds(lease), round(keep * 1000))

        def claim(connection: Connection) -> ClaimOutcome:
            for _ in range(_RACES):
                found = self._dialect.claim(connection, key, owner, fingerprint, *times)
                if found is not None:
                    return found
            raise StoreError("The key changed hands again and again.", sent=False)

        outcome = self._link.run(claim, writes=False)  # it looks first
        self._pruning.written()
        return outcome

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, in one round trip and transaction."""
        return self._look(self._dialect.renew, renewals) if renewals else []  # turns by itself

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        values = (key, owner, fingerprint, record, milliseconds(keep))
        return Outcome.STALE if self._run(self._dialect.complete, *values) is None else Outcome.OK

    def complete_in(
        self,
        connection: Connection,
        key: str,
        owner: bytes,
        fingerprint: bytes,
        record: bytes,
        keep: float,
    ) -> Outcome:
        """Replace the claim by a record within the transaction of a connection, if it commits.

        Args:
            connection: to the store's database. It is neither committed nor rolled back.
            key: the store key.
            owner: the claim's.
            fingerprint: the claim's.
            record: what is left behind.
            keep: for how many seconds.

        Returns:
            STALE where the key is another owner's: then the transaction must be rolled back.

        Raises:
            StoreNotReady: the table is not there, or is not the one that is needed.
            ConfigurationError: the connection sees another table of that name.
            sqlalchemy.exc.SQLAlchemyError: anything else, as the connection raises it.
        """
        values = (key, owner, fingerprint, record, milliseconds(keep))
        try:
            written = self._dialect.complete(connection, *values)
        except DBAPIError as error:
            not_ready = self._link.not_ready(error)
            if not_ready is None:
                raise
            raise not_ready from error.orig
        if written is None:
            return Outcome.STALE
        if self._knows_place and getattr(written, "place", None) != self._place:
            self._knows_place = False
            raise ConfigurationError(
                f"The session of within= sees another table {NAME} than the one of the claim: its "
                "search_path leads to another schema (or the table was created anew meanwhile). "
                "Let the path begin with the schema of the store's table, or drop the other one."
            )
        return Outcome.OK

    def know_place(self) -> None:
        """Look up, once, which table the claims are in, so that `complete_in` can compare.

        Call it while no connection is held: behind a pooler there may be no second one.
        """
        if not self._knows_place:
            self._place = self._look(self._dialect.place)
            self._knows_place = True

    def look_up(self, key: str, owner: bytes) -> str | None:
        """Return what an owner has at a key: `"claim"`, `"record"`, or None for nothing.

        After a COMMIT whose answer was lost it tells what was decided: it waits, within the
        deadline, until the transaction that was at the row has ended.
        """
        return self._look(self._dialect.look_up, key, owner)

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        return self._run(self._dialect.release, key, owner)

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        values = (key, subject, milliseconds(ttl), TOKEN_AGAIN if again else TOKEN)
        self._run(self._dialect.put_token, *values, repeatable=False)
        self._pruning.written()

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        return self._run(self._dialect.take_token, key, subject, repeatable=False)

    def peek(self, key: str) -> Entry | None:
        """Return what a key holds, or None."""
        return self.peek_all([key])[0]

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return what each of some keys holds."""
        return self._look(self._dialect.peek, keys) if keys else []

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`, in order, page by page."""
        last = ""
        while True:
            keys = self._look(self._dialect.scan, prefix, last, _PAGE)
            yield from (key for key in keys if key.startswith(prefix))
            if len(keys) < _PAGE:
                return
            last = keys[-1]

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        self._run(self._dialect.remove, key)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold what they were seen to hold."""
        return self._run(self._dialect.discard, seen) if seen else []

    def prune(self, most: int = BATCH) -> int:
        """Remove rows that have expired, `most` at the most; returns how many."""
        return self._run(self._dialect.prune, most)

    def count_all(self) -> int | None:
        """Return roughly how many rows there are; None where the database has not counted them."""
        return self._look(self._dialect.count_all)

    def facts(self) -> Sequence[DatabaseFacts]:
        """Return what the database says of itself."""
        return [self._look(self._dialect.facts)]

    def ping(self) -> None:
        """Return if the database answers and has the table."""
        self._look(self._dialect.ping)

    def close(self) -> None:
        """Close the store's connections; whoever uses it again opens new ones."""
        self._link.close()

    def create_table(self) -> bool:
        """Create the table where there is none of that name, and return whether that was so.

        All of it or nothing, and without a deadline.
        """
        return self._link.run_unhurried(schema.create)

    def ddl(self) -> str:
        """Return the statements that create the table."""
        return schema.ddl(self.engine.dialect)

    def _run(self, work: Callable[..., T], *values: Any, repeatable: bool = True) -> T:
        return self._link.run(lambda connection: work(connection, *values), repeatable=repeatable)

    def _look(self, work: Callable[..., T], *values: Any) -> T:
        return self._link.run(lambda connection: work(connection, *values), writes=False)
