"""Version, settings and state of a MySQL or MariaDB server, and the layout of its table."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy import Connection

from ..facts import DatabaseFacts
from .table import KEY_BYTES, NAME, count_expired, missing_parts, now

REMEDY = (
    "Keys must be compared byte by byte, in a table with transactions: migrate it to the layout "
    "that 'flask idempotence init-db --sql' prints."
)

_COUNT = sa.text(
    "SELECT table_rows FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name = :name"
)
_LAYOUT = sa.text(
    "SELECT t.engine AS engine, c.column_type AS type, c.column_key AS indexed "
    "FROM information_schema.tables t LEFT JOIN information_schema.columns c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = 'key' "
    "WHERE t.table_schema = DATABASE() AND t.table_name = :name"
)
_KEY_TYPE = f"varbinary({KEY_BYTES})"
_FACTS = sa.text(
    "SELECT VERSION() AS version, @@read_only AS is_read_only, "
    "@@innodb_flush_log_at_trx_commit AS flush, @@log_bin AS has_log, @@sync_binlog AS sync"
)
_CLOCK = sa.select(now())


def count_all(connection: Connection) -> int | None:
    """Return how many rows there are by the server's estimate."""
    count = connection.execute(_COUNT, {"name": NAME}).scalar()
    return None if count is None else int(count)


def wrong_parts(connection: Connection) -> tuple[str, ...] | None:
    """Return the parts of the table that are not as `metadata` makes them; None without it."""
    layout = connection.execute(_LAYOUT, {"name": NAME}).first()
    if layout is None:
        return None
    checks = {
        "ENGINE=InnoDB": layout.engine == "InnoDB",
        f"key {_KEY_TYPE.upper()} PRIMARY KEY": layout.type == _KEY_TYPE
        and layout.indexed == "PRI",
    }
    return tuple(part for part, is_right in checks.items() if not is_right)


def facts(connection: Connection) -> DatabaseFacts:
    """Return the server's version, settings and state."""
    missing = missing_parts(connection)
    if NAME not in missing:
        missing += wrong_parts(connection) or ()
    sent_at = time.time()
    clock = connection.execute(_CLOCK).scalar_one() / 1000
    answered_at = time.time()
    server = connection.execute(_FACTS).one()
    is_mariadb = "mariadb" in server.version.lower()
    numbers = server.version.partition("-")[0].split(".")
    # https://dev.mysql.com/doc/refman/8.4/en/innodb-parameters.html
    return DatabaseFacts(
        product="MariaDB" if is_mariadb else "MySQL",
        version=tuple(int(number) for number in numbers[:3] if number.isdecimal()),
        oldest=(10, 6) if is_mariadb else (8, 0),
        missing=missing,
        is_primary=not server.is_read_only,
        survives_crash=server.flush == 1 and (not server.has_log or server.sync == 1),
        durability=f"innodb_flush_log_at_trx_commit is {server.flush}, "
        f"sync_binlog is {server.sync}",
        clock_ahead=clock - (sent_at + answered_at) / 2,
        expired=None if missing else count_expired(connection),
    )
