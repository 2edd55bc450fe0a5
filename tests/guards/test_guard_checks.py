"""Guards that guard nothing, or cannot: refused at the start, else at their own endpoint alone."""

import logging

import pytest
from flask import Blueprint, Flask
from flask.views import MethodView, View
from helpers.apps import bare_app, make_app
from helpers.servers.processes import HOST, free_port
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    MemoryStore,
    SqlStore,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.guards.placement import faults_of

GUARDS = [idempotent(), no_repeat_submit(), one_time_token()]
NAMES = ["idempotent", "no_repeat_submit", "one_time_token"]


def faults(app):
    """Return what is wrong with each endpoint of a finished application."""
    state = app.extensions["idempotence"]
    return {fault.endpoint: fault.text for fault in faults_of(app, state.config, state.store)}


def with_health(app):
    """Add a route without a guard, and a guarded one as it should be."""
    app.add_url_rule("/health", "health", lambda: "well")
    app.add_url_rule("/orders", "orders", idempotent()(lambda: "ordered"), methods=["POST"])
    return app


def posted_above(app, guard, runs):
    @guard
    @app.post("/pay")
    def pay():
        runs.append(1)
        return "paid"


def errors(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_above_its_route_closes_this_route_and_no_other(caplog, guard):
    app, runs = with_health(make_app(TESTING=False)), []
    posted_above(app, guard, runs)
    client = app.test_client()
    assert client.get("/health").status_code == 200
    (told,) = errors(caplog)
    assert told.startswith("Flask-Idempotence: every request to 'pay' is answered 500.")
    assert "Put the route decorator outermost" in told
    assert [client.post("/pay").status_code for _ in range(2)] == [500, 500]
    assert "ConfigurationError: The guard of the view 'pay' is above" in caplog.text
    assert client.post("/orders").status_code == 200
    assert runs == []


def test_a_guard_above_the_route_of_a_blueprint_is_found_too():
    app, blueprint = with_health(make_app()), Blueprint("shop", __name__)
    posted_above(blueprint, no_repeat_submit(), runs := [])
    app.register_blueprint(blueprint)
    assert app.test_client().get("/health").status_code == 200
    with pytest.raises(ConfigurationError, match=r"'shop\.pay'"):
        app.test_client().post("/pay")
    assert runs == []


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_above_a_route_that_is_there_already_is_refused_at_the_start(guard):
    app = bare_app()
    posted_above(app, guard, [])
    with pytest.raises(ConfigurationError, match=r"'pay'.*route decorator outermost"):
        Idempotence(app)
    assert "idempotence" not in app.extensions


def test_a_guard_that_the_settings_forbid_closes_its_own_route_alone():
    guard = idempotent(remember="success")
    early = bare_app(IDEMPOTENCE_KEY_GUARANTEE="at-most-once")
    early.add_url_rule("/pay", "pay", guard(lambda: "paid"), methods=["POST"])
    with pytest.raises(ConfigurationError, match=r"'pay' is guarded at-most-once"):
        Idempotence(early)
    app = with_health(make_app(IDEMPOTENCE_KEY_GUARANTEE="at-most-once"))
    app.add_url_rule("/pay", "pay", guard(lambda: "paid"), methods=["POST"])
    assert app.test_client().get("/health").status_code == 200
    with pytest.raises(ConfigurationError, match=r"'pay' is guarded at-most-once"):
        app.test_client().post("/pay")


def test_a_token_url_that_collides_with_a_route_closes_both_and_names_both():
    app = with_health(make_app())
    app.add_url_rule("/token", "subway_token", lambda: "one ride")
    assert app.test_client().get("/health").status_code == 200
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*subway_token"):
        app.test_client().get("/token")


def test_a_token_url_that_collides_with_a_route_that_is_there_is_refused_at_the_start():
    app = bare_app()
    app.add_url_rule("/token", "subway_token", lambda: "one ride")
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*subway_token"):
        Idempotence(app)


@pytest.mark.parametrize(("guard", "name"), list(zip(GUARDS, NAMES, strict=True)))
@pytest.mark.parametrize("methods", [None, ["GET"], ["GET", "HEAD", "OPTIONS"]])
def test_a_guard_of_safe_methods_alone_is_refused(guard, name, methods):
    app, runs = with_health(make_app(TESTING=False)), []
    app.add_url_rule("/pay", "pay", guard(lambda: runs.append(1) or "paid"), methods=methods)
    assert list(faults(app)) == ["pay"]
    text = faults(app)["pay"]
    assert text.startswith(f"{name} guards nothing at the view 'pay': the route has safe methods")
    assert "methods=['POST']" in text
    assert ("no_repeat_submit(methods=...)" in text) is (name == "no_repeat_submit")
    client = app.test_client()
    assert [client.get(path).status_code for path in ("/health", "/pay")] == [200, 500]
    assert runs == []


def test_the_lock_may_take_a_safe_method_in():
    app = make_app()
    guard = no_repeat_submit(methods=["GET"])
    app.add_url_rule("/vote", "vote", guard(lambda: "voted"))
    assert faults(app) == {}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("guard", [idempotent(required=True), *GUARDS[1:]], ids=NAMES)
def test_a_safe_method_passes_every_guard_without_the_store(guard, method):
    app = make_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=f"redis://{HOST}:{free_port()}")
    methods = ["GET", "HEAD", "OPTIONS", "TRACE", "POST"]
    app.add_url_rule(
        "/", "view", guard(lambda: "done"), methods=methods, provide_automatic_options=False
    )
    client = app.test_client()
    headers = {"Idempotency-Key": "k"}
    answers = [client.open("/", method=method, headers=headers) for _ in "123"]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert client.post("/", headers=headers).status_code in {400, 503}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_form_that_is_shown_and_sent_is_guarded(guard):
    app = make_app()
    app.add_url_rule("/one", "one", guard(lambda: "form"), methods=["GET", "POST"])
    both = guard(lambda: "form")
    app.add_url_rule("/two", "two", both, methods=["GET"])
    app.add_url_rule("/two", "two", both, methods=["POST"])
    app.add_url_rule("/three", "shown", both, methods=["GET"])
    app.add_url_rule("/three", "sent", both, methods=["POST"])
    assert faults(app) == {}


