"""Changes around a store while requests run: a clock that jumps, a purge by hand."""

import itertools
import threading
import time
from collections import Counter

import pytest
from flask import request
from helpers.apps import make_app
from helpers.servers.processes import all_at_once

from flask_idempotence import idempotent
from flask_idempotence.engine.engine import engine_of

CALLERS, KEYS = 8, 10


class Shop:
    """A view behind a key, and how often it ran for each, and at once for one."""

    def __init__(self, uri):
        options = {} if uri == "memory://" else {"deadline": 60}  # the machine may be busy
        self.app = make_app(IDEMPOTENCE_STORAGE_URI=uri, IDEMPOTENCE_STORAGE_OPTIONS=options)
        self.runs, self.running, self.overlaps = Counter(), Counter(), 0
        self.app.post("/")(idempotent()(self.order))

    def order(self):
        key = request.headers["Idempotency-Key"]
        self.running[key] += 1
        self.overlaps += self.running[key] > 1
        self.runs[key] += 1
        time.sleep(0.001)
        self.running[key] -= 1
        return key

    def send(self, key):
        return self.app.test_client().post("/", headers={"Idempotency-Key": key})


@pytest.fixture(params=["memory", "redis", "sqlite"])
def shop(request, tmp_path):
    uris = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/app.db"}
    shop = Shop(uris.get(request.param) or request.getfixturevalue("redis_url"))
    if request.param == "sqlite":
        engine_of(shop.app).store.create_table()
    return shop


def test_a_clock_that_jumps_by_an_hour_changes_nothing(shop, monkeypatch):
    clock, steps = time.time, itertools.cycle([3600, -3600, 0])
    monkeypatch.setattr(time, "time", lambda: clock() + next(steps))

    def buy(caller):
        keys = [f"order {caller} {number}" for number in range(KEYS)]
        return [(shop.send(key), shop.send(key)) for key in keys]

    answers = all_at_once([lambda caller=caller: buy(caller) for caller in range(CALLERS)])
    for first, repeat in itertools.chain(*answers):
        assert (first.status_code, first.text) == (200, repeat.text)
        assert repeat.headers["Idempotent-Replayed"] == "true"
    assert set(shop.runs.values()) == {1}


def test_a_purge_beside_requests_takes_no_claim_from_a_view_that_runs(redis_url):
    shop, keys = Shop(redis_url), [f"order {number}" for number in range(KEYS)]
    found, is_over = [], threading.Event()

    def buy():
        try:
            found.extend(shop.send(key).status_code for key in keys for _ in range(3))
        finally:
            is_over.set()

    def purge():
        while not is_over.is_set():
            result = shop.app.test_cli_runner().invoke(
                args=["idempotence", "purge", "--all", "--yes"]
            )
            assert result.exit_code == 0, result.output
        return True

    assert all_at_once([purge] + [buy] * CALLERS)[0]
    assert set(found) <= {200, 409}
    assert found.count(200) >= len(keys)
    assert shop.overlaps == 0
