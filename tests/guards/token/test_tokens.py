"""Token mode: issued, bound, spent once."""

import base64
import re

import pytest
from flask import Flask
from helpers.apps import make_app
from helpers.servers.processes import all_at_once
from helpers.store_assertions import values_of

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    StoreError,
    StoreUnavailable,
    TokenInvalid,
    TokenSpent,
    one_time_token,
)
from flask_idempotence.testing import FakeClock, record_signals


class WatchedStore(MemoryStore):
    """A real store that counts how often a token was asked for."""

    asked = 0

    def take_token(self, key, subject):
        self.asked += 1
        return super().take_token(key, subject)


class Shop:
    def __init__(self, *, settings=None, **options):
        self.clock = FakeClock()
        self.idempotence = Idempotence()
        self.store = WatchedStore(clock=self.clock)
        self.app = make_app(idempotence=self.idempotence, store=self.store, **(settings or {}))
        self.clock.rule(self.app)
        self.client = self.app.test_client()
        self.runs = 0
        self.status = 200

        @self.app.post("/checkout")
        @one_time_token(**options)
        def checkout():
            self.runs += 1
            return {}, self.status

    def token(self, **options):
        return self.client.get("/token", **options).json["token"]

    def spend(self, token, **options):
        headers = {"Idempotence-Token": token, **options.pop("headers", {})}
        return self.client.post("/checkout", headers=headers, **options)

    def slug(self, token, **options):
        answer = self.spend(token, **options)
        if answer.status_code == 200:
            return "ok"
        assert answer.mimetype == "application/problem+json"
        return f"{answer.status_code} {answer.json['type'].rpartition(':')[2]}"


def signed_in(user):
    return {"headers": {"Authorization": f"Bearer {user}"}}


def test_the_token_url_answers_what_a_client_needs_and_is_not_cached():
    shop = Shop(settings={"IDEMPOTENCE_TOKEN_TTL": 120})
    answer = shop.client.get("/token")
    assert set(answer.json) == {"token", "expires_in", "header", "field"}
    assert answer.json["expires_in"] == 120
    assert answer.json["header"] == "Idempotence-Token"
    assert answer.json["field"] == "idempotence_token"
    assert answer.headers["Cache-Control"] == "no-store"
    assert shop.client.post("/token").status_code == 405


def test_the_first_of_five_is_normal_and_the_other_four_are_repeats():
    shop = Shop()
    token = shop.token()
    assert [shop.slug(token) for _ in range(5)] == ["ok", *["409 token-spent"] * 4]
    assert shop.runs == 1


# A busy machine may take longer than the deadline for sixty-four of them.
@pytest.mark.parametrize(("uri", "options"), [("memory://", {}), ("redis", {"deadline": 30})])
def test_of_sixty_four_at_once_one_runs(uri, options, redis_url):
    uri = redis_url if uri == "redis" else uri
    app = make_app(IDEMPOTENCE_STORAGE_URI=uri, IDEMPOTENCE_STORAGE_OPTIONS=options)
    runs = []

    @app.post("/")
    @one_time_token()
    def view():
        runs.append(1)
        return {}

    token = app.test_client().get("/token").json["token"]
    headers = {"Idempotence-Token": token}
    codes = all_at_once([lambda: app.test_client().post("/", headers=headers).status_code] * 64)
    assert (codes.count(200), codes.count(409), len(runs)) == (1, 63, 1)


def test_it_travels_in_a_header_or_a_form_field_and_never_in_the_url():
    shop = Shop()
    field = {"idempotence_token": shop.token(), "item": "tea"}
    assert shop.client.post("/checkout", data=field).status_code == 200
    assert shop.client.post("/checkout", data=field).status_code == 409
    multipart = {"idempotence_token": shop.token()}
    sent = shop.client.post("/checkout", data=multipart, content_type="multipart/form-data")
    assert sent.status_code == 200
    in_url = shop.client.post("/checkout", query_string={"idempotence_token": shop.token()})
    assert in_url.json["type"].endswith("token-missing")


