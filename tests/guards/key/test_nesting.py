"""Key guards around and inside other guards, and what the running view may say and ask."""

from helpers.apps import KeyedApp

from flask_idempotence import current_guard, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.testing import record_signals


class TestSameKey:
    def test_the_inner_one_claims_and_settles_nothing(self):
        keyed = KeyedApp(idempotent()(idempotent()(lambda: "inner")))
        with record_signals(keyed.app) as signals:
            keyed.verdicts({}, {})
        assert signals.names == ["claimed", "completed", "replayed"]

    def test_the_rules_of_the_outer_one_are_in_force(self):
        keyed = KeyedApp(idempotent(guarantee="at-most-once")(lambda: ("no", 503)))
        keyed.add("/once", idempotent()(lambda: ("no", 503)), guarantee="at-most-once")
        assert keyed.verdicts({}, {}) == [503, 503]
        assert keyed.verdicts({}, {}, path="/once") == [503, "replay of 503"]


class TestKeysOfTheirOwn:
    def test_an_inner_one_is_replayed_within_another_operation(self):
        charges = []
        inner = idempotent(key="X-Step")(lambda: charges.append(1) or "charged")
        keyed = KeyedApp(inner)
        sent = [{"key": key, "headers": {"X-Step": "charge"}} for key in "abab"]
        answers = [keyed.send(**each) for each in sent]
        assert [answer.text for answer in answers] == ["charged"] * 4
        assert (keyed.runs, len(charges)) == (2, 1)


class TestOtherModes:
    def test_a_token_outside_the_key_is_spent_before_anything_is_replayed(self):
        keyed = KeyedApp()
        keyed.add("/pay", lambda: "paid", guards=[one_time_token()])
        token = keyed.app.test_client().get("/token").json["token"]
        sent = {"path": "/pay", "headers": {"Idempotence-Token": token}}
        assert keyed.verdicts(sent, sent) == [200, "token-spent"]

    def test_a_lock_outside_the_key_turns_repeats_away_until_its_interval_has_passed(self):
        keyed = KeyedApp()
        keyed.add("/pay", lambda: "paid", guards=[no_repeat_submit(5)])
        assert keyed.verdicts({}, {}, path="/pay") == [200, "repeat-submit"]
        keyed.clock.advance(6)
        assert keyed.verdicts({}, {}, path="/pay") == ["replay of 200", "repeat-submit"]

    def test_a_lock_outside_the_key_is_released_by_the_replay_of_a_failure(self):
        keyed = KeyedApp()
        keyed.add("/pay", lambda: ("no", 422), guards=[no_repeat_submit(5)])
        assert keyed.verdicts(*[{}] * 3, path="/pay") == [422, *["replay of 422"] * 2]

    def test_a_lock_inside_the_key_turns_away_what_comes_with_another_key(self):
        keyed = KeyedApp(no_repeat_submit(5)(lambda: "paid"))
        assert keyed.verdicts({}, {}) == [200, "replay of 200"]
        assert keyed.verdicts({"key": "b"}, {"key": "b"}) == ["repeat-submit"] * 2
        keyed.clock.advance(6)
        assert keyed.verdicts({"key": "b"}, {"key": "b"}) == [200, "replay of 200"]


class TestCurrentGuard:
    def test_it_names_the_mode_and_what_the_log_names(self, caplog):
        caplog.set_level("INFO", "flask_idempotence")
        keyed = KeyedApp(lambda: [current_guard.mode, current_guard.key, current_guard.replayed])
        mode, key, replayed = keyed.send("raw-key").json
        keyed.send("raw-key")
        assert (mode, replayed, len(key)) == ("key", False, 12)
        assert f"Request replayed: mode=key endpoint=view key={key}" in caplog.text
