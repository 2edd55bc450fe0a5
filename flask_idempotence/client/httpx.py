"""One key for all attempts, for httpx: `httpx.Client(transport=IdempotentTransport())`.

It needs the extra `client`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .answers import Answer, is_problem
from .keys import KeyHeader, needs_key
from .retries import Attempts, Retries

try:
    import anyio
    import httpx
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.client.httpx needs httpx: "
        'pip install "flask-idempotence[client]", or pip install httpx'
    ) from _error

LARGEST_KEPT = 16 * 1024 * 1024
"""Bytes of a body that are kept for further attempts at most."""

STREAM = "idempotency_stream"
"""The extension of a request whose answer is read by and by."""

_NO_ANSWER = (httpx.TimeoutException, httpx.NetworkError, httpx.ProxyError)


class _Transport:
    """What both transports have in common."""

    def __init__(self, retries: Retries | None, header: str, quoted: bool) -> None:
        self._retries = retries or Retries()
        self._header = KeyHeader(header, quoted)

    def _attempts_at(self, request: httpx.Request) -> Attempts:
        self._header.put_into(request.headers)
        kept = isinstance(request.stream, httpx.ByteStream)
        return Attempts(self._retries, can_be_repeated=kept, request=request.method)


class IdempotentTransport(_Transport, httpx.BaseTransport):
    """Gives every request that changes something a key, and sends it until it is answered.

    A request that has the header already keeps the key in it. Requests by a safe method go through
    untouched. A transport may be shared by threads.

    Args:
        transport: what sends each attempt; None for an `httpx.HTTPTransport`. What it repeats by
            itself, such as one with `retries`, comes on top of every attempt.
        retries: how often, and for how long; None for the defaults.
        header: the name of the header that carries the key.
        quoted: whether the key goes between quotes, as the draft has it.
        sleep: waits so many seconds; for tests.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        retries: Retries | None = None,
        header: str = "Idempotency-Key",
        quoted: bool = False,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(retries, header, quoted)
        self._transport = transport or httpx.HTTPTransport()
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until it is answered for good.

        Returns:
            The last answer, which may be one that would be worth another attempt.

        Raises:
            httpx.TransportError: no answer came. The request in it has the key.
        """
        if not needs_key(request.method):
            return self._transport.handle_request(request)
        if _is_to_be_kept(request):
            request.read()
        attempts = self._attempts_at(request)
        while True:
            try:
                attempt = _attempt_at(request, attempts.begin())
                response = self._transport.handle_request(attempt)
                if _is_to_be_read(request, response):
                    response = _whole(response, self._body_of(response))
                wait = attempts.wait_after_answer(_answer_of(response))
            except (*_NO_ANSWER, httpx.RemoteProtocolError) as error:
                wait = attempts.wait_after_error(error)
                if wait is None:
                    raise
            else:
                if wait is None:
                    return response
                response.close()
            self._sleep(wait)

    @staticmethod
    def _body_of(response: httpx.Response) -> bytes:
        try:
            return b"".join(response.iter_raw())
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class AsyncIdempotentTransport(_Transport, httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`, on asyncio or trio.

    Args:
        transport: what sends each attempt; None for an `httpx.AsyncHTTPTransport`.
        retries: how often, and for how long; None for the defaults.
        header: the name of the header that carries the key.
        quoted: whether the key goes between quotes, as the draft has it.
        sleep: waits so many seconds; for tests.
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
        super().__init__(retries, header, quoted)
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request until it is answered for good.

        Returns:
            The last answer, which may be one that would be worth another attempt.

        Raises:
            httpx.TransportError: no answer came. The request in it has the key.
        """
        if not needs_key(request.method):
            return await self._transport.handle_async_request(request)
        if _is_to_be_kept(request) and isinstance(request.stream, httpx.AsyncByteStream):
            await request.aread()
        attempts = self._attempts_at(request)
        while True:
            try:
                attempt = _attempt_at(request, attempts.begin())
                response = await self._transport.handle_async_request(attempt)
                if _is_to_be_read(request, response):
                    response = _whole(response, await self._body_of(response))
                wait = attempts.wait_after_answer(_answer_of(response))
            except (*_NO_ANSWER, httpx.RemoteProtocolError) as error:
                wait = attempts.wait_after_error(error)
                if wait is None:
                    raise
            else:
                if wait is None:
                    return response
                await response.aclose()
            await self._sleep(wait)

    @staticmethod
    async def _body_of(response: httpx.Response) -> bytes:
        try:
            return b"".join([chunk async for chunk in response.aiter_raw()])
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def _is_to_be_kept(request: httpx.Request) -> bool:
    """Whether a body is read into memory first, so that it can be sent again.

    A file or a form with files is sent as a stream that is at its end after the first attempt: the
    second one would send nothing, and no error would tell.
    """
    length = request.headers.get("Content-Length", "")
    if isinstance(request.stream, httpx.ByteStream):
        return False
    return length.isascii() and length.isdigit() and float(length) <= LARGEST_KEPT


def _attempt_at(request: httpx.Request, seconds: float) -> httpx.Request:
    """Return the request for one attempt, with no timeout longer than so many seconds."""
    timeouts = request.extensions.get("timeout", {})
    within = {
        name: seconds if timeouts.get(name) is None else min(timeouts[name], seconds)
        for name in ("connect", "read", "write", "pool")
    }
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "timeout": within},
    )


def _is_to_be_read(request: httpx.Request, response: httpx.Response) -> bool:
    """Whether an answer is read to its end, for one that breaks off is as good as none.

    Where the caller wants to read it by and by, only a problem document is read. What a wrapped
    transport has read already is not read again: the stream is at its end.
    """
    if response.is_stream_consumed or response.is_closed:
        return False
    return not request.extensions.get(STREAM) or is_problem(response.headers)


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return a response that has been read, as one whose body can be read again."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=response.extensions,
    )


def _answer_of(response: httpx.Response) -> Answer:
    body = b""
    if is_problem(response.headers):
        with suppress(httpx.StreamError):  # a wrapped transport has read it and kept nothing
            body = response.read()
    return Answer(response.status_code, response.headers, body)
