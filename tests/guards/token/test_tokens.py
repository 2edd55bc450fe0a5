"""Token mode: issued, bound, spent once."""

import base64
import re

import pytest
from flask import Flask
from helpers.apps import CountingStore, GuardedApp, make_app, no_answer
from helpers.store_assertions import values_of

from flask_idempotence import StoreUnavailable, TokenInvalid, TokenSpent, one_time_token
from flask_idempotence.testing import record_signals


class Shop(GuardedApp):
    """An application with one view that a token guards."""

    def __init__(self, *, settings=None, **options):
        super().__init__(store=CountingStore, settings=settings)
        self.client, self.status = self.app.test_client(), 200
        self.add_view("/checkout", lambda: ({}, self.status), one_time_token(**options))

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


@pytest.fixture
def shop():
    return Shop()


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
    assert len([*shop.store.scan("")]) == 1
    assert shop.client.head("/token").headers["Cache-Control"] == "no-store"
    assert len([*shop.store.scan("")]) == 1


def test_other_methods_and_other_subdomains_may_have_the_path_of_the_token_url():
    app = make_app(subdomain_matching=True, SERVER_NAME="shop.test")
    app.add_url_rule("/token", "login", lambda: "signed in", methods=["POST"])
    app.add_url_rule("/token", "own", lambda: "own", subdomain="api")
    client = app.test_client()
    assert client.get("/token").json["token"]
    assert client.post("/token").text == "signed in"
    assert client.get("/token", base_url="http://api.shop.test").text == "own"


def test_the_first_of_five_is_normal_and_the_other_four_are_repeats(shop):
    token = shop.token()
    assert [shop.slug(token) for _ in range(5)] == ["ok", *["409 token-spent"] * 4]
    assert shop.runs == 1


def test_it_travels_in_a_header_or_a_form_field_and_never_in_the_url(shop):
    field = {"idempotence_token": shop.token(), "item": "tea"}
    assert shop.client.post("/checkout", data=field).status_code == 200
    assert shop.client.post("/checkout", data=field).status_code == 409
    multipart = {"idempotence_token": shop.token()}
    sent = shop.client.post("/checkout", data=multipart, content_type="multipart/form-data")
    assert sent.status_code == 200
    for sent in (
        {"query_string": {"idempotence_token": shop.token()}},
        {"data": {"idempotence_token": ""}},
    ):
        refused = shop.client.post("/checkout", **sent)
        assert refused.status_code == 400
        assert refused.json["type"].endswith("token-missing")
    assert shop.runs == 2


def test_a_field_that_stands_twice_is_one_token_if_it_says_the_same(shop):
    twice = {"idempotence_token": [shop.token()] * 2}
    assert shop.client.post("/checkout", data=twice).status_code == 200
    tokens = [shop.token(), shop.token()]
    two = {"idempotence_token": tokens}
    assert shop.client.post("/checkout", data=two).json["type"].endswith("token-invalid")
    assert [shop.slug(token) for token in tokens] == ["ok", "ok"]


def test_garbage_and_forgeries_never_reach_the_store():
    # Only some releases of Werkzeug apply the limit to URL-encoded forms.
    shop = Shop(settings={"MAX_FORM_MEMORY_SIZE": None})
    other = Shop(settings={"SECRET_KEY": "the secret of another application"})
    good = shop.token()
    unique, stamp, signature = good.split(".")
    flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    forgeries = [
        *("x", ".", "..", "\0", "\xff\xfe", "a" * 1_000_000),
        *(good[:-1], good[1:], good + good, f"{good}, {good}", good + "A" * 2**20, good + "é"),
        f"{stamp}.{unique}.{signature}",
        f"{unique}.{stamp}.{flipped}",
        f"{unique}..{signature}",
        f"{unique}.{'A' * 30}.{signature}",
        other.token(),
        f"{unique}.{stamp[:-1]}{'AB'[stamp[-1] == 'A']}.{signature}",
        f"{unique[::-1]}.{stamp}.{signature}",
    ]
    for forgery in forgeries:
        assert shop.slug(forgery) == "400 token-invalid", forgery[:80]
        in_form = shop.client.post("/checkout", data={"idempotence_token": forgery})
        assert in_form.json["type"].endswith("token-invalid"), forgery[:80]
    assert shop.store.tokens == 0
    assert shop.slug(good) == "ok"


