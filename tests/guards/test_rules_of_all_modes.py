"""Rules that are easily broken: who asks, what a lock counts, how a refusal looks."""

import pytest
from guards.lock.test_lock import Shop
from helpers.apps import make_app

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    MemoryStore,
    RepeatSubmit,
    StoreUnavailable,
    TokenInvalid,
    current_guard,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.testing import FakeClock, record_signals


def answer():
    return {}


class TestWhoAsks:
    def test_the_key_of_a_token_names_its_purpose(self):
        store, idempotence = MemoryStore(), Idempotence()
        app = make_app(store=store, idempotence=idempotence)
        with app.app_context():
            idempotence.issue_token("checkout")
        assert [key.split(":")[:4] for key in store.scan("")] == [
            ["idempotence", "2", "token", "checkout"]
        ]

    def test_a_users_token_is_of_the_host_that_it_was_issued_on(self):
        app = make_app(host_matching=True)
        view = one_time_token()(lambda host: {})
        app.add_url_rule("/", "view", view, methods=["POST"], host="<host>")
        client, alice = app.test_client(), {"Authorization": "Bearer alice"}
        token = client.get("/token", base_url="http://a.example", headers=alice).json["token"]
        sent = {"Idempotence-Token": token, **alice}
        codes = [
            client.post("/", base_url=f"http://{host}", headers=sent).status_code
            for host in ("b.example", "a.example")
        ]
        assert codes == [403, 200]

    def test_a_token_of_a_rotation_is_signed_with_the_new_secret(self):
        app = make_app(SECRET_KEY_FALLBACKS=["the old one"], IDEMPOTENCE_HASH_KEY="k" * 32)
        app.add_url_rule("/", "view", one_time_token()(answer), methods=["POST"])
        headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
        app.config["SECRET_KEY_FALLBACKS"] = []
        assert app.test_client().post("/", headers=headers).status_code == 200


class TestLock:
    @pytest.mark.parametrize(("interval", "lease"), [(0.1, 0.5), (0.5, 0.5), (5, 5), (90, 30)])
    def test_the_first_lease_is_the_interval_within_its_bounds(self, interval, lease):
        shop = Shop(interval)
        with record_signals(shop.app) as signals:
            shop.post()
        assert signals.events[0][1]["lease"] == lease

    @pytest.mark.parametrize(("interval", "took"), [(0.4, 0.1), (120, 5)])
    def test_an_interval_that_is_no_lease_is_counted_from_the_claim(self, interval, took):
        shop = Shop(interval, in_view=lambda shop: shop.clock.advance(took))
        assert shop.codes({}) == [200]
        shop.clock.advance(interval - took - 0.01)
        assert shop.codes({}) == [409]
        shop.clock.advance(0.02)
        assert shop.codes({}) == [200]

    def test_a_repeat_of_a_slow_view_is_told_the_interval_and_not_the_lease(self):
        told = []

        def slow(shop):
            shop.clock.advance(0.5)
            shop.keeper.tick()
            told.append(shop.post().headers["Retry-After"])

        Shop(1, in_view=slow).post()
        assert told == ["1"]

    def test_a_guarded_get_includes_head(self):
        app = make_app()
        app.add_url_rule("/", "view", no_repeat_submit(60, methods=("GET",))(answer))
        assert [app.test_client().head("/").status_code for _ in range(2)] == [200, 409]


class TestSetup:
    def test_a_toggle_that_says_neither_yes_nor_no_is_an_error(self):
        app = make_app()
        app.add_url_rule("/", "view", no_repeat_submit(60)(answer), methods=["POST"])
        app.config["IDEMPOTENCE_LOCK_ENABLED"] = "perhaps"
        with pytest.raises(ConfigurationError, match="IDEMPOTENCE_LOCK_ENABLED"):
            app.test_client().post("/")

    def test_a_route_that_takes_other_methods_at_the_token_url_is_no_collision(self):
        app = make_app()
        app.add_url_rule("/token", "login", lambda: "signed in", methods=["POST"])
        assert app.test_client().get("/token").status_code == 200
        assert app.test_client().post("/token").text == "signed in"


class TestRefusals:
    def test_both_ways_of_saying_no_vary_by_what_is_accepted(self):
        app = make_app()
        app.add_url_rule("/", "view", no_repeat_submit(60)(answer), methods=["POST"])
        app.test_client().post("/")
        for accepted in ("application/json", "text/html"):
            repeat = app.test_client().post("/", headers={"Accept": accepted})
            assert (repeat.status_code, repeat.headers["Vary"]) == (409, "Accept")

    def test_a_token_that_is_redeemed_by_hand_in_vain_is_announced(self):
        idempotence = Idempotence()
        app = make_app(idempotence=idempotence)
        with app.app_context(), record_signals(app) as signals, pytest.raises(TokenInvalid):
            idempotence.redeem_token("garbage")
        assert signals.names == ["rejected"]

    def test_waiting_is_told_in_whole_seconds_and_never_as_none(self):
        told = {0: "1", 0.2: "1", 1: "1", 1.01: "2"}
        for seconds, header in told.items():
            headers = StoreUnavailable(retry_after=seconds).get_headers()
            assert ("Retry-After", header) in headers

    def test_an_answer_of_the_applications_own_with_another_status_asks_nobody_to_wait(self):
        app = make_app()
        app.register_error_handler(RepeatSubmit, lambda error: ("done already", 200))
        app.add_url_rule("/", "view", no_repeat_submit(60)(answer), methods=["POST"])
        app.test_client().post("/")
        repeat = app.test_client().post("/")
        assert (repeat.text, "Retry-After" in repeat.headers) == ("done already", False)


class TestLeases:
    def test_a_lease_that_was_made_sure_of_is_held_for_the_interval_after_the_view(self):
        def careful(shop):
            current_guard.ensure_held()
            shop.clock.advance(0.8)

        shop = Shop(1, in_view=careful)
        assert shop.codes({}) == [200]
        shop.clock.advance(0.9)
        assert shop.codes({}) == [409]
        shop.clock.advance(0.2)
        assert shop.codes({}) == [200]

    def test_a_lease_is_counted_from_before_it_was_asked_for(self):
        clock, answers_late = FakeClock(), [0.6]

        class Late(MemoryStore):
            def claim(self, *arguments, **options):
                outcome = super().claim(*arguments, **options)
                clock.advance(answers_late.pop() if answers_late else 0)
                return outcome

        app = make_app(store=Late(clock=clock))
        clock.rule(app)
        app.extensions["idempotence"].engine.keeper._schedule = lambda at: None
        view = no_repeat_submit(1)(lambda: clock.advance(0.7) or {})
        app.add_url_rule("/", "view", view, methods=["POST"])
        assert [app.test_client().post("/").status_code for _ in range(2)] == [200, 409]

    def test_a_lease_that_was_made_sure_of_is_renewed_again_at_its_own_third(self):
        clock, renewals = FakeClock(), []

        class Counting(MemoryStore):
            def renew(self, batch):
                renewals.append(clock())
                return super().renew(batch)

        app = make_app(store=Counting(clock=clock))
        clock.rule(app)
        keeper = app.extensions["idempotence"].engine.keeper
        keeper._schedule = lambda at: None
        began = clock()

        def careful():
            current_guard.ensure_held()
            for _ in range(12):
                clock.advance(1)
                keeper.tick()
            return {}

        app.add_url_rule("/", "view", no_repeat_submit(1)(careful), methods=["POST"])
        assert app.test_client().post("/").status_code == 200
        assert [moment - began for moment in renewals] == [0, 10, 12]  # the last one settles
