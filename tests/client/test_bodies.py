"""What a caller sends and reads more than once: bodies, files, uploads, streams."""

import asyncio
import gzip
import io
import threading

import httpx
import pytest
import requests
from helpers.callers.http_callers import (
    CALLERS,
    DONE,
    DOWN,
    HALF,
    RUNNING,
    ByRequests,
    Script,
    retries_with,
    serving,
)
from helpers.servers.processes import HOST, free_port
from requests.adapters import HTTPAdapter

from flask_idempotence.client import Retries
from flask_idempotence.client.httpx import STREAM, AsyncIdempotentTransport, IdempotentTransport
from flask_idempotence.client.requests import IdempotentAdapter


def test_a_body_is_sent_again_whole(call):
    script = Script([b"", HALF, DOWN, DONE])
    with serving(script) as url:
        call("POST", url, json={"mugs": 7})
    assert len(script.bodies) == 4
    assert len({body.replace(b" ", b"") for body in script.bodies}) == 1
    assert b"mugs" in script.bodies[0]


@pytest.mark.parametrize(("library", "begin"), [("requests", 5), ("httpx", 0)])
def test_a_file_is_sent_again_from_where_it_began(pauses, library, begin):
    call = CALLERS[library](retries_with(pauses), pauses)
    script = Script([b"", DOWN, DONE])
    file = io.BytesIO(b"skip:the picture")
    file.seek(begin)
    with serving(script) as url:
        call("POST", url, content=file)
    call.close()
    assert script.bodies == [b"skip:the picture"[begin:]] * 3


@pytest.mark.parametrize("library", CALLERS)
@pytest.mark.parametrize(
    "answer",
    [b"", HALF, (200, {"Content-Encoding": "gzip"}, b"no gzip")],
    ids=["", "half", "gzip"],
)
def test_the_last_error_has_the_request_and_with_it_the_key(pauses, library, answer):
    call, script = CALLERS[library](retries_with(pauses), pauses), Script([answer])
    errors = requests.RequestException, httpx.RequestError
    with serving(script) as url, pytest.raises(errors) as failed:
        call("POST", url)
    call.close()
    assert failed.value.request.headers["Idempotency-Key"] == script.keys[-1]


@pytest.mark.parametrize("library", CALLERS)
def test_an_upload_is_sent_again_whole(pauses, library):
    call = CALLERS[library](retries_with(pauses), pauses)
    script, picture = Script([b"", DOWN, DONE]), io.BytesIO(b"the picture")
    with serving(script) as url:
        call("POST", url, files={"picture": picture})
    call.close()
    assert [body.count(b"the picture") for body in script.bodies] == [1, 1, 1]


@pytest.mark.parametrize("library", CALLERS)
def test_a_body_that_can_be_read_once_is_sent_once_and_the_error_says_so(pauses, library):
    call, readers = CALLERS[library](retries_with(pauses), pauses), set()

    def parts():  # such as rows of a connection that belongs to this thread
        readers.add(threading.get_ident())
        yield b"the picture"

    async def later():
        for each in parts():
            yield each

    content = later if library == "async httpx" else parts
    script = Script([DOWN])
    with serving(script) as url:
        assert call("POST", url, content=content()).status_code == 503
    assert script.keys[0]
    with pytest.raises(call.NO_ANSWER) as caught:
        call("POST", f"http://{HOST}:{free_port()}", content=content())
    call.close()
    assert len(script.keys) == 1
    assert (pauses, readers) == ([], {threading.get_ident()})
    assert caught.value.__notes__ == ["Sent only once: the body cannot be read a second time."]


STREAMED = {"extensions": {STREAM: True}}


class Reading(httpx.HTTPTransport):
    def handle_request(self, request):
        response = super().handle_request(request)
        response.read()
        return response


