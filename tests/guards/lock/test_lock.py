"""Lock mode: its parameters, its intervals, its log line."""

import logging
from datetime import timedelta

import pytest
from flask import request
from helpers.apps import GuardedApp, make_app

from flask_idempotence import MemoryStore, claimed, completed, current_guard, no_repeat_submit
from flask_idempotence.testing import clear_store, record_signals


class Shop(GuardedApp):
    """An application with one locked view."""

    def __init__(self, *arguments, settings=None, in_view=None, store=None, **options):
        super().__init__(store=store, settings=settings)
        self.in_view = in_view or (lambda shop: None)
        guard = no_repeat_submit(*arguments, **options)
        self.add_view("/orders/<int:number>", self.order, guard)

    def order(self, number=0):
        run = self.runs
        self.in_view(self)
        return {"run": run}

    def post(self, path="/orders/1", method="POST", **options):
        options.setdefault("json", {"item": "tea"})
        return self.app.test_client().open(path, method=method, **options)

    def codes(self, *requests):
        return [self.post(**request).status_code for request in requests]

    def check_that_it_is_free_in(self, seconds):
        self.clock.advance(seconds - 0.01)
        assert self.codes({}) == [409]
        self.clock.advance(0.02)
        assert self.codes({}) == [200]


def test_a_repeat_within_the_interval_is_told_the_message_and_how_long_to_wait():
    shop = Shop(2.5, "Once is enough.")
    assert shop.post().status_code == 200
    shop.clock.advance(0.4)
    repeat = shop.post()
    assert repeat.status_code == 409
    assert repeat.headers["Retry-After"] == "3"
    assert repeat.json["type"] == "urn:flask-idempotence:repeat-submit"
    assert repeat.json["detail"] == "Once is enough."
    assert shop.runs == 1


@pytest.mark.parametrize("interval", [0.3, 0.5, 1, 5, timedelta(milliseconds=1500), 120])
def test_the_interval_is_counted_from_the_claim_to_the_fraction(interval):
    length = interval.total_seconds() if isinstance(interval, timedelta) else interval
    shop = Shop(interval, in_view=lambda shop: shop.clock.advance(length / 10))
    assert shop.codes({}) == [200]
    shop.check_that_it_is_free_in(length * 0.9)


def test_the_setting_is_the_default():
    shop = Shop(settings={"IDEMPOTENCE_LOCK_INTERVAL": 3, "IDEMPOTENCE_LOCK_MESSAGE": "Wait."})
    assert shop.post().status_code == 200
    shop.clock.advance(2.9)
    assert shop.post().json["detail"] == "Wait."
    shop.clock.advance(0.1)
    assert shop.post().status_code == 200


class TestArguments:
    def test_a_key_stands_for_the_arguments_and_the_body_is_not_read(self):
        unread = []
        shop = Shop(
            5,
            key=lambda: request.headers["X-Order"],
            in_view=lambda shop: unread.append(request.stream.read()),
        )
        assert shop.codes(
            {"headers": {"X-Order": "1"}},
            {"headers": {"X-Order": "1"}, "json": {"item": "milk"}, "path": "/orders/2"},
            {"headers": {"X-Order": "2"}},
        ) == [200, 409, 200]
        assert unread[0] == b'{"item": "tea"}'

    def test_safe_methods_pass_unless_they_are_taken_in(self):
        assert Shop(5).codes(*[{"method": "GET"}] * 3) == [200] * 3
        shop = Shop(5, methods=("get",))
        for sent in ({"method": "GET"}, {"method": "HEAD"}, {}):
            assert shop.codes(sent, sent) == [200, 409]

    @pytest.mark.parametrize("options", [{}, {"only": ["number"]}, {"ignore": ["note"]}], ids=str)
    def test_what_a_preprocessor_takes_out_counts_all_the_same(self, options):
        shop = Shop(5, **options)
        shop.app.url_value_preprocessor(lambda endpoint, values: values.pop("number"))
        orders = [{}, {"path": "/orders/2"}]
        assert shop.codes(*orders, *orders) == [200, 200, 409, 409]


class TestLeases:
    @pytest.mark.parametrize(("interval", "lease"), [(0.1, 0.5), (0.5, 0.5), (5, 5), (90, 30)])
    def test_the_first_lease_is_the_interval_within_its_bounds(self, interval, lease):
        shop = Shop(interval)
        with record_signals(shop.app) as signals:
            shop.post()
        assert signals.events[0][1]["lease"] == lease

    def test_a_lease_that_was_made_sure_of_is_held_for_the_interval_after_the_view(self):
        def careful(shop):
            current_guard.ensure_held()
            shop.clock.advance(0.8)

        shop = Shop(1, in_view=careful)
        assert shop.codes({}) == [200]
        shop.check_that_it_is_free_in(1)

    def test_a_lease_is_counted_from_before_it_was_asked_for(self):
        late = [0.6]

        class Late(MemoryStore):
            def claim(self, *arguments, **options):
                outcome = super().claim(*arguments, **options)
                shop.clock.advance(late.pop() if late else 0)
                return outcome

        shop = Shop(1, store=Late, in_view=lambda shop: shop.clock.advance(0.7))
        assert shop.codes({}, {}) == [200, 409]

    def test_a_lease_that_was_made_sure_of_is_renewed_again_at_its_own_third(self):
        renewals = []

        class Counting(MemoryStore):
            def renew(self, batch):
                renewals.append(shop.clock() - began)
                return super().renew(batch)

        def careful(shop):
            current_guard.ensure_held()
            for _ in range(12):
                shop.clock.advance(1)
                shop.engine.keeper.tick()

        shop = Shop(1, store=Counting, in_view=careful)
        began = shop.clock()
        assert shop.codes({}) == [200]
        assert renewals == [0, 10, 12]  # the last one settles


