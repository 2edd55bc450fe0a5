"""`Idempotent-Expires-In`, and `current_guard.keep(ttl=...)`."""

from dataclasses import replace

import pytest
from flask import Response, abort
from helpers.apps import make_app
from helpers.every_store import EVERY_STORE, storage_settings

from flask_idempotence import ConfigurationError, current_guard, idempotent, no_repeat_submit
from flask_idempotence.testing import control_time

HEADER = "Idempotent-Expires-In"
KEY = {"Idempotency-Key": "0b3d3f0e-6d1c-4c43-9d6e-8c8c3b8d5c11"}


def app_with(view, decorate=None, **settings):
    app = make_app(**settings)
    app.post("/pay")((decorate or idempotent(ttl=60))(view))
    return app


def send(app, **options):
    return app.test_client().post("/pay", headers=KEY, **options)


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_first_response_and_replay_say_how_long_the_key_is_remembered(kind, request):
    app = app_with(lambda: "paid", **storage_settings(kind, request))
    assert send(app).headers[HEADER] == "60"
    replay = send(app)
    assert replay.headers["Idempotent-Replayed"] == "true"
    assert replay.headers[HEADER] in ("60", "59", "58")  # 60 within a millisecond


def test_the_time_that_is_left_is_rounded_down():
    app = app_with(lambda: "paid")
    with control_time() as clock:
        send(app)
        clock.advance(10.5)
        assert send(app).headers[HEADER] == "49"


@pytest.mark.parametrize(
    "view",
    [
        lambda: abort(503),
        lambda: Response(iter(["streamed"])),
        lambda: current_guard.release() or "",
    ],
)
def test_it_is_absent_where_nothing_is_remembered(view):
    assert HEADER not in send(app_with(view)).headers


def test_it_is_absent_without_a_key_and_where_the_record_is_not_stored_yet():
    app = app_with(lambda: "paid")
    assert HEADER not in app.test_client().post("/pay").headers
    store = app.extensions["idempotence"].store
    complete, store.complete = store.complete, lambda *_: 1 / 0
    answer = send(app)
    assert (answer.headers["Idempotent-Stored"], HEADER in answer.headers) == ("false", False)
    store.complete = complete


@pytest.mark.parametrize(("remaining", "shown"), [(None, None), (-5.0, "0")])
def test_a_store_that_does_not_say_sends_no_header(monkeypatch, remaining, shown):
    app = app_with(lambda: "paid")
    send(app)
    store = app.extensions["idempotence"].store
    claim = store.claim
    monkeypatch.setattr(store, "claim", lambda *asked: replace(claim(*asked), remaining=remaining))
    replay = send(app)
    assert ("Idempotent-Replayed" in replay.headers, replay.headers.get(HEADER)) == (True, shown)


class TestKeep:
    @pytest.mark.parametrize("ttl", [5, 3600])
    def test_it_sets_the_time_for_this_response(self, ttl):
        app = app_with(lambda: current_guard.keep(ttl=ttl) or "paid")
        with control_time() as clock:
            assert send(app).headers[HEADER] == str(ttl)
            clock.advance(ttl - 1)
            assert send(app).headers[HEADER] in ("0", "1")
            clock.advance(1.1)
            assert "Idempotent-Replayed" not in send(app).headers

    @pytest.mark.parametrize("ttl", [0, -1, "5", float("inf")])
    def test_a_ttl_that_is_no_duration(self, ttl):
        with pytest.raises(ConfigurationError, match=r"current_guard.keep\(ttl=...\)"):
            send(app_with(lambda: current_guard.keep(ttl=ttl)))

    def test_in_another_mode(self):
        app = app_with(lambda: current_guard.keep(ttl=5), no_repeat_submit(5))
        with pytest.raises(ConfigurationError, match="not for no_repeat_submit"):
            send(app)

    def test_a_token_as_the_key_is_remembered_for_as_long_as_it_is_good(self):
        app = app_with(
            lambda: current_guard.keep(ttl=30) or "", idempotent(key="Idempotence-Token", ttl=900)
        )
        client = app.test_client()
        token = client.get("/token").json["token"]
        with pytest.raises(ConfigurationError, match="is a one-time token"):
            client.post("/pay", headers={"Idempotence-Token": token})

    def test_after_the_record(self):
        app = app_with(lambda: "paid")
        app.after_request(lambda response: current_guard.keep(ttl=5) or response)
        with pytest.raises(ConfigurationError, match="comes too late"):
            send(app)

    def test_where_nothing_is_guarded_it_does_nothing(self):
        app = app_with(lambda: current_guard.keep(ttl=5) or "paid")
        assert app.test_client().post("/pay").text == "paid"