class ReadingLater(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        await response.aread()
        return response


class ReadingAdapter(HTTPAdapter):
    def send(self, request, **options):
        response = super().send(request, **options)
        assert response.content is not None
        return response


ZIPPED = {"Content-Encoding": "gzip"}


@pytest.mark.parametrize("options", [{}, STREAMED])
@pytest.mark.parametrize(
    ("library", "wrapped"),
    [
        ("requests", {"adapter": ReadingAdapter()}),
        ("httpx", {"transport": Reading()}),
        ("async httpx", {"transport": ReadingLater()}),
    ],
)
def test_what_is_wrapped_may_have_read_its_answer(pauses, library, wrapped, options):
    call = CALLERS[library](retries_with(pauses), pauses, **wrapped)
    script = Script([DOWN, RUNNING, (201, ZIPPED, gzip.compress(b"done"))])
    with serving(script) as url:
        answer = call("POST", url, **({} if library == "requests" else options))
    assert (answer.status_code, answer.content, pauses) == (201, b"done", [0.5, 1])
    assert len(set(script.keys)) == 1
    call.close()


@pytest.mark.parametrize("way", ["consumed", "closed"])
def test_an_answer_that_a_wrapped_transport_has_thrown_away_is_an_answer(pauses, way):
    class Careless(httpx.HTTPTransport):
        def handle_request(self, request):
            response = super().handle_request(request)
            if way == "consumed":
                list(response.iter_raw())
            response.close()
            return response

    script = Script([(409, {}, b"{}"), DONE])
    rules = retries_with(pauses)
    with serving(script) as url, Careless() as wrapped:
        transport = IdempotentTransport(wrapped, retries=rules, sleep=pauses)
        assert transport.handle_request(httpx.Request("POST", url)).status_code == 409
    assert (len(script.keys), pauses) == (1, [])


def test_so_it_is_if_a_wrapped_adapter_has(pauses):
    class Careless(HTTPAdapter):
        def send(self, request, **options):
            response = super().send(request, **options)
            list(response.iter_content(None))
            return response

    call = ByRequests(retries_with(pauses), pauses, adapter=Careless())
    script = Script([DOWN, (201, {}, b"{}")])
    with serving(script) as url, call.session.post(url, stream=True, timeout=10) as answer:
        assert answer.status_code == 201
    call.close()
    assert (len(script.keys), pauses) == (2, [0.5])


def test_an_answer_that_is_read_by_and_by_is_not_waited_for(pauses):
    before, seen, in_time = Script([DOWN, RUNNING]), threading.Event(), []

    def talker(environ, start_response):
        if len(before.keys) < 2:
            yield from before(environ, start_response)
            return
        start_response("200 OK", [("Content-Length", "2")])
        yield b"1"
        in_time.append(seen.wait(3))
        seen.clear()
        before.keys.clear()
        yield b"2"

    rules = retries_with(pauses)

    async def stream(url):
        transport = AsyncIdempotentTransport(retries=rules, sleep=pauses.later)
        async with (
            httpx.AsyncClient(transport=transport) as client,
            client.stream("POST", url, **STREAMED) as answer,
        ):
            seen.set()
            return await answer.aread()

    with serving(talker) as url, requests.Session() as session:
        transport = IdempotentTransport(retries=rules, sleep=pauses)
        with (
            httpx.Client(transport=transport) as client,
            client.stream("POST", url, **STREAMED) as answer,
        ):
            seen.set()
            assert answer.read() == b"12"
        assert asyncio.run(stream(url)) == b"12"
        session.mount("http://", IdempotentAdapter(rules, sleep=pauses))
        with session.post(url, stream=True, timeout=10) as answer:
            seen.set()
            assert answer.content == b"12"
    assert in_time == [True] * 3
    assert pauses == [0.5, 1] * 3


class Unread(httpx.SyncByteStream):
    """A body that nobody reads, and whether it was closed."""

    def __init__(self):
        self.closed = threading.Event()

    def __iter__(self):
        return iter([b"{}"])

    def close(self):
        self.closed.set()


def test_an_answer_that_is_not_the_last_gives_its_connection_back(pauses):
    first = Unread()
    answers = iter([httpx.Response(503, stream=first), httpx.Response(201)])
    wrapped = httpx.MockTransport(lambda _: next(answers))
    transport = IdempotentTransport(wrapped, retries=retries_with(pauses), sleep=pauses)
    with httpx.Client(transport=transport) as client:
        assert client.post("http://shop.test", **STREAMED).status_code == 201
    assert first.closed.is_set()


def test_an_answer_that_comes_too_late_gives_its_connection_back(pauses):
    late, given_up = Unread(), threading.Event()

    def answer(_):
        given_up.wait(5)
        return httpx.Response(201, stream=late)

    rules = Retries(attempts=1, seconds=0.1)
    transport = IdempotentTransport(httpx.MockTransport(answer), retries=rules, sleep=pauses)
    with httpx.Client(transport=transport) as client:
        with pytest.raises(httpx.TimeoutException):
            client.post("http://shop.test", **STREAMED)
        assert not late.closed.is_set()
        given_up.set()
        assert late.closed.wait(5)
