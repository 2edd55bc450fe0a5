"""Near misses: headers and form fields whose names are close to the expected one."""

from __future__ import annotations

import difflib
import itertools
import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .forms import names_of

if TYPE_CHECKING:
    from flask import Request

    from ..config.settings import Config

_logger = logging.getLogger("flask_idempotence")

_LONGEST_NAME = 64
_MOST_NAMES = 100
"""A form may have a hundred thousand, and each comparison takes some 10 µs."""

_CLOSE = 0.9
_STEM = "idempot"


class NearMisses:
    """Warns of near misses, once for each endpoint."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._given: set[tuple[str | None, str]] = set()

    def look_for_key(self, endpoint: str | None, request: Request, header: str) -> None:
        """Look for a key in another header than the expected one, which is absent."""
        remedy = "IDEMPOTENCE_KEY_HEADER, or key= of the route"
        self._look(endpoint, "header", request.headers.keys(), header, remedy)

    def look_for_token(self, endpoint: str | None, request: Request) -> None:
        """Look for a token under other names than the expected ones, which are absent."""
        headers, header = request.headers.keys(), self._config.token_header
        self._look(endpoint, "header", headers, header, "IDEMPOTENCE_TOKEN_HEADER")
        fields, field = names_of(request), self._config.token_field
        self._look(endpoint, "form field", fields, field, "IDEMPOTENCE_TOKEN_FIELD")

    def _look(
        self, endpoint: str | None, kind: str, names: Iterable[str], expected: str, remedy: str
    ) -> None:
        if (endpoint, expected) in self._given:
            return
        ours = {self._config.key_header.lower(), self._config.token_header.lower()}
        others = (name for name in names if kind != "header" or name.lower() not in ours)
        some = itertools.islice(others, _MOST_NAMES)
        name = next((name for name in some if _is_near(name, expected)), None)
        if name is not None:
            self._given.add((endpoint, expected))
            _logger.warning(
                "Flask-Idempotence: a request to %r has the %s %r, and %r is expected. Rename it "
                "in the client, or here (%s).",
                endpoint,
                kind,
                name,
                expected,
                remedy,
            )


def _is_near(name: str, expected: str) -> bool:
    if len(name) > _LONGEST_NAME:
        return False
    sent, wanted = _letters(name), _letters(expected)
    if sent == wanted or (_STEM in sent and _STEM in wanted):
        return True
    pair = difflib.SequenceMatcher(None, sent, wanted)
    return pair.real_quick_ratio() >= _CLOSE and pair.ratio() >= _CLOSE


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("x-"))
