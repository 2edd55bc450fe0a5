"""A body that is read without a trace, for guards that only observe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import IO, Any

from flask import Request

from .body import IN_MEMORY, KEPT, WATCHED, Input, KeptFile, kept_body, rewound


class _Tape(Input):
    """An input of which all that was read can be read again, up to its end or its error."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.is_used = self._is_rewound = False
        self._stream = stream
        self._error: Exception | None = None
        self._file = KeptFile(IN_MEMORY)

    def rewind(self) -> None:
        self._is_rewound = True
        self._file.seek(0)

    def _take(self, method: str, size: int | None = -1) -> bytes:
        self.is_used = True
        size = -1 if size is None else size
        again: bytes = getattr(self._file, method)(size) if self._is_rewound else b""
        is_line = method == "readline" and again.endswith(b"\n")
        if again and (is_line or len(again) == size or self._error is not None):
            return again
        if self._error is not None:
            raise self._error
        try:
            left = [] if size < 0 else [size - len(again)]
            data: bytes = getattr(self._stream, method)(*left)
        except Exception as error:
            self._error = error
            raise
        if not self._is_rewound:
            self._file.write(data)
        return again + data

    read = partialmethod(_take, "read")
    readline = partialmethod(_take, "readline")

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return self._seek if name == "seek" else found

    def _seek(self, *where: int) -> int:
        """Go to another place of the input, from which the tape begins again."""
        self._file = KeptFile(IN_MEMORY)
        self.is_used = self._is_rewound = False
        return self._stream.seek(*where)


@contextmanager
def unread_input(request: Request) -> Iterator[None]:
    """Let a block read a body without a trace: it is kept whole, or else the view reads it again.

    Unlike behind a guard that is enforced, nothing raises afterwards where it has broken off.
    """
    environ, known = request.environ, vars(request)
    if (kept := kept_body(environ)) is not None:  # by a guard further out
        try:
            with rewound(kept.stream):
                yield
        finally:
            if "stream" in known:  # Werkzeug's own counts the bytes that were read here
                known["stream"] = kept.stream
        return
    before = {name: environ.get(name) for name in ("wsgi.input", KEPT, WATCHED)}
    watched: Any = before[WATCHED] if before[WATCHED] is before["wsgi.input"] else None
    state = {} if watched is None else vars(watched).copy()
    place, name = (environ, "wsgi.input") if watched is None else (vars(watched), "_stream")
    tape = place[name] = _Tape(place[name])
    is_whole = False
    try:
        yield
        is_whole = environ.get(KEPT) is not before[KEPT]
    finally:
        if watched is not None:
            vars(watched).update({"is_guarded": state["is_guarded"]} if is_whole else state)
        if is_whole:
            environ[KEPT].stream.seek(0)
            if "stream" in known:
                known["stream"] = environ[KEPT].stream
        else:
            environ.update(before)
            if tape.is_used:
                tape.rewind()
                known.pop("stream", None)
                place[name] = tape
