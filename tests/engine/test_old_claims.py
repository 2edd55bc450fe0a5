"""A claim that refuses others for longer than two leases is named in the log."""

import logging
import os
import re
import time

import pytest
from helpers.apps import make_app
from helpers.every_store import storage_settings

from flask_idempotence import idempotent, no_repeat_submit
from flask_idempotence.engine import engine as engine_module

LOG = "A running request has held its claim for"


@pytest.fixture(params=["memory", "redis", "sqlite"])
def nested_app(request):
    """An application whose view sends its own request twice."""

    def pay():
        return {"statuses": [send(app).status_code for _ in range(2)]}

    app = make_app(**storage_settings(request.param, request), IDEMPOTENCE_LEASE=30)
    app.add_url_rule("/key", "pay", idempotent(pay), methods=["POST"])
    return app


def send(app, path="/key"):
    return app.test_client().post(path, json={}, headers={"Idempotency-Key": "a"})


def claims_began(monkeypatch, seconds):
    """Let each claim of the engine say that it began so many seconds ago."""
    began = int((time.time() - seconds) * 1000).to_bytes(6)
    monkeypatch.setattr(engine_module, "new_owner", lambda: began + os.urandom(10))


@pytest.mark.parametrize(("age", "lines"), [(55, 0), (65, 1)])
def test_a_claim_older_than_two_leases_is_named_once(nested_app, monkeypatch, caplog, age, lines):
    claims_began(monkeypatch, age)
    with caplog.at_level(logging.WARNING):
        assert send(nested_app).json == {"statuses": [409, 409]}
    told = [line for line in caplog.messages if line.startswith(LOG)]
    assert len(told) == lines
    for line in told:
        assert re.match(rf"{LOG} [67]\d seconds, and others are refused: mode=key", line)
        assert "endpoint=pay key=" in line
        assert "route=POST /key" in line


def test_a_lock_that_waits_for_its_interval_is_not_old(monkeypatch, caplog):
    claims_began(monkeypatch, 900)
    app = make_app(IDEMPOTENCE_LEASE=30)
    app.add_url_rule("/", "buy", no_repeat_submit(3600)(lambda: "bought"), methods=["POST"])
    assert [send(app, "/").status_code for _ in range(2)] == [200, 409]
    assert not [line for line in caplog.messages if line.startswith(LOG)]
