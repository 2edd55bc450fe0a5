"""What an error reply says of the command that it answers."""

from __future__ import annotations

import re

from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from ....errors import StoreError
from .deadline import deadline

_REFUSALS = (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    TryAgainError,
)
"""Those that the client has a class for; it cuts their codes off."""

_CODES = re.compile(
    # A server before Redis 7 tells what a script has met behind its own words.
    r"(?:Error .*@user_script: ?\d+: -?)?"
    r"(?:READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOPERM|NOAUTH|BUSY"
    r"|WRONGTYPE)\b|command not allowed when used memory > 'maxmemory'"
)


def failure(reply: ResponseError) -> StoreError:
    """Return the error that a reply is.

    A server that refuses a command has not carried it out. Of ours each writes once and last, so
    a script that was refused what it needs has had no effect either.
    """
    refused = isinstance(reply, _REFUSALS) or _CODES.match(str(reply)) is not None
    kind = ReadOnlyError if is_read_only(reply) else type(reply)
    return StoreError(f"{kind.__name__}: {reply}", sent=deadline.may_have_arrived or not refused)


def is_read_only(reply: ResponseError) -> bool:
    """Whether a replica has refused to write, be it from within a script (Redis 6)."""
    return isinstance(reply, ReadOnlyError) or "-READONLY" in str(reply)


def is_of_another_type(reply: object) -> bool:
    """Whether a key holds something that is none of ours: not a string."""
    return isinstance(reply, ResponseError) and "WRONGTYPE" in str(reply)