def test_the_decorator_may_stand_bare_or_take_the_purpose_first():
    app, runs = make_app(), []

    @app.post("/bare")
    @one_time_token
    def bare():
        runs.append("bare")
        return ""

    @app.post("/pay")
    @one_time_token("pay", restore_on_failure=True)
    def pay():
        runs.append("pay")
        return ""

    client = app.test_client()

    def spend(path, **query):
        token = client.get("/token", query_string=query).json["token"]
        headers = {"Idempotence-Token": token}
        return [client.post(path, headers=headers).status_code for _ in range(2)]

    assert [spend("/bare"), spend("/pay", purpose="pay")] == [[200, 409], [200, 409]]
    assert [spend("/bare", purpose="pay"), spend("/pay")] == [[400, 400], [400, 400]]
    assert (runs, bare.__name__) == (["bare", "pay"], "bare")


def test_a_field_that_stands_twice_is_one_token_if_it_says_the_same():
    shop = Shop()
    token = shop.token()
    assert (
        shop.client.post("/checkout", data={"idempotence_token": [token, token]}).status_code
        == 200
    )
    tokens = [shop.token(), shop.token()]
    two = {"idempotence_token": tokens}
    assert shop.client.post("/checkout", data=two).json["type"].endswith("token-invalid")
    assert [shop.slug(token) for token in tokens] == ["ok", "ok"]


def test_a_request_without_a_token_is_told_that_it_needs_one():
    shop = Shop()
    for data in ({}, {"idempotence_token": ""}):
        answer = shop.client.post("/checkout", data=data)
        assert answer.status_code == 400
        assert answer.json["type"].endswith("token-missing")
    assert shop.runs == 0


def test_garbage_and_forgeries_never_reach_the_store():
    shop = Shop()
    other = Shop(settings={"SECRET_KEY": "the secret of another application"})
    good = shop.token()
    unique, stamp, signature = good.split(".")
    flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    forgeries = [
        "x",
        ".",
        "..",
        "\xff\xfe",
        good[:-1],
        good[1:],
        good + good,
        f"{good}, {good}",
        f"{stamp}.{unique}.{signature}",
        f"{unique}.{stamp}.{flipped}",
        f"{unique}..{signature}",
        f"{unique}.{'A' * 30}.{signature}",
        other.token(),
        "a" * 1_000_000,
        good + "A" * 2**20,
        good + "é",
        f"{unique}.{stamp[:-1]}{'AB'[stamp[-1] == 'A']}.{signature}",
        f"{unique[::-1]}.{stamp}.{signature}",
        "\0",
    ]
    for forgery in forgeries:
        assert shop.slug(forgery) == "400 token-invalid", forgery[:80]
        in_form = shop.client.post("/checkout", data={"idempotence_token": forgery})
        assert in_form.json["type"].endswith("token-invalid"), forgery[:80]
    assert shop.store.asked == 0
    assert shop.slug(good) == "ok"