class TestLifetime:
    @pytest.mark.parametrize(
        ("age", "answer"), [(298, "ok"), (302, "400 token-expired"), (331, "400 token-expired")]
    )
    def test_it_is_good_until_its_time_is_over(self, shop, age, answer):
        with record_signals(shop.app) as signals:
            token = shop.token()
            shop.clock.advance(age)
            assert shop.slug(token) == answer
        issued, spent_or_rejected = signals.events[0][1], signals.events[1][1]
        assert spent_or_rejected["key"] == issued["key"]

    @pytest.mark.parametrize("skew", [-3600, -29, 29, 3600])
    def test_the_clocks_of_issuing_machines_may_differ(self, shop, skew):
        tokens, ours = shop.engine.services.tokens, shop.clock()
        tokens.clock = lambda: ours + skew
        token = shop.token()
        tokens.clock = lambda: ours + 290
        assert shop.slug(token) == "ok"

    @pytest.mark.parametrize(("age", "answer"), [(331, "400 token-expired"), (329, "ok")])
    def test_while_the_store_is_down_it_ends_by_this_machines_clock(self, age, answer):
        shop = Shop(on_store_error="allow")
        token = shop.token()
        shop.clock.advance(age)
        shop.store.take_token = no_answer
        assert shop.slug(token) == answer

    def test_a_store_that_forgot_it_makes_it_a_spent_one(self, shop):
        token = shop.token()
        shop.store.clear("")
        assert shop.slug(token) == "409 token-spent"


class TestBinding:
    def test_another_users_token_is_not_yours_and_stays_unspent(self, shop):
        alices = shop.token(**signed_in("alice"))
        assert shop.slug(alices, **signed_in("bob")) == "403 token-not-yours"
        assert shop.slug(alices) == "403 token-not-yours"
        assert shop.slug(alices, **signed_in("alice")) == "ok"
        assert shop.slug(alices, **signed_in("bob")) == "409 token-spent"

    def test_a_guests_token_survives_a_login_and_a_change_of_network(self, shop):
        first, second = shop.token(), shop.token()
        assert shop.slug(first, **signed_in("alice")) == "ok"
        moved = {"environ_base": {"REMOTE_ADDR": "198.51.100.7"}}
        assert shop.slug(second, **moved) == "ok"

    def test_a_users_token_is_of_the_host_that_it_was_issued_on(self, shop):
        token = shop.token(base_url="http://a.example", **signed_in("alice"))
        for host, answer in (("b", "403 token-not-yours"), ("a", "ok")):
            at = {"base_url": f"http://{host}.example", **signed_in("alice")}
            assert shop.slug(token, **at) == answer

    def test_a_token_is_good_for_its_purpose_only(self):
        shop = Shop(purpose="checkout")
        assert shop.slug(shop.token()) == "400 token-invalid"
        other = shop.token(query_string={"purpose": "newsletter"})
        assert shop.slug(other) == "400 token-invalid"
        assert shop.store.tokens == 0
        good = shop.token(query_string={"purpose": "checkout"})
        assert any(key.startswith("idempotence:2:token:checkout:") for key in shop.store.scan(""))
        assert shop.slug(good) == "ok"

    @pytest.mark.parametrize("purpose", ["", "a b", "x" * 65, "a\x00b", "é", "a:b"])
    def test_an_odd_purpose_is_refused(self, shop, purpose):
        answer = shop.client.get("/token", query_string={"purpose": purpose})
        assert answer.status_code == 400
        assert len([*shop.store.scan("")]) == 0


