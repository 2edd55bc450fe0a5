"""The caller's side, over real connections: one key for all attempts, and each effect once."""

import asyncio
import io
import random
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import requests
from apps import make_app
from calling import CALLERS, ByHttpx, ByRequests, Pauses, Script, hang_up, patient, serving
from flask import request
from servers import HOST, SilentServer, free_port
from topologies import make_certificate

import flask_idempotence
from flask_idempotence import idempotent, no_repeat_submit
from flask_idempotence.client import Retries, was_replayed
from flask_idempotence.client.httpx import STREAM, AsyncIdempotentTransport, IdempotentTransport
from flask_idempotence.client.requests import IdempotentAdapter

PROBLEM = {"Content-Type": "application/problem+json"}
RUNNING = (409, {**PROBLEM, "Retry-After": "1"}, b'{"type": "urn:x:key-in-progress"}')
DONE = (201, {}, b"done")
DOWN = (503, {}, b"")
HALF = b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf"


@pytest.fixture
def pauses():
    return Pauses()


@pytest.fixture(params=CALLERS)
def make_caller(request, pauses):
    """Return a caller with each library in turn; waits take no time."""
    made = []

    def make(*, rules=None, **options):
        rules = patient(pauses, **(rules or {}))
        made.append(CALLERS[request.param](rules, pauses, **options))
        return made[-1]

    yield make
    for caller in made:
        caller.close()


@pytest.fixture
def call(make_caller):
    return make_caller()


