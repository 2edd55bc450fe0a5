"""A lock that all senders share, and a lock that is waited for."""

import time
from datetime import timedelta

import pytest
from flask import request
from helpers.apps import make_app
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.servers.processes import all_at_once

from flask_idempotence import MemoryStore, no_repeat_submit
from flask_idempotence.testing import FakeClock, record_signals


def by_order():
    return request.get_json(silent=True, force=True)["order"]


class Shop:
    """Views behind locks; each user is known by credentials of their own."""

    def __init__(self, view=lambda: "done", *arguments, settings=None, **options):
        self.app = make_app(**(settings or {}))
        self.engine = self.app.extensions["idempotence"].engine
        self.view = view
        self.inside, self.together = [], []
        guard = no_repeat_submit(*arguments, **{"key": by_order, "shared": True, **options})
        for rule in ("/pay", "/cancel"):
            self.app.add_url_rule(rule, rule[1:], guard(self._counted), methods=["POST", "PUT"])

    def _counted(self):
        self.inside.append(1)
        self.together.append(len(self.inside))
        try:
            return self.view()
        finally:
            self.inside.pop()

    def post(self, user=1, order=7, path="/pay", *, method="POST", **options):
        headers = {"Authorization": f"Bearer user-{user}"}
        options = {"json": {"order": order, "by": user}, **options}
        return self.app.test_client().open(path, method=method, headers=headers, **options)

    def at_once(self, users, **options):
        """Return the statuses of one request of each user, all at once."""
        calls = [lambda user=user: self.post(user, **options).status_code for user in users]
        return sorted(all_at_once(calls))


def standing_still(shop):
    """Give a shop a clock that stands still, and waits that let it go on."""
    clock = FakeClock()
    shop.engine.store = MemoryStore(clock=clock)
    clock.rule(shop.app)
    shop.engine.keeper._schedule = lambda at: None
    shop.waits = []
    shop.engine.sleep = lambda seconds: (shop.waits.append(seconds), clock.advance(seconds))


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_five_users_one_order_one_runs(kind, request):
    settings = storage_settings(kind, request)
    shop = Shop(lambda: time.sleep(0.2) or "done", 30, settings=settings)
    assert shop.at_once(range(5)) == [200, 409, 409, 409, 409]
    assert shop.together == [1]


def test_without_sharing_each_of_them_has_a_lock_of_their_own():
    shop = Shop("done".strip, 30, shared=False)
    assert [shop.post(user).status_code for user in (1, 2, 1, 2)] == [200, 200, 409, 409]


def test_another_order_method_or_route_is_another_lock():
    shop = Shop("done".strip, 30)
    assert shop.post(1).status_code == 200
    assert shop.post(2).status_code == 409
    others = [{"order": 8}, {"order": "7"}, {"path": "/cancel"}, {"method": "PUT"}]
    assert [shop.post(2, **other).status_code for other in others] == [200] * 4


@pytest.mark.parametrize(("counts", "second"), [(True, 200), (False, 409)])
def test_tenants_at_hosts_of_their_own_do_not_lock_each_other(counts, second):
    shop = Shop("done".strip, 30, settings={"IDEMPOTENCE_IDENTITY_HOST": counts})
    assert shop.post(1, base_url="https://one.test").status_code == 200
    assert shop.post(2, base_url="https://two.test").status_code == second
    assert shop.post(3, base_url="https://one.test").status_code == 409


NO_KEYS = [None, "", [], {}, [None], ["", None], [[], {}]]
KEYS = [0, False, [7, None], [0], [[7]], {"order": None}, " "]


@pytest.mark.parametrize(
    ("key", "second"), [*((key, 200) for key in NO_KEYS), *((key, 409) for key in KEYS)]
)
def test_a_request_without_a_key_locks_out_its_own_sender_alone(key, second):
    shop = Shop("done".strip, 30)
    assert [shop.post(user, key).status_code for user in (1, 2, 1)] == [200, second, 409]


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_with_no_interval_each_has_its_turn_and_no_two_run_at_once(kind, request):
    settings = storage_settings(kind, request)
    shop = Shop(lambda: time.sleep(0.02) or "done", 0, wait=60, settings=settings)
    assert shop.at_once(range(8)) == [200] * 8
    assert shop.together == [1] * 8


def test_with_no_interval_the_lock_is_free_when_the_view_has_ended():
    shop = Shop("done".strip, 0, settings={"IDEMPOTENCE_LEASE": 20})
    shop.view = lambda: str(shop.post(2).status_code)
    with record_signals(shop.app) as told:
        assert [shop.post(user).text for user in (1, 3)] == ["409", "409"]
    assert told.names == ["claimed", "rejected", "completed"] * 2
    assert told.events[0][1]["lease"] == 20  # the setting, since no interval gives one
    assert not list(shop.engine.store.scan(""))


@pytest.mark.parametrize(("shared", "second"), [(True, 2), (False, 1)])
def test_who_waits_has_its_turn_when_the_interval_of_the_first_is_over(shared, second):
    shop = Shop(lambda: "done", 5, wait=timedelta(seconds=10), shared=shared)
    standing_still(shop)
    assert [shop.post(user).status_code for user in (1, second)] == [200, 200]
    assert 5 <= sum(shop.waits) <= 6.1
    assert shop.together == [1, 1]


def test_whose_time_is_over_is_refused_with_what_is_left():
    shop = Shop(lambda: "done", 10, wait=4.9)
    standing_still(shop)
    assert shop.post(1).status_code == 200
    refused = shop.post(2)
    assert (refused.status_code, sum(shop.waits)) == (409, pytest.approx(4.9))
    assert refused.headers["Idempotence-Refusal"] == "repeat-submit"
    assert refused.headers["Retry-After"] == "6"


def test_the_log_in_debug_mode_says_that_everybody_counts(caplog):
    shop = Shop(lambda: "done", 5, settings={"DEBUG": True})
    with caplog.at_level("DEBUG", "flask_idempotence"):
        shop.post()
    assert "identity=everybody" in caplog.text
