"""Guests: known by a key that cannot be guessed, else by their address."""

import base64
import os
import uuid

import pytest
from flask import request
from helpers.applications.login_apps import CountingApp
from helpers.apps import make_app, verdict

from flask_idempotence import idempotent
from flask_idempotence.client import new_key
from flask_idempotence.request.key_header import is_unguessable

V6, V4 = {"address": "2001:db8::1"}, {"address": "192.0.2.1"}

STRONG = [
    "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "8E03978E-40D5-43E8-BC93-6894A57F9324",
    "01890a5d-ac96-774b-bcce-b302099a8057",  # version 7
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "01arz3ndektsv4rrffq69g5fav",
    "8e03978e40d543e8bc936894a57f9324",
    "8e03978e40d543e8bc936894a57f93248e03978e40d543e8bc936894a57f9300",
    "x7Kp2mQ9vRt4LwZn8BcYhA",
    "x7Kp2mQ9vRt4LwZn8BcYhA==",
    "mK3_vEjRW7Jq8-tYz2LcQA",
]
WEAK = [
    "order-1",
    "1",
    "a" * 32,
    "0" * 32,
    "00000000000000000000000000abc123",
    "20240101123456789012345678901234",
    "deadbeef" * 4,
    "00000000-0000-0000-0000-000000000000",
    "00000000-0000-4000-8000-000000000001",
    str(uuid.uuid5(uuid.NAMESPACE_URL, "order-1")),
    str(uuid.uuid3(uuid.NAMESPACE_URL, "order-1")),
    "c232ab00-9414-11ec-b3c8-9f6bdeced846",  # version 1: the time and a machine
    "8e03978e40d543e8bc936894a57f932",  # 124 bits
    "x7Kp2mQ9vRt4LwZn8BcYh",
    "Order-Confirmation-2024-0001",
    "Cust-12-Ord-7-Try-1-Of-3",
    "customer_1234_order_5678",
    "CreateOrderForCustomer1234",
    "ORDERNUMBER20240101ABCDEFG",
    "01234567890123456789012345",
    "0123456789abcdef" * 2,
    "abc123def456" * 3,
    "12345678-1234-4234-8234-123456789abc",
    b"order-1-of-customer-7".hex(),
    base64.b64encode(b"order-1-user-1-2024").decode(),
    base64.urlsafe_b64encode(b'{"order": 1, "user": 7}').decode(),
    "pay order 1 of customer 7 please now",
]


@pytest.mark.parametrize("key", STRONG)
def test_a_key_that_cannot_be_guessed_is_enough(key):
    """A client falls back from IPv6 to IPv4 when its connection breaks, and pays once."""
    counter = CountingApp("key")
    assert counter.takes_for_one({"key": key, **V6}, {"key": key, **V4})
    assert counter.runs == 1


@pytest.mark.parametrize("key", WEAK)
def test_a_key_that_others_may_send_stays_bound_to_the_address(key):
    counter = CountingApp("key")
    assert counter.tells_apart({"key": key, **V6}, {"key": key, **V4})


def test_keys_at_random_are_known_as_such():
    made = {
        "client": new_key,
        "hex": lambda: os.urandom(16).hex(),
        "uuid": lambda: str(uuid.uuid4()),
        "base64": lambda: base64.urlsafe_b64encode(os.urandom(24)).decode(),
    }
    known = {name: sum(is_unguessable(make()) for _ in range(500)) for name, make in made.items()}
    # One in some 20,000 has a pattern by chance; one in twenty of those in base64 has no digit, or
    # alternates too little.
    least = {"client": 497, "hex": 497, "uuid": 497, "base64": 425}
    assert all(known[name] >= count for name, count in least.items()), known


def test_host_endpoint_and_method_still_count():
    counter, strong = CountingApp("key"), {"key": STRONG[0]}
    counter.add("/other", "other")
    assert counter.verdicts({**strong}, {**strong, "base_url": "http://b.example"}) == [200, 200]
    assert verdict(counter.send("/other", **strong)) == 200


def test_a_user_does_not_become_a_guest_by_the_key():
    strong = {"key": STRONG[0]}
    users = [{**strong, "headers": {"Authorization": f"Bearer {name}"}} for name in "ab"]
    assert CountingApp("key").tells_apart(*users)
    users = [{**strong, "headers": {"X-Api-Key": name}} for name in "ab"]
    assert CountingApp("key").tells_apart(*users)
    assert CountingApp("key").tells_apart({**strong}, {**strong, "headers": {"X-Tenant-ID": "b"}})


def test_the_lock_has_no_key_and_goes_by_the_address():
    counter = CountingApp("lock")
    assert counter.tells_apart({"key": STRONG[0], **V6}, {"key": STRONG[0], **V4})


def test_a_key_that_the_application_makes_is_none_that_a_guest_has_drawn():
    """It may be made from what two guests send alike, such as a hash of the body."""
    app = make_app()
    made = idempotent(key=lambda: STRONG[0])(lambda: request.remote_addr)
    app.add_url_rule("/", "view", made, methods=["POST"])
    found = [
        app.test_client().post("/", environ_overrides={"REMOTE_ADDR": address}).text
        for address in ("192.0.2.1", "192.0.2.2")
    ]
    assert found == ["192.0.2.1", "192.0.2.2"]
