"""Error replies: their codes, and whether the command can have taken effect."""

from __future__ import annotations

import re

from redis import exceptions
from redis.exceptions import ResponseError

from ....errors import StoreError
from .link import Reply, deadline

_CLASSES: dict[type[ResponseError], str] = {
    exceptions.AskError: "ASK",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.MovedError: "MOVED",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.NoScriptError: "NOSCRIPT",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.TryAgainError: "TRYAGAIN",
}
"""redis-py cuts the code off where it has a class; before 6 it has fewer of them by default."""

_REFUSED = {*_CLASSES.values(), "BUSY", "MISCONF", "NOAUTH", "NOREPLICAS", "WRONGTYPE"}

# Redis 6 puts the place in the script before the error of a command in it.
_CODE = re.compile(r"(?:Error .*@user_script: ?\d+: -?)?([A-Z]+)\b")


def error_code(reply: ResponseError) -> str:
    """Return the code of an error reply, such as READONLY."""
    if code := _CLASSES.get(type(reply)):
        return code
    found = _CODE.match(str(reply))
    return found[1] if found else ""


def failure(reply: ResponseError) -> StoreError:
    """Return an error reply as an error of the store.

    A refused command has had no effect. Neither has a script with a refused command in it: each
    of ours writes once and last.
    """
    code = error_code(reply)
    kind = exceptions.ReadOnlyError if code == "READONLY" else type(reply)
    sent = deadline.may_have_arrived or code not in _REFUSED
    return StoreError(f"{kind.__name__}: {reply}", sent=sent)


def checked(reply: Reply) -> Reply:
    """Return a reply, or raise the `StoreError` of an error reply."""
    if isinstance(reply, ResponseError):
        raise failure(reply) from reply
    return reply
