"""The rules of `once`, and the names of its operations: a scope and an id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..config.settings import REJECT
from ..engine.guard import (
    FAILURES,
    Complete,
    Ending,
    Finding,
    Guard,
    Plan,
    Question,
    Release,
    Services,
    Settlement,
)
from ..errors import ConfigurationError
from ..request.fingerprint import canonical
from ..response.refusals import Running
from ..stores.base import Done

if TYPE_CHECKING:
    from ..exactly_once.factory import TransactionFactory

SCOPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Id = str | int | UUID | tuple["Id", ...]
"""The id of an operation. `7` and `"7"` are two; a tuple is for ids of several parts."""

NO_ID: Any = object()


def checked_scope(function: str, scope: object) -> str:
    """Return a scope.

    Raises:
        ConfigurationError: it has another form.
    """
    if isinstance(scope, str) and SCOPE.fullmatch(scope):
        return scope
    raise ConfigurationError(
        f"{function}(scope): must be 1 to 64 letters, digits, '_', '.' and '-'."
    )


def plain(id_: object) -> object:
    """Return an id as a JSON value that no other id has.

    Raises:
        TypeError: it is no id.
    """
    if isinstance(id_, UUID):
        return ["uuid", id_.hex]
    if isinstance(id_, tuple) and id_:
        return ["tuple", *map(plain, id_)]
    if isinstance(id_, int) and not isinstance(id_, bool):
        return id_
    if isinstance(id_, str) and id_:
        return id_
    raise TypeError(
        "The id of once() and the name of lock() must be a string that is not empty, an integer, "
        f"a UUID, or a tuple of these, not {type(id_).__name__}."
    )


class OncePlan(Plan[Done]):
    """The rules of one operation of `once`."""

    def __init__(self, guard: OnceGuard, services: Services) -> None:
        self._lease = services.config.lease
        self._ttl = guard.ttl
        self._wait = guard.wait
        self.within = guard.within

    def question_of(self, scope: str, id_: object) -> Question:
        """Ask for an operation by its name.

        Raises:
            TypeError: the id is no id.
        """
        name = canonical(["once", scope, plain(id_)])
        return Question(name, lease=self._lease, wait=self._wait)

    def answer(self, finding: Finding) -> Done:
        """Return the record of an operation that is done.

        Raises:
            Running: it is running.
        """
        found = finding.outcome
        if isinstance(found, Done):
            return found
        raise Running(remaining=getattr(found, "remaining", 0.0))

    def settle(self, ending: Ending) -> Settlement:
        """Remember that the operation is done, or release it."""
        if ending.verdict in FAILURES or ending.record is None:
            return Release()
        return Complete(ending.record, self._ttl)


@dataclass(eq=False)
class OnceGuard(Guard):
    """The arguments of `once` that do not name the operation, checked."""

    mode = "once"
    decorator = "once"
    toggle = "IDEMPOTENCE_ENABLED"

    ttl: float = 0.0
    within: TransactionFactory | None = None
    wait: float = 0.0

    def __post_init__(self) -> None:
        self.on_store_error = None if self.within is None else REJECT

    def plan(self, services: Services, endpoint: str | None) -> OncePlan:
        """Return the plan of an operation."""
        del endpoint
        return OncePlan(self, services)