class TestSlowViews:
    def test_a_repeat_of_one_is_told_the_interval_and_not_the_lease(self):
        told = []

        def slow(shop):
            shop.clock.advance(0.5)
            shop.engine.keeper.tick()
            told.append(shop.post().headers["Retry-After"])

        Shop(1, in_view=slow).post()
        assert told == ["1"]

    def test_whoever_clicked_while_a_slow_view_ran_is_turned_away_after_it(self):
        def slow(shop):
            shop.clock.advance(0.5)
            shop.engine.keeper.tick()
            shop.clock.advance(1)

        shop = Shop(1, in_view=slow)
        assert shop.codes({}, {}) == [200, 409]
        shop.check_that_it_is_free_in(1)

    def test_a_view_that_lets_no_other_thread_in_is_no_way_around(self, caplog):
        def greedy(shop):
            shop.clock.advance(1.5)  # and the keeper never ran

        shop = Shop(1, in_view=greedy)
        with record_signals(shop.app) as signals:
            assert shop.codes({}, {}) == [200, 409]
        assert signals.count("lease_lost") == 1  # for others could have come in meanwhile
        assert "the keeper's thread did not run in time" in caplog.text
        shop.check_that_it_is_free_in(1)

    def test_a_lease_that_was_lost_is_known_to_the_view_and_its_answer_goes_out(self, caplog):
        lost = []

        def overtaken(shop):
            if shop.runs == 1:
                clear_store(shop.app)
                lost.extend([current_guard.lost, shop.post().status_code])
                shop.clock.advance(0.5)
                shop.engine.keeper.tick()
                lost.append(current_guard.lost)

        shop = Shop(1, in_view=overtaken)
        with record_signals(shop.app) as signals:
            assert shop.post().json == {"run": 1}
        assert lost == [False, 200, True]
        assert signals.count("lease_lost") == 1
        assert "keeper" not in caplog.text  # which has done its part
        assert shop.post().status_code == 409  # the second owner's claim stands

    def test_a_view_makes_sure_of_its_lease_before_what_cannot_be_undone(self):
        held = []

        def careful(shop):
            current_guard.ensure_held()
            shop.clock.advance(29)
            held.append(shop.post().status_code)
            clear_store(shop.app)
            current_guard.ensure_held()
            held.append("charged")

        shop = Shop(1, in_view=careful)
        with record_signals(shop.app) as signals:
            answer = shop.post()
        assert held == [409]
        assert answer.status_code == 409
        assert answer.json["type"] == "urn:flask-idempotence:lease-lost"
        assert answer.headers["Retry-After"] == "1"
        assert signals.count("lease_lost") == 1

    def test_current_guard_is_a_no_op_where_nothing_is_guarded(self):
        app = make_app()
        current_guard.ensure_held()
        with app.test_request_context():
            current_guard.ensure_held()
            current_guard.release()
            current_guard.keep()
            assert (current_guard.mode, current_guard.key) == (None, None)
            assert not current_guard.lost


def test_a_rejected_repeat_is_logged_without_arguments_or_credentials(caplog):
    caplog.set_level(logging.DEBUG)
    shop = Shop(5)
    secrets = {
        "json": {"card": "4111-1111"},
        "headers": {"Authorization": "Bearer hunter2"},
        "environ_base": {"REMOTE_ADDR": "203.0.113.9"},
        "path": "/orders/7700770077?pin=secret-pin",
    }
    assert shop.codes(secrets, secrets) == [200, 409]
    lines = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert len(lines) == 1
    assert "endpoint=orders/<int:number>" in lines[0]
    key, _, route = lines[0].rpartition("key=")[2].partition(" ")
    assert route == "route=POST /orders/<int:number>"
    assert len(key) == 12
    stored = "".join(shop.store.scan(""))
    for secret in ("4111", "hunter2", "203.0.113.9", "secret-pin", "7700770077"):
        assert secret not in caplog.text
        assert secret not in stored


def test_a_receiver_that_raises_changes_nothing(caplog):
    shop = Shop(5)

    def receiver(app, **arguments):
        raise RuntimeError("a broken metric")

    with claimed.connected_to(receiver), completed.connected_to(receiver):
        assert shop.codes({}, {}) == [200, 409]
    assert caplog.text.count("RuntimeError: a broken metric") == 2
