"""A limit for connecting, where a storage URI names none.

Without one, psycopg waits 130 seconds for a host that does not answer, and pg8000 for ever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

_LEAST = 2
"""Seconds: libpq and psycopg take less than two as two."""

_MOST = 60

_ARGUMENTS = {
    "psycopg": ("connect_timeout",),
    "psycopg2": ("connect_timeout",),
    "pg8000": ("timeout",),
    # Its connect_timeout does not include the server's greeting.
    "pymysql": ("connect_timeout", "read_timeout"),
    "mysqldb": ("connect_timeout",),
}
"""The arguments by which a driver limits connecting."""


def _relax(connection: DBAPIConnection, _record: object) -> None:
    """Lift a limit that would hold for statements, too; there is no public way."""
    if hasattr(connection, "_usock"):  # of pg8000
        connection._usock.settimeout(None)  # noqa: SLF001
    else:
        connection._read_timeout = None  # noqa: SLF001 - of PyMySQL


def limited_engine(url: URL, options: Mapping[str, Any], deadline: object) -> Engine:
    """Make an engine whose connections are limited, each to one host of several.

    Args:
        url: of the database.
        options: of `create_engine`.
        deadline: of the store.
    """
    driver = url.get_driver_name()
    own: Mapping[str, object] = options.get("connect_args") or {}
    names = _ARGUMENTS.get(driver, ())
    is_named = any(name in url.query or name in own for name in names)
    if is_named or (driver.startswith("psycopg") and "PGCONNECT_TIMEOUT" in os.environ):
        names = ()
    seconds = _LEAST
    if isinstance(deadline, int | float) and deadline > _LEAST:
        seconds = math.ceil(min(deadline, _MOST))
    arguments = {**dict.fromkeys(names, seconds), **own}
    engine = create_engine(url, **{**options, "connect_args": arguments})
    if names and driver in ("pg8000", "pymysql"):
        event.listen(engine, "connect", _relax)
    return engine