class TestRotation:
    def test_a_token_signed_with_the_old_key_is_good_while_the_key_is_kept(self, shop):
        first, second = shop.token(), shop.token()
        shop.app.config.update(
            SECRET_KEY="the new secret", SECRET_KEY_FALLBACKS=["a secret for the tests"]
        )
        assert [shop.slug(first), shop.slug(shop.token())] == ["ok", "ok"]
        shop.app.config["SECRET_KEY_FALLBACKS"] = []
        assert shop.slug(second) == "400 token-invalid"

    def test_a_token_of_a_rotation_is_signed_with_the_new_secret(self):
        settings = {"SECRET_KEY_FALLBACKS": ["the old one"], "IDEMPOTENCE_HASH_KEY": "k" * 32}
        shop = Shop(settings=settings)
        token = shop.token()
        shop.app.config["SECRET_KEY_FALLBACKS"] = []
        assert shop.slug(token) == "ok"

    def test_the_hash_key_serves_where_there_is_no_secret_key(self):
        shop = Shop(settings={"SECRET_KEY": None, "IDEMPOTENCE_HASH_KEY": "k" * 32})
        assert shop.slug(shop.token()) == "ok"

    def test_so_does_the_secret_key_of_an_applications_own_class(self, monkeypatch):
        monkeypatch.setattr(Flask, "secret_key", "its own")
        shop = Shop(settings={"SECRET_KEY": None})
        assert shop.slug(shop.token()) == "ok"


class TestRestoring:
    def test_it_is_put_back_after_each_failure_with_the_lifetime_that_it_had_left(self):
        shop = Shop(restore_on_failure=True)
        shop.status = 422
        token = shop.token()
        for left in (250, 200, 150):
            shop.clock.advance(50)
            assert shop.spend(token).status_code == 422
            key = next(iter(shop.store.scan("")))
            assert shop.store.peek(key).expires_in == pytest.approx(left)
        shop.status = 200
        assert [shop.slug(token), shop.slug(token)] == ["ok", "409 token-spent"]
        assert shop.runs == 4

    def test_what_was_put_back_belongs_to_whoever_spent_it(self):
        shop = Shop(restore_on_failure=True)
        shop.status = 422
        token = shop.token()
        assert shop.spend(token, **signed_in("alice")).status_code == 422
        shop.status = 200
        assert shop.slug(token, **signed_in("bob")) == "403 token-not-yours"
        assert shop.slug(token, **signed_in("alice")) == "ok"


class TestByHand:
    def test_a_token_can_be_issued_and_redeemed_outside_a_request(self, shop):
        with shop.app.app_context():
            with pytest.raises(ValueError, match="purpose"):
                shop.idempotence.issue_token("a b")
            token = shop.idempotence.issue_token("invoice")
            with pytest.raises(TokenInvalid):
                shop.idempotence.redeem_token(token)
            shop.idempotence.redeem_token(token, "invoice")
            with pytest.raises(TokenSpent):
                shop.idempotence.redeem_token(token, purpose="invoice")

    @pytest.mark.parametrize(
        "token", ["", "\ud800", "\x00", None, 7, b"bytes", ["list"], "é" * 10, "٣" * 10]
    )
    def test_whatever_is_no_token_is_invalid(self, shop, token):
        refused = pytest.raises(TokenInvalid)
        with record_signals(shop.app) as signals, shop.app.app_context(), refused:
            shop.idempotence.redeem_token(token)
        assert (signals.names, shop.store.tokens) == (["rejected"], 0)

    def test_one_that_cannot_be_issued_is_announced_like_any_refusal(self):
        shop = Shop(settings={"IDEMPOTENCE_PROBLEM_BASE": "https://shop.example/"})
        shop.store.put_token = no_answer
        refused = pytest.raises(StoreUnavailable)
        with record_signals(shop.app) as signals, shop.app.app_context(), refused as caught:
            shop.idempotence.issue_token()
        assert signals.names == ["store_failed", "rejected"]
        assert caught.value.type == "https://shop.example/store-unavailable"


def test_nothing_of_a_token_or_its_owner_is_stored_in_the_clear(shop):
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
    shop.store.put_token = no_answer
    with record_signals(shop.app) as signals:
        assert shop.token()  # pages go on working
    assert signals.names == ["store_failed"]


def test_signals_tell_of_tokens():
    shop = Shop(purpose="checkout")
    with record_signals(shop.app) as signals:
        token = shop.token(query_string={"purpose": "checkout"})
        assert [shop.spend(token).status_code for _ in range(2)] == [200, 409]
    assert signals.names == ["token_issued", "token_spent", "claimed", "completed", "rejected"]
    assert signals.events[1][1]["purpose"] == "checkout"