class TestLifetime:
    @pytest.mark.parametrize(
        ("age", "answer"), [(298, "ok"), (302, "400 token-expired"), (331, "400 token-expired")]
    )
    def test_it_is_good_until_its_time_is_over(self, age, answer):
        shop = Shop()
        token = shop.token()
        shop.clock.advance(age)
        assert shop.slug(token) == answer

    def test_its_refusal_bears_the_key_that_its_issue_had(self):
        shop = Shop()
        with record_signals(shop.app) as signals:
            token = shop.token()
            shop.clock.advance(331)
            shop.slug(token)
        assert signals.names == ["token_issued", "rejected"]
        issued, rejected = (arguments["key"] for _, arguments in signals.events)
        assert rejected == issued

    @pytest.mark.parametrize("skew", [-3600, -29, 29, 3600])
    def test_the_clocks_of_issuing_machines_may_differ(self, skew):
        shop = Shop()
        ours = shop.clock()
        shop.app.extensions["idempotence"].engine.services.tokens.clock = lambda: ours + skew
        token = shop.token()
        shop.app.extensions["idempotence"].engine.services.tokens.clock = lambda: ours + 290
        assert shop.slug(token) == "ok"

    @pytest.mark.parametrize(("age", "answer"), [(331, "400 token-expired"), (329, "ok")])
    def test_while_the_store_is_down_it_ends_by_this_machines_clock(self, age, answer):
        shop = Shop(on_store_error="allow")
        token = shop.token()
        shop.clock.advance(age)

        def fail(key, subject):
            raise StoreError("down")

        shop.store.take_token = fail
        assert shop.slug(token) == answer

    def test_a_store_that_forgot_it_makes_it_a_spent_one(self):
        shop = Shop()
        token = shop.token()
        shop.store.clear("")
        assert shop.slug(token) == "409 token-spent"


class TestBinding:
    def test_another_users_token_is_not_yours_and_stays_unspent(self):
        shop = Shop()
        alices = shop.token(**signed_in("alice"))
        assert shop.slug(alices, **signed_in("bob")) == "403 token-not-yours"
        assert shop.slug(alices) == "403 token-not-yours"
        assert shop.slug(alices, **signed_in("alice")) == "ok"
        assert shop.slug(alices, **signed_in("bob")) == "409 token-spent"

    def test_a_guests_token_survives_a_login_and_a_change_of_network(self):
        shop = Shop()
        first, second = shop.token(), shop.token()
        assert shop.slug(first, **signed_in("alice")) == "ok"
        moved = {"environ_base": {"REMOTE_ADDR": "198.51.100.7"}}
        assert shop.slug(second, **moved) == "ok"

    def test_a_token_is_good_for_its_purpose_only(self):
        shop = Shop(purpose="checkout")
        assert shop.slug(shop.token()) == "400 token-invalid"
        other = shop.token(query_string={"purpose": "newsletter"})
        assert shop.slug(other) == "400 token-invalid"
        assert shop.store.asked == 0
        assert shop.slug(shop.token(query_string={"purpose": "checkout"})) == "ok"

    @pytest.mark.parametrize("purpose", ["", "a b", "x" * 65, "a\x00b", "é", "a:b"])
    def test_an_odd_purpose_is_refused(self, purpose):
        shop = Shop()
        answer = shop.client.get("/token", query_string={"purpose": purpose})
        assert answer.status_code == 400
        assert shop.store.count_all() == 0


class TestRotation:
    def test_a_token_signed_with_the_old_key_is_good_while_the_key_is_kept(self):
        shop = Shop()
        first, second = shop.token(), shop.token()
        shop.app.config.update(
            SECRET_KEY="the new secret", SECRET_KEY_FALLBACKS=["a secret for the tests"]
        )
        assert shop.slug(first) == "ok"
        assert shop.slug(shop.token()) == "ok"
        shop.app.config["SECRET_KEY_FALLBACKS"] = []
        assert shop.slug(second) == "400 token-invalid"

    def test_the_hash_key_serves_where_there_is_no_secret_key(self):
        shop = Shop(settings={"SECRET_KEY": None, "IDEMPOTENCE_HASH_KEY": "k" * 32})
        assert shop.slug(shop.token()) == "ok"

    def test_so_does_the_secret_key_of_an_applications_own_class(self, monkeypatch):
        monkeypatch.setattr(Flask, "secret_key", "its own")
        shop = Shop(settings={"SECRET_KEY": None})
        assert shop.slug(shop.token()) == "ok"


