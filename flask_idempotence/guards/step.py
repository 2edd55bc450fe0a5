"""`step`: a part of an operation that is carried out once, however often the operation runs."""

from __future__ import annotations

import json
import uuid
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from flask import Flask, current_app, has_request_context, request

from ..engine.claim import Claim
from ..engine.current import operations_around
from ..engine.engine import engine_of
from ..engine.guard import Finding, Question, Unguarded
from ..errors import ConfigurationError
from ..request.proxies import actual
from ..response.headers import note_on
from ..response.refusals import KeyReused
from .blocks import BlockGuard, Id, Remembered, name_of
from .key import KeyGuard
from .once import Once, OnceGuard, checked_scope, is_unguarded
from .wrapping import covers, guards_of

if TYPE_CHECKING:
    from ..exactly_once import Within


@dataclass(eq=False)
class StepGuard(OnceGuard):
    """The rules of a step: those of `once`, for the time of its operation."""

    mode = "step"
    decorator = "step"

    def answer(self, finding: Finding) -> Remembered:
        if not getattr(finding.outcome, "matches", True):
            raise KeyReused
        return super().answer(finding)


class Step(Once):
    """A step of an operation, made by `Idempotence.step`: a context manager.

    Attributes:
        first: whether this block does the work, and sets `result`; else `result` is that of the
            attempt that did it. Setting a value that JSON cannot hold raises a TypeError or a
            ValueError, as does one that is longer than `IDEMPOTENCE_KEY_MAX_BODY`.
        key: a text that is the same each time the operation runs, to hand on as an idempotency
            key; a random one where the operation runs unguarded. Known from the beginning of the
            block.
    """

    def __init__(
        self,
        name: str,
        id: Id | None = None,  # noqa: A002 - its name in the interface
        *,
        within: Within | None = None,
    ) -> None:
        super().__init__(checked_scope("step", name), "-")
        self._text = name_of("step", id=name) if id is None else name_of("step", name, id=id)
        given: dict[str, Any] = {"within": within}
        self._guard = StepGuard(**given)
        self.key: str = ""

    def _checked(self, value: object) -> object:
        # An error leaves the step unfinished: its effect may be repeated with the same key.
        text = json.dumps(value, allow_nan=False)
        if len(text) > engine_of(actual(current_app)).config.key_max_body:
            raise ValueError(
                f"The result of the step {self._part!r} is longer than IDEMPOTENCE_KEY_MAX_BODY."
            )
        return json.loads(text)  # as later attempts read it

    def _question(self, guard: BlockGuard) -> Question | Unguarded:
        operation = self._operation
        if operation is None:
            return Unguarded("a step of an operation that runs unguarded")
        question = guard.question(self._text)
        return question._replace(content=operation.question.content, below=operation.slot.key)

    def __enter__(self) -> Self:
        """Renew the operation's claim, and claim the step, or read its result.

        Raises:
            ConfigurationError: no operation is around it, or it is not one of at-least-once; or
                the operation has had this step already.
            KeyReused: the step was finished for another request with the same key.
            LeaseLost: the operation's claim has ended.
            Running: another attempt holds the step.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        engine = engine_of(actual(current_app))
        operation = self._operation = _operation(engine.services.app, self._part)
        if operation is None:
            self.key = uuid.uuid4().hex
            return super().__enter__()
        if self._text in operation.steps:
            raise ConfigurationError(
                f"This operation has a step {self._part!r} already. Give each its name, or in a "
                "loop its id: step(name, id)."
            )
        operation.steps.add(self._text)
        engine.keeper.ensure_held(operation)
        self._guard = copy(self._guard)
        self._guard.ttl = cast("KeyGuard | OnceGuard", operation.guard).ttl
        self._guard.on_store_error = self._guard.on_store_error or operation.attempt.on_store_error
        name = name_of("step key", operation.slot.key, self._text.hex(), id="-")
        self.key = engine.services.keyring.digest(engine.services.app, name).hex()
        return super().__enter__()


def _operation(app: Flask, step: str) -> Claim | None:
    """Return the claim of the outermost operation; None where it runs unguarded."""
    if found := operations_around(app):
        # Within another's transaction, a step would be done whose writes are rolled back with it.
        if any(claim.question.keep or claim.guard.within is not None for claim in found):
            raise ConfigurationError(
                f"The step {step!r} is part of an operation that is at-most-once or within= a "
                "session, and never runs again: take within= or the guarantee off the route, and "
                "give within= to the step."
            )
        return found[0]
    if is_unguarded():
        return None
    is_unclaimed = False
    if has_request_context():
        note, view = note_on(request), app.view_functions.get(request.endpoint or "")
        is_unclaimed = note.runs_unguarded or any(
            guard.mode == "key" and not covers(guard, request.method)
            for guard in guards_of(view, request.method)
        )
        is_unclaimed &= not any(
            claim.owner and claim.attempt.mode == "key" for claim in note.claims
        )
    if not is_unclaimed and engine_of(app).is_on(app, "IDEMPOTENCE_ENABLED"):
        raise ConfigurationError(
            f"The step {step!r} needs an operation around it: the view of a route with "
            "@idempotent(), or a block of once()."
        )
    return None
