"""What a row of the table means."""

from __future__ import annotations

from typing import Any

from ..base import ClaimOutcome, Crashed, Done, Entry, Running
from .table import CLAIM, RECORD, TOKEN, TOKEN_AGAIN


def outcome_of(row: Any, fingerprint: bytes) -> ClaimOutcome:
    """Return what a row that is in the way means to a claim."""
    matches = bytes(row.fingerprint) == fingerprint
    if row.kind == RECORD:
        return Done(matches, bytes(row.data))
    if row.kind != CLAIM:
        return Done(True, b"")  # nothing of ours: done, with a record that nobody can read
    if row.left > 0:
        return Running(matches, row.left / 1000)
    return Crashed(matches)


def entry_of(row: Any) -> Entry:
    """Return what a row holds, as whoever looks at the store is shown it."""
    kind = TOKEN if row.kind == TOKEN_AGAIN else row.kind
    mark = row.kind.encode() + b"\0" + bytes(row.owner)
    lease = max(0, row.left) / 1000 if kind == CLAIM else None
    return Entry(kind, row.expires_in / 1000, row.size, lease, mark)


def unmarked(mark: bytes) -> tuple[str, bytes]:
    """Return the kind and the owner of the row that an entry was made of."""
    kind, _, owner = mark.partition(b"\0")
    return kind.decode(), owner
