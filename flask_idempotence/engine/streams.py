"""A streamed body, which settles a claim when it is closed: it is made while it is being sent."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response

from .guard import Claim
from .keeper import Keeper
from .values import Verdict


def settle_at_close(
    response: Response,
    claim: Claim,
    keeper: Keeper,
    settle: Callable[[Claim], object],
    abandon: Callable[[Claim], None],
) -> None:
    response.response = body = _SettlingBody(response.response, claim, settle, abandon)
    response.call_on_close(body.settle)
    # Another hook may replace the response, and a HEAD request never opens it.
    weakref.finalize(response, _settle_dropped, body, keeper).atexit = False


def _settle_dropped(body: _SettlingBody, keeper: Keeper) -> None:
    # In another thread: the garbage collector finalizes a response at any point, where waiting
    # for a lock is not safe.
    if not body.claim.settled:
        keeper.defer(body.settle)


class _SettlingBody(Iterator[Any]):
    """The body of a response; its end settles the claim."""

    def __init__(
        self,
        body: Iterable[Any],
        claim: Claim,
        settle: Callable[[Claim], object],
        abandon: Callable[[Claim], None],
    ) -> None:
        self.claim = claim
        self._body = body
        self._parts = iter(body)
        self._settle, self._abandon = settle, abandon
        self._has_ended = False

    def __next__(self) -> Any:
        try:
            return next(self._parts)
        except StopIteration:
            self._has_ended = True
            raise
        except Exception:
            self.claim.judge(Verdict.FAILED)
            raise
        except BaseException:
            self._abandon(self.claim)
            raise

    def close(self) -> None:
        if hasattr(self._body, "close"):
            try:
                self._body.close()
            except Exception:  # a generator may raise here
                self.claim.judge(Verdict.FAILED)
                raise

    def settle(self) -> None:
        claim = self.claim
        # Cut off: the work of the body may be done in part, or its last bytes may be lost.
        is_cut_off = not self._has_ended and claim.verdict is not Verdict.KEPT
        if is_cut_off and claim.guard.makes_records:
            claim.record = claim.guard.unknown(claim)
        self._settle(claim)
