"""A limit for connecting, where a storage URI names none.

Without one, psycopg waits 130 seconds for a host that does not answer, and pg8000 for ever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import URL, Engine, event

_LEAST = 2
"""Seconds: libpq and psycopg take less than two as two."""

_MOST = 60


class _Driver(NamedTuple):
    """How a driver limits connecting.

    Attributes:
        names: of its arguments.
        relax: lifts a limit that would hold for statements, too.
        variable: of the environment, which sets it as well.
    """

    names: tuple[str, ...]
    relax: Callable[[Any], None] | None = None
    variable: str = ""


def _relax_pg8000(connection: Any) -> None:
    connection._usock.settimeout(None)  # noqa: SLF001 - there is no public way


def _relax_pymysql(connection: Any) -> None:
    connection._read_timeout = None  # noqa: SLF001 - likewise


_LIBPQ = _Driver(("connect_timeout",), variable="PGCONNECT_TIMEOUT")
_DRIVERS = {
    "psycopg": _LIBPQ,
    "psycopg2": _LIBPQ,
    "pg8000": _Driver(("timeout",), _relax_pg8000),
    # Its connect_timeout does not include the server's greeting.
    "pymysql": _Driver(("connect_timeout", "read_timeout"), _relax_pymysql),
    "mysqldb": _Driver(("connect_timeout",)),
}


class ConnectTimeout:
    """The limit for one URL: for each host of several.

    Args:
        url: of the database.
        options: of `create_engine`.
        deadline: of the store.
    """

    def __init__(self, url: URL, options: Mapping[str, Any], deadline: object) -> None:
        self._driver = _DRIVERS.get(url.get_driver_name())
        arguments: Mapping[str, object] = options.get("connect_args") or {}
        if self._driver is not None:
            named = any(name in url.query or name in arguments for name in self._driver.names)
            if named or self._driver.variable in os.environ:
                self._driver = None
        self._seconds = _LEAST
        if isinstance(deadline, int | float) and deadline > _LEAST:
            self._seconds = math.ceil(min(deadline, _MOST))
        self._options = options

    def options(self) -> dict[str, Any]:
        """Return the options of `create_engine` with the limit."""
        if self._driver is None:
            return dict(self._options)
        limits = dict.fromkeys(self._driver.names, self._seconds)
        return {
            **self._options,
            "connect_args": {**limits, **(self._options.get("connect_args") or {})},
        }

    def relax(self, engine: Engine) -> None:
        """Let statements of an engine take longer than connecting."""
        if self._driver is not None and (relax := self._driver.relax) is not None:
            event.listen(engine, "connect", lambda connection, _: relax(connection))
