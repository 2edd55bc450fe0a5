"""Detecting a connection pooler, such as PgBouncer, between a driver and PostgreSQL."""

from __future__ import annotations

from typing import Any


def is_direct(connection: Any, cursor: Any) -> bool:
    """Whether a connection leads to its own server process, so that its session is not shared.

    At the start of a connection, PostgreSQL sends the number of the process that serves it. A
    pooler answers in the server's place, with a number that it has made up. A driver that does
    not tell the number counts as pooled, which is slower and always right.

    Args:
        connection: the driver's own, in autocommit mode.
        cursor: one of its cursors.
    """
    told = _backend_told_at_start(connection)
    if told is None:
        return False
    cursor.execute("SELECT pg_backend_pid()")
    return bool(cursor.fetchone()[0] == told)


def prepares_by_name(connection: Any) -> bool:
    """Whether a driver's connection prepares repeated statements under names, as psycopg does."""
    return getattr(connection, "prepare_threshold", None) is not None


def _backend_told_at_start(connection: Any) -> int | None:
    info = getattr(connection, "info", None)  # psycopg, psycopg2
    told = getattr(info, "backend_pid", None)
    if told is None:
        data = getattr(connection, "_backend_key_data", None)  # pg8000
        told = int.from_bytes(data[:4]) if isinstance(data, bytes) else None
    return told if isinstance(told, int) else None
