"""A payment of three steps in the example: its worker is killed, and another one continues."""

import time

import pytest

from example_app import create_app, worker

PATH = "/api/payments/steps"
STEPS = ["reserve", "charge", "book"]
KEY = {"Idempotency-Key": "a-payment-in-three-steps"}


@pytest.fixture
def client(tmp_path):
    app = create_app(TESTING=True, EXAMPLE_DATABASE=tmp_path / "shop.sqlite3")
    yield app.test_client()
    app.extensions["example_database"].close()


def pay(client, kill="", headers=KEY, amount=12):
    return client.post(PATH, json={"amount": amount}, headers={**headers, "X-Example-Kill": kill})


def steps(client):
    """Return the steps and processes in the database, oldest first."""
    return [(row["step"], row["pid"]) for row in client.get(PATH).json["steps"][::-1]]


@pytest.mark.lifecycle
@pytest.mark.parametrize("finished", [1, 2])
def test_another_process_carries_out_the_steps_that_are_left(client, finished):
    killed = pay(client, STEPS[finished - 1])
    assert (killed.status_code, killed.text) == (503, "")
    assert [step for step, _ in steps(client)] == STEPS[:finished]
    assert client.get("/api/payments").json["count"] == 0
    time.sleep(worker.LEASE)
    answer = pay(client, STEPS[finished - 1])
    assert (answer.status_code, answer.json) == (201, {"number": 1, "amount": 12})
    names, processes = zip(*steps(client), strict=True)
    assert [*names] == STEPS
    assert len({*processes[:finished]}) == len({*processes[finished:]}) == 1
    assert processes[0] != processes[-1]
    replay = pay(client)
    assert (replay.json, replay.headers["Idempotent-Replayed"]) == (answer.json, "true")
    assert len(steps(client)) == 3
    paid = client.get("/api/payments").json
    assert (paid["count"], paid["tries"]) == (1, 3)  # the killed one and the replay count


def test_a_refusal_of_the_worker_is_the_answer(client):
    assert pay(client, headers={}).headers["Idempotence-Refusal"] == "key-missing"
    assert pay(client, amount=0).status_code == 400
    assert steps(client) == []
    assert client.get("/api/payments").json["tries"] == 1
