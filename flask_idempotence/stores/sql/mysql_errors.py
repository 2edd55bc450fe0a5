"""Errors of MySQL and MariaDB, by their numbers.

https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
https://mariadb.com/kb/en/mariadb-error-code-reference/
"""

from __future__ import annotations

from .dialect import Trouble

_TROUBLES = {
    1020: Trouble.CONFLICT,  # ER_CHECKREAD: changed since the snapshot (MariaDB 11.6 on)
    1213: Trouble.CONFLICT,  # ER_LOCK_DEADLOCK
    3101: Trouble.CONFLICT,  # ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of a group of servers
    1053: Trouble.UNKNOWN,  # ER_SERVER_SHUTDOWN
    1180: Trouble.UNKNOWN,  # ER_ERROR_DURING_COMMIT
    1927: Trouble.UNKNOWN,  # ER_CONNECTION_KILLED
    4031: Trouble.UNKNOWN,  # ER_CLIENT_INTERACTION_TIMEOUT
    1054: Trouble.NOT_READY,  # ER_BAD_FIELD_ERROR
    1146: Trouble.NOT_READY,  # ER_NO_SUCH_TABLE
    1364: Trouble.NOT_READY,  # ER_NO_DEFAULT_FOR_FIELD
    1932: Trouble.NOT_READY,  # ER_NO_SUCH_TABLE_IN_ENGINE
}
_OF_DRIVERS = range(2000, 3000)
"""Errors that the client libraries report: no connection, or a broken one."""

_OUTAGES = {
    1021,  # ER_DISK_FULL
    1028,  # ER_FILSORT_ABORT
    1030,  # ER_GET_ERRNO
    1037,  # ER_OUTOFMEMORY
    1040,  # ER_CON_COUNT_ERROR
    1114,  # ER_RECORD_FILE_FULL
    1203,  # ER_TOO_MANY_USER_CONNECTIONS
    1205,  # ER_LOCK_WAIT_TIMEOUT
    1226,  # ER_USER_LIMIT_REACHED
    1290,  # ER_OPTION_PREVENTS_STATEMENT: read-only
    1317,  # ER_QUERY_INTERRUPTED
    1792,  # ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
    1836,  # ER_READ_ONLY_MODE
    1969,  # ER_STATEMENT_TIMEOUT, of MariaDB
    3024,  # ER_QUERY_TIMEOUT, of MySQL
    3100,  # ER_RUN_HOOK_ERROR, of a group of servers
    *(number for number, trouble in _TROUBLES.items() if trouble is not Trouble.NOT_READY),
}
"""Errors whose cause is not the statement."""


def error_number(error: BaseException) -> int | None:
    """Return the number of an error of any driver; None where it has none."""
    number = getattr(error, "errno", None)  # mysql-connector, and MariaDB's own
    if number is None and error.args:
        number = error.args[0]
    return number if isinstance(number, int) and number > 0 else None


def trouble(error: BaseException) -> Trouble:
    """Return the effect of an error on its statement."""
    number = error_number(error)
    if number is None or number in _OF_DRIVERS:
        return Trouble.UNKNOWN
    return _TROUBLES.get(number, Trouble.REFUSED)


def is_outage(number: int) -> bool:
    """Return whether the cause of an error is the server's state, and not the statement."""
    return number in _OUTAGES or number in _OF_DRIVERS