def test_an_operation_has_one_key_for_all_attempts_and_the_next_one_has_another(call, pauses):
    script = Script([b"", HALF, DOWN, RUNNING, DONE])
    with serving(script) as url:
        assert call("POST", url).status_code == 201
        assert call("POST", url).status_code == 201
    first, second = script.keys[:5], script.keys[5:]
    assert len(set(first)) == 1
    assert len(second) == 1
    assert None not in script.keys
    assert first[0] != second[0]
    assert pauses == [0.5, 1, 2, 4]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_method_that_changes_something_is_sent_again_with_its_key(call, method):
    script = Script([b"", DONE])
    with serving(script) as url:
        assert call(method, url).status_code == 201
    assert script.methods == [method] * 2
    assert len(set(script.keys)) == 1
    assert script.keys[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_safe_request_is_left_alone(call, pauses, method):
    script = Script([(503, {"Retry-After": "1"}, b"")])
    with serving(script) as url:
        assert call(method, url).status_code == 503
    assert script.keys == [None]
    assert pauses == []


def test_an_answer_that_breaks_off_is_asked_for_again(call):
    script = Script([HALF, HALF, (201, {}, b"x" * 100)])
    with serving(script) as url:
        assert call("POST", url).content == b"x" * 100
    assert len(script.keys) == 3


def test_a_refused_connection_is_tried_until_the_attempts_are_used_up(make_caller, pauses):
    call = make_caller(rules={"attempts": 4})
    with pytest.raises(call.NO_ANSWER) as caught:
        call("POST", f"http://{HOST}:{free_port()}")
    assert pauses == [0.5, 1, 2]
    assert caught.value.request.headers["Idempotency-Key"]
    assert caught.value.__notes__ == ["Attempts, all with the same key: 4, in 3.5 s."]


def test_a_server_that_says_nothing_is_asked_again(make_caller, pauses):
    call = make_caller(rules={"attempts": 2})
    with SilentServer() as server, pytest.raises(call.NO_ANSWER):
        call("POST", f"http://{server.address}", timeout=0.05)
    assert pauses == [0.5]


@pytest.mark.parametrize("caller", [ByRequests, ByHttpx])
def test_no_attempt_lasts_longer_than_all_of_them_may(pauses, caller):
    call = caller(Retries(seconds=0.2, attempts=1), pauses)
    begin = time.monotonic()
    with SilentServer() as server, pytest.raises(call.NO_ANSWER):
        call("POST", f"http://{server.address}", timeout=None)
    call.close()
    assert time.monotonic() - begin < 2.5


def test_retry_after_is_waited_for_to_the_second(call, pauses):
    later = {"Date": "Sun, 01 Mar 2026 12:00:00 GMT"}
    script = Script(
        [
            (503, {"Retry-After": "17"}, b""),
            (429, {"Retry-After": "Sun, 01 Mar 2026 12:00:23 GMT", **later}, b""),
            DONE,
        ]
    )
    with serving(script) as url:
        assert call("POST", url).status_code == 201
    assert pauses[0] == 17
    # Werkzeug puts its own Date on what has one already; the first counts for nobody.
    assert len(pauses) == 2


def test_an_answer_that_asks_for_more_patience_than_there_is_comes_back(make_caller, pauses):
    script = Script([(503, {"Retry-After": "3600"}, b"closed")])
    call = make_caller()
    with serving(script) as url:
        answer = call("POST", url)
    assert (answer.status_code, answer.content) == (503, b"closed")
    assert pauses == []


def test_the_last_answer_comes_back_when_the_attempts_are_used_up(make_caller, pauses):
    script = Script([(503, {}, b"closed")])
    call = make_caller(rules={"attempts": 3})
    with serving(script) as url:
        answer = call("POST", url)
    assert (answer.status_code, answer.content) == (503, b"closed")
    assert len(script.keys) == 3
    assert len(set(script.keys)) == 1


def test_all_attempts_and_waits_end_in_time(make_caller, pauses):
    script = Script([DOWN])
    call = make_caller(rules={"attempts": 1000, "seconds": 60})
    with serving(script) as url:
        assert call("POST", url).status_code == 503
    assert pauses == [0.5, 1, 2, 4, 8, 16]  # the next would be 30, at 31.5
    assert len(script.keys) == 7


@pytest.mark.parametrize(
    "answer",
    [
        (422, {"Retry-After": "1"}, b""),
        (400, {}, b""),
        (409, {}, b"another booking is there"),
        (500, {"Idempotent-Replayed": "true"}, b""),
        (503, {"Idempotent-Replayed": "true", "Retry-After": "1"}, b""),
        (500, {"Idempotent-Stored": "false"}, b""),
        (409, {**PROBLEM, "Retry-After": "5"}, b'{"type": "urn:flask-idempotence:repeat-submit"}'),
        (429, {**PROBLEM, "Retry-After": "5"}, b'{"type": "urn:flask-idempotence:repeat-submit"}'),
    ],
)
def test_a_final_answer_comes_back_at_once(call, pauses, answer):
    script = Script([answer, DONE])
    with serving(script) as url:
        assert call("POST", url).status_code == answer[0]
    assert len(script.keys) == 1
    assert pauses == []


def test_the_caller_may_name_the_key(call):
    script = Script([DOWN, DONE])
    with serving(script) as url:
        call("POST", url, headers={"idempotency-key": "order 17"})
    assert script.keys == ["order 17"] * 2


def test_a_server_may_want_another_header_and_quotes(make_caller):
    script = Script([DOWN, DONE], header="HTTP_X_REQUEST_TOKEN")
    call = make_caller(header="X-Request-Token", quoted=True)
    with serving(script) as url:
        call("POST", url, headers={"X-Request-Token": "order 17"})
    assert script.keys == ['"order 17"'] * 2


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirected_operation_keeps_its_key_and_its_body(call, status):
    script = Script([DOWN, (status, {"Location": "/there"}, b""), b"", DONE])
    with serving(script) as url:
        assert call("POST", url, content=b"7 mugs").status_code == 201
    assert len(set(script.keys)) == 1
    assert script.bodies == [b"7 mugs"] * 4


def test_a_page_that_is_shown_after_an_operation_is_asked_for_once(call, pauses):
    script = Script([(303, {"Location": "/order"}, b""), (503, {}, b"")])
    with serving(script) as url:
        assert call("POST", url, content=b"7 mugs").status_code == 503
    assert script.methods == ["POST", "GET"]
    assert pauses == []


def test_a_body_is_sent_again_whole(call):
    script = Script([b"", HALF, DOWN, DONE])
    with serving(script) as url:
        call("POST", url, json={"mugs": 7})
    assert len(script.bodies) == 4
    assert len({body.replace(b" ", b"") for body in script.bodies}) == 1
    assert b"mugs" in script.bodies[0]


@pytest.mark.parametrize(("library", "begin"), [("requests", 5), ("httpx", 0)])
def test_a_file_is_sent_again_from_where_it_began(pauses, library, begin):
    call = CALLERS[library](patient(pauses), pauses)
    script = Script([b"", DOWN, DONE])
    file = io.BytesIO(b"skip:the picture")
    file.seek(begin)
    with serving(script) as url:
        call("POST", url, content=file)
    call.close()
    assert script.bodies == [b"skip:the picture"[begin:]] * 3


def test_an_upload_is_sent_again_whole(pauses):
    script = Script([b"", DOWN, DONE])
    rules, files = patient(pauses), {"picture": ("a.png", io.BytesIO(b"the picture"))}

    async def upload(url):
        transport = AsyncIdempotentTransport(retries=rules, sleep=pauses.later)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post(url, files=files)

    with serving(script) as url:
        with httpx.Client(transport=IdempotentTransport(retries=rules, sleep=pauses)) as client:
            client.post(url, files=files)
        script.keys.clear()
        asyncio.run(upload(url))
        script.keys.clear()
        with requests.Session() as session:
            session.mount("http://", IdempotentAdapter(rules, sleep=pauses))
            session.post(url, files={"picture": io.BytesIO(b"the picture")})
    assert len(script.bodies) == 9
    assert all(body.count(b"the picture") == 1 for body in script.bodies)


@pytest.mark.parametrize("library", ["requests", "httpx"])
def test_a_body_that_can_be_read_once_is_sent_once_and_the_error_says_so(pauses, library):
    call = CALLERS[library](patient(pauses), pauses)

    def parts():
        yield b"the "
        yield b"picture"

    script = Script([DOWN])
    with serving(script) as url:
        assert call("POST", url, content=parts()).status_code == 503
    assert script.keys[0]
    with pytest.raises(call.NO_ANSWER) as caught:
        call("POST", f"http://{HOST}:{free_port()}", content=parts())
    call.close()
    assert len(script.keys) == 1
    assert pauses == []
    assert caught.value.__notes__ == [
        "It was sent once only: its body cannot be read a second time."
    ]


def test_an_asynchronous_body_is_sent_once(pauses):
    async def parts():
        yield b"the picture"

    async def send(url):
        transport = AsyncIdempotentTransport(retries=patient(pauses), sleep=pauses.later)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post(url, content=parts())

    script = Script([DOWN])
    with serving(script) as url:
        assert asyncio.run(send(url)).status_code == 503
    assert len(script.keys) == 1


def test_an_answer_may_be_read_by_and_by(pauses):
    script = Script([DOWN, RUNNING, (201, {}, b"x" * 50_000)])
    rules = patient(pauses)

    async def stream(url):
        transport = AsyncIdempotentTransport(retries=rules, sleep=pauses.later)
        async with (
            httpx.AsyncClient(transport=transport) as client,
            client.stream("POST", url, extensions={STREAM: True}) as answer,
        ):
            assert not answer.is_stream_consumed
            return len([part async for part in answer.aiter_bytes(1000)])

    with serving(script) as url:
        transport = IdempotentTransport(retries=rules, sleep=pauses)
        with (
            httpx.Client(transport=transport) as client,
            client.stream("POST", url, extensions={STREAM: True}) as answer,
        ):
            assert len(list(answer.iter_bytes(1000))) == 50
        script.keys.clear()
        assert asyncio.run(stream(url)) == 50
        script.keys.clear()
        with requests.Session() as session:
            session.mount("http://", IdempotentAdapter(rules, sleep=pauses))
            with session.post(url, stream=True) as answer:
                assert answer.raw.tell() == 0
                assert len(list(answer.iter_content(1000))) == 50
    assert pauses == [0.5, 1] * 3


def test_an_answer_that_is_read_by_and_by_is_not_waited_for(pauses):
    seen, in_time = threading.Event(), []

    def talker(_, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        yield b"1"
        in_time.append(seen.wait(3))
        seen.clear()
        yield b"2"

    rules = patient(pauses, attempts=1)
    with serving(talker) as url, requests.Session() as session:
        transport = IdempotentTransport(retries=rules, sleep=pauses)
        with (
            httpx.Client(transport=transport) as client,
            client.stream("POST", url, extensions={STREAM: True}) as answer,
        ):
            seen.set()
            assert answer.read() == b"12"
        session.mount("http://", IdempotentAdapter(rules, sleep=pauses))
        with session.post(url, stream=True, timeout=10) as answer:
            seen.set()
            assert answer.content == b"12"
    assert in_time == [True, True]


def test_a_certificate_that_is_not_trusted_is_not_tried_again(make_caller, pauses, tmp_path):
    call = make_caller()
    with (
        serving(Script([DONE]), ssl_context=make_certificate(tmp_path)) as url,
        pytest.raises(call.NO_ANSWER, match=r"(?i)certificate"),
    ):
        call("POST", url)
    assert pauses == []


def test_waits_and_their_reasons_are_logged_and_keys_are_not(call, caplog):
    caplog.set_level("INFO", "flask_idempotence.client")
    script = Script([DOWN, b"", DONE])
    with serving(script) as url:
        call("POST", url, headers={"Idempotency-Key": "order-17"})
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "Attempt 1 of 8 at POST: status 503. Again in 0.5 s."
    assert second.startswith("Attempt 2 of 8 at POST: ")
    assert "order-17" not in caplog.text


class Unreliable:
    """Loses, by a dice of its own for each request: requests, answers, or halves of answers."""

    def __init__(self, app, losses=0.5):
        self._app, self._losses = app, losses
        self._tries, self._lock = {}, threading.Lock()
        self.lost = 0

    def __call__(self, environ, start_response):
        key = environ["HTTP_IDEMPOTENCY_KEY"]
        with self._lock:
            self._tries[key] = nth = self._tries.get(key, 0) + 1
        seed = zlib.crc32(environ["HTTP_X_OPERATION"].encode()) * 1000 + nth
        dice = random.Random(seed)
        if dice.random() >= self._losses:
            return self._app(environ, start_response)
        with self._lock:
            self.lost += 1
        way = dice.choice(["the request", "the answer", "half of the answer"])
        if way == "the request":
            return hang_up(environ)
        answer = self._app(environ, lambda *_: None)
        sent = b"".join(answer)
        answer.close()
        head = f"HTTP/1.1 201 Created\r\nContent-Length: {len(sent)}\r\n\r\n".encode()
        return hang_up(environ, head + sent[:1] if way == "half of the answer" else b"")


@pytest.fixture
def shop():
    """An application that remembers how often it has done what."""
    app, effects, lock = make_app(), {}, threading.Lock()

    @app.post("/orders")
    @idempotent(required=True)
    def order():
        what = (request.headers.get("Authorization"), request.get_json()["order"])
        with lock:
            effects[what] = effects.get(what, 0) + 1
        return {"order": request.get_json()["order"]}, 201

    app.effects = effects
    return app


def send_order(call, url, number, user="Bearer a", **headers):
    headers |= {"X-Operation": f"{user} {number}", "Authorization": user}
    answer = call("POST", f"{url}/orders", json={"order": number}, headers=headers)
    assert answer.status_code == 201
    assert answer.json() == {"order": number}
    return was_replayed(answer)


@pytest.mark.parametrize("library", ["requests", "httpx"])
def test_a_hundred_operations_over_a_network_that_loses_half_have_each_their_effect_once(
    shop, library
):
    network = Unreliable(shop)
    call = CALLERS[library](Retries(attempts=50, first_wait=0.001, longest_wait=2), time.sleep)
    with serving(network) as url, ThreadPoolExecutor(8) as threads:
        # All threads share one session.
        replays = list(threads.map(lambda n: send_order(call, url, n), range(100)))
    call.close()
    assert shop.effects == {("Bearer a", number): 1 for number in range(100)}
    assert network.lost > 50
    assert 20 < sum(replays) < 80


def test_a_hundred_asynchronous_operations_over_it_have_each_their_effect_once(shop):
    network = Unreliable(shop)

    async def order(client, url, number):
        headers = {"X-Operation": f"async {number}"}
        answer = await client.post(f"{url}/orders", json={"order": number}, headers=headers)
        assert answer.json() == {"order": number}

    async def orders(url):
        rules = Retries(attempts=50, first_wait=0.001, longest_wait=2)
        transport = AsyncIdempotentTransport(retries=rules)
        async with httpx.AsyncClient(transport=transport, timeout=20) as client:
            await asyncio.gather(*(order(client, url, number) for number in range(100)))

    with serving(network) as url:
        asyncio.run(orders(url))
    assert shop.effects == {(None, number): 1 for number in range(100)}
    assert network.lost > 50


def test_two_users_with_the_same_key_have_each_their_own_order(call, shop):
    with serving(Unreliable(shop)) as url:
        for user in ("Bearer a", "Bearer b", "Bearer a", "Bearer b"):
            send_order(call, url, 1, user, **{"Idempotency-Key": "order-1"})
    assert shop.effects == {("Bearer a", 1): 1, ("Bearer b", 1): 1}


def test_a_replay_is_told_from_the_first_answer(call, shop):
    with serving(Unreliable(shop, losses=0)) as url:
        told = [send_order(call, url, 1, **{"Idempotency-Key": "order-1"}) for _ in range(2)]
    assert told == [False, True]


def test_the_same_key_with_another_order_stops_at_once(call, pauses, shop):
    headers = {"Idempotency-Key": "order-1", "X-Operation": "0"}
    with serving(Unreliable(shop, losses=0)) as url:
        answers = [
            call("POST", f"{url}/orders", json={"order": order}, headers=headers)
            for order in (1, 2)
        ]
    assert [answer.status_code for answer in answers] == [201, 422]
    assert pauses == []


def test_a_request_that_still_runs_is_waited_for(call, pauses):
    app, runs = make_app(), []
    begun, go_on = threading.Event(), threading.Event()

    @app.post("/slow")
    @idempotent(required=True)
    def slow():
        runs.append(1)
        begun.set()
        assert go_on.wait(10)
        return "done", 201

    key = {"Idempotency-Key": "slow"}
    with serving(app) as url, ThreadPoolExecutor(1) as threads:
        first = threads.submit(requests.post, f"{url}/slow", headers=key, timeout=10)

        def finish():
            go_on.set()
            first.result(10)

        pauses.meanwhile = finish
        assert begun.wait(10)
        answer = call("POST", f"{url}/slow", headers=key)
    assert (answer.status_code, was_replayed(answer)) == (201, True)
    assert runs == [1]
    assert pauses == [1]  # Retry-After


def test_a_locked_route_is_not_submitted_again_when_its_interval_is_over(call, pauses):
    app, runs = make_app(), []

    @app.post("/vote")
    @no_repeat_submit(5)
    def vote():
        runs.append(1)
        return "counted"

    with serving(app) as url:
        assert [call("POST", f"{url}/vote").status_code for _ in range(2)] == [200, 409]
    assert (runs, pauses) == ([1], [])


def test_no_flask_is_imported_by_the_client_itself():
    code = """
import sys, types
package = types.ModuleType("flask_idempotence")  # without what its root imports
package.__path__ = [sys.argv[1]]
sys.modules["flask_idempotence"] = package
import flask_idempotence.client.requests, flask_idempotence.client.httpx
assert not {"flask", "werkzeug", "redis", "marshmallow"} & set(sys.modules)
"""
    folder = flask_idempotence.__path__[0]
    subprocess.run([sys.executable, "-c", code, folder], check=True, timeout=120)


@pytest.mark.parametrize("library", ["requests", "httpx"])
def test_a_library_that_is_not_there_is_named_with_the_remedy(library):
    code = f"""
import sys
sys.modules[{library!r}] = None
import flask_idempotence.client
try:
    import flask_idempotence.client.{library}
except ImportError as error:
    print(error)
"""
    told = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120)
    assert 'pip install "flask-idempotence[client]"' in told
    assert f"pip install {library}" in told
