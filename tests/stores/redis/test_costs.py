"""What a request costs on Redis: round trips, counted at the server, and memory."""

import pytest
from flask import request
from helpers.apps import make_app
from helpers.store_assertions import packets

from flask_idempotence import no_repeat_submit, one_time_token

GUARDS = {"lock": no_repeat_submit(5), "long": no_repeat_submit(90), "spend": one_time_token()}


class Shop:
    """Views whose scripts are known to the server, over a connection that is open."""

    def __init__(self, server):
        self.server = server
        self.app = make_app(IDEMPOTENCE_STORAGE_URI=server.url)
        for name, guard in GUARDS.items():
            view = guard(lambda: ({}, request.args.get("status", 200, int)))
            self.app.add_url_rule(f"/{name}", name, view, methods=["POST"])
        self.client = self.app.test_client()
        for query in ("warm", "up", "status=500"):
            for name in GUARDS:
                self.post(f"/{name}?{query}", self.token())

    def post(self, path, token=""):
        return self.client.post(path, headers={"Idempotence-Token": token}).status_code

    def token(self):
        return self.client.get("/token").json["token"]

    def trips(self, call, *arguments):
        with self.server.client() as behind, packets(behind) as count:
            result = call(*arguments)
        return count(), result


@pytest.fixture
def shop(redis_server, redis_url):
    return Shop(redis_server)


def test_a_success_that_ends_before_the_first_renewal_costs_one_and_a_rejection_too(shop):
    assert shop.trips(shop.post, "/lock") == (1, 200)
    assert shop.trips(shop.post, "/lock") == (1, 409)


def test_a_failed_result_or_an_interval_that_is_longer_than_a_lease_costs_one_more(shop):
    assert shop.trips(shop.post, "/long") == (2, 200)
    assert shop.trips(shop.post, "/lock?status=500&again") == (2, 500)


def test_a_token_costs_one_to_issue_and_one_to_spend(shop):
    trips, token = shop.trips(shop.token)
    assert trips == 1
    assert shop.trips(shop.post, "/spend", token) == (1, 200)
    assert shop.trips(shop.post, "/spend", token) == (1, 409)


def test_garbage_and_switched_off_modes_cost_none(shop):
    assert shop.trips(shop.post, "/spend", "garbage") == (0, 400)
    shop.app.config["IDEMPOTENCE_ENABLED"] = False
    assert shop.trips(shop.post, "/lock") == (0, 200)


def test_a_live_lock_and_a_live_token_take_at_most_two_hundred_bytes(shop):
    shop.post("/lock")
    shop.client.get("/token", headers={"Authorization": "Bearer alice"})
    with shop.server.client() as behind:
        sizes = {
            kind: [behind.memory_usage(key) for key in behind.scan_iter(f"*:{kind}:*")]
            for kind in ("lock", "token")
        }
    assert sizes["lock"]
    assert sizes["token"]
    assert max(sizes["lock"] + sizes["token"]) <= 200, (shop.server.version, sizes)
