"""What a mode tells the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..signals import completed
from ..stores.base import Completion, Outcome

if TYPE_CHECKING:
    from blinker import NamedSignal
    from flask import Request, Response

    from ..config.settings import Config
    from .claim import Attempt, Hold
    from .engine import Engine

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a hold ends.

    Attributes:
        signal: what is announced once it has ended so.
        operation: the name of what the store is told.
        call: tells it; None where there is nothing to tell.
        repeatable: whether the keeper may go on trying.
        keeps_claim: whether the claim is renewed until the store has been told, for otherwise the
            view would run again.
        completion: what the store is told, where the hold ends by a record.
    """

    signal: NamedSignal
    operation: str = "settle"
    call: Callable[[], Outcome] | None = None
    repeatable: bool = True
    keeps_claim: bool = False
    completion: Completion | None = None


KEPT = Settlement(completed)
"""Nothing to tell the store: what it holds ends by itself at the right time."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a guard has to show instead of a run of the view.

    Attributes:
        response: the remembered response.
    """

    response: Response


class Guard(ABC):
    """What one mode does in its own way with what it holds; the engine does the rest."""

    mode: ClassVar[str]
    toggle: ClassVar[str]
    """The setting that switches the mode off."""

    on_store_error: str | None = None
    """What happens when the store does not answer, as the route says; None for the setting."""

    @abstractmethod
    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Say how a hold ends."""

    def has_failed(self, engine: Engine, response: Response) -> bool:
        """Whether a response is a failed result."""
        return engine.hooks.has_failed(response)

    def has_failed_since(self, engine: Engine, response: Response) -> bool:
        """Whether a response that was changed after the view is a failed result."""
        return engine.hooks.has_failed_since(response)

    def record(  # noqa: B027 - not abstract: a mode without records leaves it out
        self, engine: Engine, hold: Hold, response: Response
    ) -> None:
        """Take the record of a response; by default there is none."""


class ViewGuard(Guard):
    """What stands between a request and its view."""

    methods: Collection[str] = frozenset()
    """Methods that are guarded besides the unsafe ones."""

    @abstractmethod
    def enter(self, engine: Engine, attempt: Attempt, request: Request) -> Hold | Replay | None:
        """Identify the request and claim.

        Returns:
            What is now held, or what is answered without the view; None where the view runs
            without a hold.

        Raises:
            Refusal: the request is turned away.
        """

    def pass_by(self, engine: Engine, attempt: Attempt) -> Hold | None:
        """Return what is held although nothing is claimed, because the mode is switched off."""
        del engine, attempt
        return None

    def covers(self, method: str) -> bool:
        """Whether requests of this method are guarded at all."""
        return method not in SAFE_METHODS or method in self.methods

    def accept(self, view: Callable[..., Any]) -> None:
        """Look at a view that is put behind the guard.

        Raises:
            ConfigurationError: it cannot stand there.
        """

    def check(self, endpoint: str, config: Config) -> None:
        """Look at the guard of a view once the settings are known.

        Raises:
            ConfigurationError: the two do not go together.
        """