class TestRestoring:
    def test_it_is_put_back_once_with_the_lifetime_that_it_had_left(self):
        shop = Shop(restore_on_failure=True)
        shop.status = 422
        token = shop.token()
        shop.clock.advance(200)
        assert shop.spend(token).status_code == 422
        key = next(iter(shop.store.scan("")))
        assert shop.store.peek(key).expires_in == pytest.approx(100)
        assert shop.spend(token).status_code == 422
        assert shop.slug(token) == "409 token-spent"
        assert shop.runs == 2

    def test_what_was_put_back_belongs_to_whoever_spent_it(self):
        shop = Shop(restore_on_failure=True)
        shop.status = 422
        token = shop.token()
        assert shop.spend(token, **signed_in("alice")).status_code == 422
        shop.status = 200
        assert shop.slug(token, **signed_in("bob")) == "403 token-not-yours"
        assert shop.slug(token, **signed_in("alice")) == "ok"


class TestByHand:
    def test_a_token_can_be_issued_and_redeemed_outside_a_request(self):
        shop = Shop()
        with shop.app.app_context():
            token = shop.idempotence.issue_token("invoice")
            with pytest.raises(TokenInvalid):
                shop.idempotence.redeem_token(token)
            shop.idempotence.redeem_token(token, "invoice")
            with pytest.raises(TokenSpent):
                shop.idempotence.redeem_token(token, purpose="invoice")

    @pytest.mark.parametrize(
        "token", ["", "\ud800", "\x00", None, 7, b"bytes", ["list"], "é" * 10, "٣" * 10]
    )
    def test_whatever_is_no_token_is_invalid(self, token):
        shop = Shop()
        with shop.app.app_context(), pytest.raises(TokenInvalid):
            shop.idempotence.redeem_token(token)
        assert shop.store.asked == 0

    def test_a_purpose_that_cannot_be_one_is_an_error_of_the_caller(self):
        shop = Shop()
        with shop.app.app_context(), pytest.raises(ValueError, match="purpose"):
            shop.idempotence.issue_token("a b")


def test_nothing_of_a_token_or_its_owner_is_stored_in_the_clear():
    shop = Shop()
    token = shop.token(headers={"Authorization": "Basic " + base64.b64encode(b"al:pw").decode()})
    unique = token.partition(".")[0]
    (key,) = shop.store.scan("")
    assert re.fullmatch(r"idempotence:2:token:-:[0-9a-f]{32}", key)
    assert unique not in key
    [(_, owner, *_)] = values_of(shop.store).values()
    assert len(owner) == 16


@pytest.mark.parametrize("is_on", [True, False], ids=["switched on", "switched off"])
def test_a_token_that_the_store_did_not_take_is_not_announced(is_on):
    settings = {"IDEMPOTENCE_ON_STORE_ERROR": "allow", "IDEMPOTENCE_TOKEN_ENABLED": is_on}
    shop = Shop(settings=settings)

    def away(*arguments, **options):
        raise StoreError("away")

    shop.store.put_token = away
    with record_signals(shop.app) as signals:
        assert shop.token()  # pages go on working
    assert signals.names == ["store_failed"]


def test_signals_tell_of_tokens():
    shop = Shop(purpose="checkout")
    with record_signals(shop.app) as signals:
        token = shop.token(query_string={"purpose": "checkout"})
        shop.spend(token)
        shop.spend(token)
    assert signals.names == [
        "token_issued",
        "token_spent",
        "claimed",
        "completed",
        "rejected",
    ]
    assert signals.events[1][1]["purpose"] == "checkout"


def test_a_token_that_cannot_be_issued_by_hand_is_announced_like_any_refusal():
    store = MemoryStore(max_entries=1)
    app = make_app(store=store, IDEMPOTENCE_PROBLEM_BASE="https://shop.example/")
    store.put_token("taken", b"", 60)
    idempotence = Idempotence()
    refused = pytest.raises(StoreUnavailable)
    with record_signals(app) as recorder, app.test_request_context(), refused as caught:
        idempotence.issue_token()
    assert recorder.names == ["store_failed", "rejected"]
    assert caught.value.type == "https://shop.example/store-unavailable"
