"""One key for all attempts, for requests: `session.mount("https://", IdempotentAdapter())`.

It needs the extra `client`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

from ..stores.process import sleep
from .retries import LATE, Attempts, Retries, needs_key, put_key

try:
    from requests import PreparedRequest, Response, exceptions
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.exceptions import UnrewindableBodyError
    from requests.utils import rewind_body
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.client.requests needs requests: "
        'pip install "flask-idempotence[client]", or pip install requests'
    ) from _error

Timeout: TypeAlias = float | tuple[float | None, float | None] | None

_NO_ANSWER = (exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError)


class IdempotentAdapter(BaseAdapter):
    """Adapter that sends an unsafe request with one key, and retries until its answer is final.

    A request that has the header already keeps its key. Requests by a safe method pass unchanged.
    The last answer is returned, the last error raised; its `request` has the key. An adapter may
    be shared by threads.

    Args:
        retries: the rules of retrying; None for the defaults of `Retries`.
        header: the name of the header that carries the key.
        quoted: whether the key goes between quotes, as the draft specifies.
        adapter: sends each attempt; None for an `HTTPAdapter`. Its own `max_retries` come on top
            of every attempt.
        sleep: waits for a number of seconds; for tests.
    """

    def __init__(
        self,
        retries: Retries | None = None,
        *,
        header: str = "Idempotency-Key",
        quoted: bool = False,
        adapter: BaseAdapter | None = None,
        sleep: Callable[[float], object] = sleep,
    ) -> None:
        super().__init__()
        self._retries = retries or Retries()
        self._put_key = partial(put_key, name=header, quoted=quoted)
        self._adapter = adapter or HTTPAdapter()
        self._sleep = sleep

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Timeout = None,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        proxies: dict[str, str] | None = None,
    ) -> Response:
        """Send a request until its answer is final."""
        send = partial(
            self._adapter.send, request, stream=stream, verify=verify, cert=cert, proxies=proxies
        )
        if not needs_key(request.method):
            return send(timeout=timeout)
        self._put_key(cast("MutableMapping[str, str]", request.headers))
        received: list[Response] = []

        def attempt(seconds: float) -> Response:
            received.clear()
            _rewind(request)
            response = send(timeout=_limited(timeout, seconds))
            received.append(response)
            try:
                if not stream:
                    _ = response.content  # to its end: one that breaks off is as good as none
            except exceptions.RequestException as error:
                error.request = request  # which requests leaves out here; it has the key
                raise
            return response

        def late() -> exceptions.Timeout:
            for response in received:  # another thread may still read its body
                with suppress(AttributeError, ValueError, OSError):
                    response.raw.shutdown()  # urllib3 2.3 or later
            return exceptions.Timeout(LATE, request=request)

        method, url = str(request.method), str(request.url)
        repeatable = _rewind(request)
        attempts = Attempts(self._retries, repeatable=repeatable, method=method, url=url)
        return attempts.make(attempt, late, self._sleep, _NO_ANSWER)

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


def _rewind(request: PreparedRequest) -> bool:
    """Rewind the body of a request; return whether it can be read more than once."""
    if request.body is None or isinstance(request.body, str | bytes | bytearray):
        return True
    try:
        rewind_body(request)
    except UnrewindableBodyError:
        return False
    return True


def _limited(timeout: Timeout, seconds: float) -> Timeout:
    """Return a timeout of requests that is no longer than so many seconds."""
    if timeout is None:
        return seconds
    if isinstance(timeout, tuple):
        return cast("Timeout", tuple(_limited(part, seconds) for part in timeout))
    # A Timeout of urllib3 passes unchanged: its maker chose it for this request.
    return min(timeout, seconds) if isinstance(timeout, int | float) else timeout
