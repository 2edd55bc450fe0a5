"""Many threads of one process: none waits for the round trip of another."""

import threading
import time

import pytest
from helpers.apps import make_app
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once

from flask_idempotence import idempotent, no_repeat_submit

THREADS, REQUESTS, DELAY = 32, 3, 0.15


@pytest.mark.parametrize(
    ("guard", "trips"),
    [(no_repeat_submit(interval=60), 1), (idempotent(required=True), 2)],
    ids=["lock", "key"],
)
def test_threads_do_not_wait_for_the_round_trips_of_others(fresh_redis, guard, trips):
    with Proxy(fresh_redis) as proxy:
        app = make_app(
            IDEMPOTENCE_STORAGE_URI=proxy.url, IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 5}
        )
        app.add_url_rule("/", "order", guard(lambda: "created"), methods=["POST"])
        everybody = threading.Barrier(THREADS, lambda: setattr(proxy, "delay", DELAY / 2))
        began = []

        def thread(number):
            for request in range(REQUESTS + 1):
                name = f"{number}-{request}"
                answer = app.test_client().post(
                    "/", json={"order": name}, headers={"Idempotency-Key": name}
                )
                assert answer.status_code == 200
                if request == 0:  # which connects
                    everybody.wait(30)
                    began.append(time.monotonic())

        all_at_once([lambda number=number: thread(number) for number in range(THREADS)])
        took = time.monotonic() - min(began)

    of_one = REQUESTS * trips * DELAY
    # One after the other would take 32 times as long; a busy machine may stall for seconds.
    assert of_one <= took < THREADS / 2 * of_one
