"""One key for all attempts, for requests: `session.mount("https://", IdempotentAdapter())`.

It needs the extra `client`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from .answers import Answer, is_problem
from .keys import KeyHeader, needs_key
from .retries import Attempts, Retries

try:
    from requests import exceptions
    from requests.adapters import BaseAdapter, HTTPAdapter
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.client.requests needs requests: "
        'pip install "flask-idempotence[client]", or pip install requests'
    ) from _error

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_NO_ANSWER = (
    exceptions.ConnectionError,
    exceptions.Timeout,
    exceptions.ChunkedEncodingError,
)


class IdempotentAdapter(BaseAdapter):
    """Gives every request that changes something a key, and sends it until it is answered.

    A request that has the header already keeps the key in it. Requests by a safe method go through
    untouched. An adapter may be shared by threads.

    Args:
        retries: how often, and for how long; None for the defaults.
        header: the name of the header that carries the key.
        quoted: whether the key goes between quotes, as the draft has it.
        adapter: what sends each attempt; None for an `HTTPAdapter`. What it repeats by itself,
            such as one with `max_retries`, comes on top of every attempt.
        sleep: waits so many seconds; for tests.
    """

    def __init__(
        self,
        retries: Retries | None = None,
        *,
        header: str = "Idempotency-Key",
        quoted: bool = False,
        adapter: BaseAdapter | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._retries = retries or Retries()
        self._header = KeyHeader(header, quoted)
        self._adapter = adapter or HTTPAdapter()
        self._sleep = sleep

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Send a request until it is answered for good.

        Returns:
            The last answer, which may be one that would be worth another attempt.

        Raises:
            requests.RequestException: no answer came. The request in it has the key.
        """
        options = {"stream": stream, "verify": verify, "cert": cert, "proxies": proxies}
        if not needs_key(request.method):
            return self._adapter.send(request, timeout=timeout, **options)
        self._header.put_into(cast("Any", request.headers))
        rewind = _rewinder_of(request.body)
        attempts = Attempts(
            self._retries, can_be_repeated=rewind is not None, request=str(request.method)
        )
        while True:
            try:
                limit = attempts.begin()
                response = self._adapter.send(request, timeout=_within(timeout, limit), **options)
                wait = attempts.wait_after_answer(_read(response, stream=stream))
            except _NO_ANSWER as error:
                wait = attempts.wait_after_error(error)
                if wait is None:
                    raise
            else:
                if wait is None:
                    return response
                response.close()
            self._sleep(wait)
            if rewind is not None:
                rewind()

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


def _read(response: Response, *, stream: bool) -> Answer:
    """Read an answer to its end, for one that breaks off is as good as none.

    Where the caller wants to read it by and by, only a problem document is read.
    """
    body = b""
    if not stream or is_problem(response.headers):
        with suppress(RuntimeError):  # a wrapped adapter has read it and kept nothing
            body = response.content or b""
    return Answer(response.status_code, response.headers, body)


def _rewinder_of(body: Any) -> Callable[[], object] | None:
    """Return what makes a body ready to be sent again, or None where it can be read only once."""
    if body is None or isinstance(body, str | bytes | bytearray):
        return lambda: None
    try:
        start = body.tell()
        body.seek(start)
    except (AttributeError, OSError):
        return None
    return lambda: body.seek(start)


def _within(timeout: Any, seconds: float) -> Any:
    """Return a timeout of requests that is no longer than so many seconds."""
    if timeout is None:
        return seconds
    if isinstance(timeout, tuple):
        return tuple(_within(part, seconds) for part in timeout)
    # A Timeout of urllib3 is passed on: who makes one has thought about it.
    return min(timeout, seconds) if isinstance(timeout, int | float) else timeout
