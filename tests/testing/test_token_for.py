"""A token for a test client: of its user, under all settings."""

import threading

import pytest
from flask import Blueprint, abort, g, request, session
from helpers.apps import bare_app, make_app

from flask_idempotence import ConfigurationError, Idempotence, one_time_token
from flask_idempotence.testing import token_for


def shop(purpose=None, **settings):
    blueprint = Blueprint("orders", __name__, url_prefix="/shop")
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence, **settings)

    @app.post("/login/<name>")
    def login(name):
        session["user_id"] = name
        return ""

    @blueprint.post("/orders")
    @one_time_token(purpose)
    def create_order():
        return "Ordered."

    app.register_blueprint(blueprint)
    app.idempotence = idempotence
    return app


def spend(client, token, **options):
    return client.post("/shop/orders", headers={"Idempotence-Token": token}, **options)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"IDEMPOTENCE_TOKEN_URL": None},
        {"IDEMPOTENCE_TOKEN_URL": "/api/one-time", "IDEMPOTENCE_PREFIX": "shop"},
        {"APPLICATION_ROOT": "/app", "SERVER_NAME": "shop.test"},
        {"subdomain_matching": True, "SERVER_NAME": "shop.test"},
    ],
    ids=str,
)
def test_it_is_good_once_under_all_settings(settings):
    client = shop(**settings).test_client()
    token = token_for(client)
    assert [spend(client, token).status_code for _ in range(2)] == [200, 409]


def test_it_is_good_where_hosts_are_matched():
    app = make_app(host_matching=True)
    pay, place = one_time_token()(lambda: "Paid."), {"methods": ["POST"], "host": "shop.test"}
    app.add_url_rule("/shop/orders", "pay", pay, **place)
    client = app.test_client()
    assert spend(client, token_for(client), base_url="http://shop.test").status_code == 200


def test_it_belongs_to_the_user_of_the_client():
    app = shop()
    alice, bob, guest = (app.test_client() for _ in range(3))
    alice.post("/login/alice")
    bob.post("/login/bob")
    token = token_for(alice)
    with alice.session_transaction() as kept:
        assert dict(kept) == {"user_id": "alice"}
    assert app.before_request_funcs[None] == []
    assert spend(bob, token).json["type"].endswith("token-not-yours")
    assert spend(guest, token).json["type"].endswith("token-not-yours")
    assert spend(alice, token).status_code == 200


def test_it_belongs_to_a_user_whom_a_before_request_function_has_found():
    app = shop()
    app.idempotence.identity_loader(lambda: g.user)

    @app.before_request
    def load_user():
        g.user = request.headers.get("X-Employee")

    client = app.test_client()
    client.environ_base["HTTP_X_EMPLOYEE"] = "7"
    token = token_for(client)
    assert spend(app.test_client(), token).json["type"].endswith("token-not-yours")
    assert spend(client, token).status_code == 200


def test_other_requests_at_the_same_time_get_their_own_answers():
    app = shop()
    inside, proceed, answers = threading.Event(), threading.Event(), []

    @app.before_request
    def hold():
        if request.path == "/token":
            inside.set()
            proceed.wait(5)

    asking = threading.Thread(target=lambda: answers.append(token_for(app.test_client())))
    asking.start()
    assert inside.wait(5)
    assert app.test_client().post("/login/bob").status_code == 200
    assert answers == []
    proceed.set()
    asking.join(5)
    assert len(answers) == 1


def test_it_has_a_purpose_and_wrong_ones_and_a_refusal_get_a_clear_error():
    app = shop("checkout")
    client = app.test_client()
    assert spend(client, token_for(client)).json["type"].endswith("token-invalid")
    assert spend(client, token_for(client, "checkout")).status_code == 200
    refusing = shop()
    refusing.before_request(lambda: abort(401))
    with pytest.raises(RuntimeError, match=r"GET /token .* 401 .* sign it in first"):
        token_for(refusing.test_client())
    with pytest.raises(TypeError, match=r"takes a test client, app.test_client\(\)"):
        token_for(app)
    with pytest.raises(ValueError, match="1 to 64 letters"):
        token_for(app.test_client(), "a purpose")
    with pytest.raises(ConfigurationError, match="not registered"):
        token_for(bare_app().test_client())
