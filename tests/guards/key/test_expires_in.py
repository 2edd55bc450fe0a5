"""`Idempotent-Expires-In`, and `current_guard.keep(ttl=...)`."""

from dataclasses import replace

import pytest
from flask import Response, abort
from helpers.apps import KeyedApp, make_app
from helpers.every_store import EVERY_STORE, storage_settings

from flask_idempotence import ConfigurationError, current_guard, idempotent, no_repeat_submit

HEADER = "Idempotent-Expires-In"


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_first_response_and_replay_say_how_long_the_key_is_remembered(kind, request):
    app = make_app(**storage_settings(kind, request))
    app.post("/pay")(idempotent(ttl=60)(lambda: "paid"))
    first, replay = (
        app.test_client().post("/pay", headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert first.headers[HEADER] == "60"
    assert replay.headers["Idempotent-Replayed"] == "true"
    assert replay.headers[HEADER] in ("60", "59", "58")  # 60 within a millisecond


def test_the_time_that_is_left_is_rounded_down():
    keyed = KeyedApp(ttl=60)
    keyed.send()
    keyed.clock.advance(10.5)
    assert keyed.send().headers[HEADER] == "49"


@pytest.mark.parametrize(
    ("view", "key"),
    [
        (lambda: abort(503), "k"),
        (lambda: Response(iter(["streamed"])), "k"),
        (lambda: current_guard.release() or "", "k"),
        (lambda: "", None),
    ],
)
def test_it_is_absent_where_nothing_is_remembered(view, key):
    assert HEADER not in KeyedApp(view).send(key).headers


def test_it_is_absent_where_the_record_is_not_stored_yet(monkeypatch):
    keyed = KeyedApp()
    monkeypatch.setattr(keyed.store, "complete", lambda *_: 1 / 0)
    answer = keyed.send()
    assert (answer.headers["Idempotent-Stored"], HEADER in answer.headers) == ("false", False)


@pytest.mark.parametrize(("remaining", "shown"), [(None, None), (-5.0, "0")])
def test_a_store_that_does_not_say_sends_no_header(monkeypatch, remaining, shown):
    keyed = KeyedApp()
    keyed.send()
    claim = keyed.store.claim
    monkeypatch.setattr(
        keyed.store, "claim", lambda *asked: replace(claim(*asked), remaining=remaining)
    )
    replay = keyed.send()
    assert ("Idempotent-Replayed" in replay.headers, replay.headers.get(HEADER)) == (True, shown)


class TestKeep:
    @pytest.mark.parametrize("ttl", [5, 3600])
    def test_it_sets_the_time_for_this_response(self, ttl):
        keyed = KeyedApp(lambda: current_guard.keep(ttl=ttl) or "paid")
        assert keyed.send().headers[HEADER] == str(ttl)
        keyed.clock.advance(ttl - 1)
        assert keyed.send().headers[HEADER] in ("0", "1")
        keyed.clock.advance(1.1)
        assert keyed.verdicts({}) == [200]

    @pytest.mark.parametrize("ttl", [0, -1, "5", float("inf")])
    def test_a_ttl_that_is_no_duration(self, ttl):
        with pytest.raises(ConfigurationError, match=r"current_guard.keep\(ttl=...\)"):
            KeyedApp(lambda: current_guard.keep(ttl=ttl)).send()

    def test_in_another_mode(self):
        keyed = KeyedApp(no_repeat_submit(5)(lambda: current_guard.keep(ttl=5)))
        with pytest.raises(ConfigurationError, match="not for no_repeat_submit"):
            keyed.send()

    def test_a_token_as_the_key_is_remembered_for_as_long_as_it_is_good(self):
        keyed = KeyedApp(lambda: current_guard.keep(ttl=30), key="Idempotence-Token", ttl=900)
        token = keyed.app.test_client().get("/token").json["token"]
        with pytest.raises(ConfigurationError, match="is a one-time token"):
            keyed.send(headers={"Idempotence-Token": token})

    def test_after_the_record(self):
        keyed = KeyedApp()
        keyed.app.after_request(lambda response: current_guard.keep(ttl=5) or response)
        with pytest.raises(ConfigurationError, match="comes too late"):
            keyed.send()