def test_a_guard_of_one_method_of_a_class_must_be_at_work_there():
    class Orders(MethodView):
        @idempotent()
        def get(self):
            return "orders"

        @idempotent()
        def post(self):
            return "ordered"

    class Reports(View):
        @idempotent()
        def dispatch_request(self):
            return "report"

    app = make_app()
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    app.add_url_rule("/reports", view_func=Reports.as_view("reports"))
    assert list(faults(app)) == ["orders", "reports"]
    assert "has safe methods only (GET)" in faults(app)["orders"]


def test_one_guard_around_two_methods_of_a_class_must_be_at_work_at_both():
    guard = idempotent()

    class Orders(MethodView):
        @guard
        def get(self):
            return "orders"

        @guard
        def post(self):
            return "ordered"

    app = make_app()
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    assert "the route has safe methods only (GET" in faults(app)["orders"]


def test_a_guard_of_whole_classes_must_be_at_work_in_one_of_them():
    class Api(MethodView):
        decorators = (idempotent(),)

        def get(self):
            return "shown"

    class Orders(Api):
        def post(self):
            return "ordered"

    app = make_app()
    app.add_url_rule("/reports", view_func=Api.as_view("reports"))
    assert list(faults(app)) == ["reports"]
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    assert faults(app) == {}


def test_one_decorator_for_several_functions_must_be_at_work_at_each():
    app, guard = make_app(), idempotent()
    app.add_url_rule("/orders", "orders", guard(lambda: "ordered"), methods=["POST"])
    app.add_url_rule("/reports", "reports", guard(lambda: "report"))
    assert list(faults(app)) == ["reports"]


def test_the_whole_app_may_have_views_of_safe_methods():
    app = with_health(make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True))
    assert app.test_client().get("/health").status_code == 200
    assert faults(app) == {}


@pytest.mark.parametrize("app", ["shop", __name__, Blueprint("shop", __name__), object()])
def test_what_is_no_application_is_told_apart(app):
    with pytest.raises(ConfigurationError, match=r"takes the Flask application, not \w+"):
        Idempotence(app)


@pytest.mark.parametrize("store", ["redis://:hunter2@h/0", MemoryStore, object()])
def test_what_is_no_store_is_told_with_what_is_one(store):
    app = Flask("shop")
    with pytest.raises(ConfigurationError, match=r"RedisStore\(client\).*STORAGE_URI") as caught:
        Idempotence(app, store=store)
    assert "hunter2" not in str(caught.value)
    assert "idempotence" not in app.extensions


@pytest.mark.parametrize("option", ["Idempotency-Key", 60])
def test_an_option_without_its_name_is_told_with_how_it_is_given(option):
    with pytest.raises(TypeError, match=r"Pass options by name, as in idempotent\(ttl=60\)"):
        idempotent(option)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_application_without_the_extension_fails_at_the_first_request(method):
    app = bare_app()
    app.add_url_rule("/", "view", idempotent(lambda: "done"), methods=["GET", "POST"])
    with pytest.raises(ConfigurationError, match="not registered"):
        app.test_client().open("/", method=method)


@pytest.mark.parametrize("store", [MemoryStore(), None])
def test_within_a_session_on_a_store_without_a_database_closes_its_route_alone(store, tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    given = SqlStore(engine) if store is None else store
    app, runs = with_health(make_app(store=given, TESTING=False)), []
    guard = idempotent(within=lambda: Session(engine))
    app.add_url_rule("/pay", "pay", guard(lambda: runs.append(1) or "paid"), methods=["POST"])
    state = app.extensions["idempotence"]
    found = [fault.endpoint for fault in faults_of(app, state.config, state.store)]
    assert found == ([] if store is None else ["pay"])
    assert app.test_client().get("/health").status_code == 200
    if store is not None:
        assert app.test_client().post("/pay").status_code == 500
        assert runs == []
