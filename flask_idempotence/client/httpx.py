"""One key for all attempts, for httpx: `httpx.Client(transport=IdempotentTransport())`.

It needs the extra `client`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from functools import partial

from ..stores.process import sleep
from .retries import LATE, Attempts, Retries, needs_key, put_key

try:
    import anyio
    import httpx
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.client.httpx needs httpx: "
        'pip install "flask-idempotence[client]", or pip install httpx'
    ) from _error

LARGEST_KEPT = 16 * 1024 * 1024
"""Most bytes of a body that are kept for further attempts."""

STREAM = "idempotency_stream"
"""The extension of a request whose caller reads the answer as a stream."""

_NO_ANSWER = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.ProxyError,
    httpx.RemoteProtocolError,
)


class IdempotentTransport(httpx.BaseTransport):
    """Transport that sends an unsafe request with one key, and retries until its answer is final.

    A request that has the header already keeps its key. Requests by a safe method pass unchanged.
    The last answer is returned, the last error raised; its `request` has the key. A transport may
    be shared by threads.

    Args:
        transport: sends each attempt; None for an `httpx.HTTPTransport`. Its own `retries` come
            on top of every attempt.
        retries: the rules of retrying; None for the defaults of `Retries`.
        header: the name of the header that carries the key.
        quoted: whether the key goes between quotes, as the draft specifies.
        sleep: waits for a number of seconds; for tests.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        retries: Retries | None = None,
        header: str = "Idempotency-Key",
        quoted: bool = False,
        sleep: Callable[[float], object] = sleep,
    ) -> None:
        self._transport = transport or httpx.HTTPTransport()
        self._retries = retries or Retries()
        self._put_key = partial(put_key, name=header, quoted=quoted)
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until its answer is final."""
        if not needs_key(request.method):
            return self._transport.handle_request(request)
        self._put_key(request.headers)
        if _body_must_be_read(request):
            request.read()
        attempt, late = partial(self._attempt, request), partial(_late, request)
        attempts = _attempts_at(request, self._retries)
        return attempts.make(attempt, late, self._sleep, _NO_ANSWER)

    def _attempt(self, request: httpx.Request, seconds: float) -> httpx.Response:
        deadline = time.monotonic() + seconds
        response = self._transport.handle_request(_cut(request, seconds))
        if not _answer_must_be_read(request, response):
            return response
        body = []
        with closing(response):
            for chunk in response.iter_raw():
                body.append(chunk)
                if time.monotonic() > deadline:
                    raise _late(request)
        return _whole(response, b"".join(body))

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """Idempotent transport for `httpx.AsyncClient`, on asyncio or trio.

    It takes the arguments of `IdempotentTransport`; the default of `transport` is an
    `httpx.AsyncHTTPTransport`, and `sleep` returns an awaitable.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        retries: Retries | None = None,
        header: str = "Idempotency-Key",
        quoted: bool = False,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._retries = retries or Retries()
        self._put_key = partial(put_key, name=header, quoted=quoted)
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until its answer is final."""
        if not needs_key(request.method):
            return await self._transport.handle_async_request(request)
        self._put_key(request.headers)
        if _body_must_be_read(request) and isinstance(request.stream, httpx.AsyncByteStream):
            await request.aread()

        attempts = _attempts_at(request, self._retries)
        while True:
            with attempts.one(_NO_ANSWER) as seconds:
                with anyio.move_on_after(seconds) as limit:
                    response = await self._attempt(_cut(request, seconds))
                if limit.cancelled_caught:
                    raise _late(request)
                if attempts.is_final(response):
                    return response
                await response.aclose()
            await self._sleep(attempts.pause)

    async def _attempt(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        if not _answer_must_be_read(request, response):
            return response
        async with aclosing(response):
            body = b"".join([chunk async for chunk in response.aiter_raw()])
        return _whole(response, body)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def _attempts_at(request: httpx.Request, retries: Retries) -> Attempts:
    repeatable = isinstance(request.stream, httpx.ByteStream)
    return Attempts(retries, repeatable=repeatable, method=request.method, url=str(request.url))


def _late(request: httpx.Request) -> httpx.TimeoutException:
    return httpx.TimeoutException(LATE, request=request)


def _body_must_be_read(request: httpx.Request) -> bool:
    """Whether a body must be read into memory first, so that it can be sent again.

    A file or a form with files is a stream that is at its end after the first attempt: the second
    one would send nothing, without an error.
    """
    if isinstance(request.stream, httpx.ByteStream):
        return False
    length = request.headers.get("Content-Length", "")
    return length.isascii() and length.isdigit() and float(length) <= LARGEST_KEPT


def _cut(request: httpx.Request, seconds: float) -> httpx.Request:
    """Return the request for one attempt, each of its timeouts cut to so many seconds."""
    timeouts = request.extensions.get("timeout", {})
    cut = {
        name: seconds if timeouts.get(name) is None else min(timeouts[name], seconds)
        for name in ("connect", "read", "write", "pool")
    }
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "timeout": cut},
    )


def _answer_must_be_read(request: httpx.Request, response: httpx.Response) -> bool:
    """Whether an answer is read to its end, since one that breaks off is as good as none.

    A streamed one is not. A wrapped transport may have read it already.
    """
    is_read = response.is_stream_consumed or response.is_closed
    return not (is_read or request.extensions.get(STREAM))


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return a response whose body has been read, and can be read again."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=response.extensions,
    )
