"""Why a store does not answer: a sentence and a remedy, in place of the driver's own words.

Those quote addresses, users and names of databases.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import click

from ..errors import IdempotenceError, StoreError, StoreNotReady
from .output import escaped

_URI = "IDEMPOTENCE_STORAGE_URI"


class Cause(NamedTuple):
    sentence: str
    remedy: str


# Each has a pattern in the error of redis-py or of a database's driver; the first match counts.
_CAUSES = (
    (
        r"AuthenticationError|WRONGPASS|NOAUTH|\((1045|1698|2059|2061)\b|'28(P01|000)'|pg_hba\.conf"
        r"|password authentication|no password|role \".*\" does not exist",
        "The server refuses the user or the password",
        f"Correct them in {_URI}, percent-encoded. If they are right, the server may not let this "
        "user in from this machine, or without TLS.",
    ),
    (
        r"SSL|TLS|certificate|\(2026\b",
        "The TLS connection to the server fails",
        f"Compare the options of TLS in {_URI} with the server's: whether it speaks TLS, its "
        "certificate and authority, and whether it demands a certificate of the client.",
    ),
    (
        r"-\d+\] |Error -\d+ connecting|Name or service not known|resolve|translate host|getaddr",
        "The server's host name is not found",
        f"Correct the host in {_URI}, or the name service of this machine.",
    ),
    (
        r"[Cc]onnection refused|Err(no|or) (111|61|10061)\b",
        "The server's host refuses the connection",
        f"Start the server, or correct host and port in {_URI}.",
    ),
    (
        r"[Tt]imeout|timed out|took too long",
        "The server does not answer in time",
        f"Compare host, port and scheme in {_URI} with the server's, TLS included; look for a "
        "firewall. If the server is only slow, raise deadline in IDEMPOTENCE_STORAGE_OPTIONS.",
    ),
    (
        r"DB index is out|\(1049\b|'3D000'|database \".*\" does not exist|unable to open database"
        r"|not a database",
        "The server has no such database",
        f"Create it, or correct its name in {_URI}. Redis knows databases by numbers, and SQLite "
        "by a path to a file in a directory that exists and may be written.",
    ),
    (
        r"\(1044\b",
        "The user of the store has no access to the database, or its name is wrong",
        f"Correct the name in {_URI}, or grant the user SELECT, INSERT, UPDATE, DELETE and CREATE "
        "on the database. MySQL names no missing database to a user without rights.",
    ),
    (
        r"ReadOnly|'25006'|\((1290|1792|1836)\b|readonly database",
        "The server takes no writes",
        f"A replica is read-only: name the primary in {_URI}. A file of SQLite must be writable, "
        "as must its directory.",
    ),
    (
        r"NoPermission|InsufficientPrivilege|'42501'|\((1142|1143|1227)\b",
        "The user of the store lacks a permission",
        "Redis: allow the commands and keys on the page about the keyspace. A database: grant "
        "SELECT, INSERT, UPDATE and DELETE on flask_idempotence, and CREATE for init-db.",
    ),
    (
        r"too many (connections|clients)|max number of clients|\((1040|1203|1226)\b|'53300'",
        "The server takes no more connections",
        "Raise the server's limit, or lower the number of processes and threads.",
    ),
    (
        r"OutOfMemory|\(1021\b|'53100'|disk is full",
        "The server is full",
        "Give it more room. 'flask idempotence stats' shows the size of each endpoint's entries.",
    ),
    (
        r"onnection is lost|[Cc]onnection reset|closed by server|gone away|\((2006|2013)\b",
        "The server closes the connection",
        f"Its log says why. If it speaks TLS, so must {_URI} (rediss://).",
    ),
)


def text_of(error: click.ClickException | IdempotenceError) -> str:
    if isinstance(error, StoreError):
        text = " ".join(cause_of(error))
    else:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return escaped(text, layout="\n")


def cause_of(error: StoreError) -> Cause:
    if isinstance(error, StoreNotReady):
        return Cause("The store is not set up.", error.remedy)
    for pattern, sentence, remedy in _CAUSES:
        if re.search(pattern, str(error)):
            return Cause(f"{sentence} ({error.kind}).", remedy)
    remedy = f"Look at the server and its log, and compare {_URI} with them."
    return Cause(f"The store does not answer ({error.kind}).", remedy)
