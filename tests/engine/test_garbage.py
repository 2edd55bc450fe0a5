"""Requests leave as many cycles for the garbage collector behind a guard as without one."""

import gc
import itertools

import pytest
from helpers.apps import make_app

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

ROUNDS = 20
numbers = itertools.count()

GUARDS = {
    "no guard": None,
    "lock": no_repeat_submit(60),
    "key": idempotent(),
    "token": one_time_token(),
}


@pytest.fixture
def idempotence():
    return Idempotence()


@pytest.fixture
def client(idempotence):
    app = make_app(idempotence=idempotence)
    for name, guard in GUARDS.items():

        def view():
            return {"done": True}

        app.add_url_rule(f"/{name}", name, guard(view) if guard else view, methods=["POST"])
    return app.test_client(use_cookies=False)


def garbage_of(client, idempotence, path):
    """Return the number of objects in cycles that so many first requests have left."""
    with client.application.app_context():
        sent = {
            n: {"Idempotency-Key": f"k{n}", "Idempotence-Token": idempotence.issue_token()}
            for n in itertools.islice(numbers, ROUNDS)
        }
    n, headers = sent.popitem()
    client.post(path, json={"n": n}, headers=headers)
    gc.collect()
    gc.disable()
    try:
        for n, headers in sent.items():
            assert client.post(path, json={"n": n}, headers=headers).status_code == 200
        return gc.collect()
    finally:
        gc.enable()


def test_a_first_request_leaves_no_more_garbage_than_without_a_guard(client, idempotence):
    # The least of three: what another thread leaves is counted, too.
    found = {
        name: min(garbage_of(client, idempotence, f"/{name}") for _ in range(3)) for name in GUARDS
    }
    # Less than one object a request.
    assert max(found.values()) < found["no guard"] + ROUNDS - 1, found
