"""Callers and guarded routes together: a network that loses half, and each effect once."""

import asyncio
import random
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from flask import request
from helpers.apps import make_app
from helpers.callers.http_callers import CALLERS, hang_up, serving
from werkzeug.exceptions import HTTPException

from flask_idempotence import MemoryStore, idempotent, no_repeat_submit
from flask_idempotence.client import Retries, was_replayed
from flask_idempotence.client.httpx import AsyncIdempotentTransport
from flask_idempotence.testing import FakeClock


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


REFUSERS = {
    "the problem document": ({}, {}),
    "any HTTP error in JSON": (
        {HTTPException: lambda error: ({"a": 1}, error.code, {"Retry-After": "5"})},
        {},
    ),
    "any error is a 500": ({Exception: lambda error: ({"error": "internal"}, 500)}, {}),
    "any error is a 503": ({Exception: lambda error: ("", 503, {"Retry-After": "5"})}, {}),
    "a page": ({}, {"Accept": "text/html"}),
}


@pytest.fixture(params=REFUSERS)
def voting(request):
    """An application with a lock whose refusals are no problem documents, and its clock."""
    clock, (handlers, headers) = FakeClock(), REFUSERS[request.param]
    app = make_app(store=MemoryStore(clock=clock))
    clock.rule(app)
    app.clock, app.runs, app.sent = clock, [], headers
    for error, handler in handlers.items():
        app.register_error_handler(error, handler)

    @app.post("/vote")
    @no_repeat_submit(5)
    def vote():
        app.runs.append(1)
        return "counted"

    return app


def test_a_locked_order_is_carried_out_once_whatever_makes_the_refusal(call, pauses, voting):
    pauses.meanwhile = lambda: voting.clock.advance(6)  # the lock opens while the client waits
    with serving(voting) as url:
        for _ in range(2):
            call("POST", f"{url}/vote", headers=voting.sent)
    assert (voting.runs, pauses) == ([1], [])
