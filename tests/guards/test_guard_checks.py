"""Guards that guard nothing, or cannot: refused at the start, else at their own endpoint alone."""

import functools

import pytest
from flask import Blueprint, Flask
from flask.views import MethodView, View
from helpers.apps import WERKZEUG_REFUSES_EQUAL_RULES, bare_app, make_app
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


def faults(app):
    """Return what is wrong with each endpoint of a finished application."""
    state = app.extensions["idempotence"]
    return {fault.endpoint: fault.text for fault in faults_of(app, state.config, state.store)}


def with_health(app):
    """Add a route without a guard, and a guarded one as it should be."""
    app.add_url_rule("/health", "health", lambda: "well")
    app.add_url_rule("/orders", "orders", idempotent()(lambda: "ordered"), methods=["POST"])
    return app


def posted_above(app, guard, runs, below=lambda view: view):
    guard(app.post("/pay", endpoint="pay")(below(lambda: runs.append(1) or "paid")))


def passed(view):
    @functools.wraps(view)
    def outer():
        return view()

    return outer


ABOVE = [(guard, lambda view: view) for guard in GUARDS]
ABOVE.append((idempotent(), lambda view: passed(no_repeat_submit(5)(view))))


@pytest.mark.parametrize(("guard", "below"), ABOVE)
def test_a_guard_above_its_route_closes_this_route_and_no_other(caplog, guard, below):
    app, runs = with_health(make_app(TESTING=False)), []
    posted_above(app, guard, runs, below)
    client = app.test_client()
    assert client.get("/health").status_code == 200
    [told] = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert told.startswith("Flask-Idempotence: every request to 'pay' is answered 500.")
    assert "Put the route decorator outermost" in told
    assert [client.post("/pay").status_code for _ in range(2)] == [500, 500]
    assert "ConfigurationError: The guard of the view 'pay' is above" in caplog.text
    assert client.post("/orders").status_code == 200
    assert runs == []


def test_a_guard_above_the_route_of_a_blueprint_is_found_too():
    app, blueprint = with_health(make_app()), no_repeat_submit()(Blueprint("shop", __name__))
    posted_above(blueprint, idempotent(), runs := [])
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


@pytest.mark.skipif(WERKZEUG_REFUSES_EQUAL_RULES, reason="Werkzeug refuses it itself")
def test_a_token_url_that_collides_with_a_route_names_both():
    app, early = with_health(make_app()), bare_app()
    for each in (app, early):
        each.add_url_rule("/token", "subway_token", lambda: "one ride")
    assert app.test_client().get("/health").status_code == 200
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*subway_token"):
        app.test_client().get("/token")
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*subway_token"):
        Idempotence(early)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("methods", [None, ["GET"], ["GET", "HEAD", "OPTIONS"], ["QUERY"]])
def test_a_guard_of_safe_methods_alone_is_refused(guard, methods):
    app, runs = with_health(make_app(TESTING=False)), []
    app.add_url_rule("/pay", "pay", guard(lambda: runs.append(1) or "paid"), methods=methods)
    [(endpoint, text)] = faults(app).items()
    name = guard.guard.decorator
    assert endpoint == "pay"
    assert text.startswith(f"{name} guards nothing at the view 'pay': the route has safe methods")
    assert "methods=['POST']" in text
    assert ("no_repeat_submit(methods=...)" in text) is (name == "no_repeat_submit")
    client = app.test_client()
    assert client.get("/health").status_code == 200
    assert client.open("/pay", method=(methods or ["GET"])[0]).status_code == 500
    assert runs == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"])
@pytest.mark.parametrize(
    "guard", [idempotent(required=True), *GUARDS[1:]], ids=lambda guard: guard.guard.mode
)
def test_a_safe_method_passes_every_guard_without_the_store(guard, method):
    app = make_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=f"redis://{HOST}:{free_port()}")
    methods = ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "POST"]
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
    app = with_health(make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True))
    app.add_url_rule("/vote", "vote", no_repeat_submit(methods=["GET"])(lambda: "voted"))
    app.add_url_rule("/one", "one", guard(lambda: "form"), methods=["GET", "POST"])
    both = guard(lambda: "form")
    app.add_url_rule("/two", "two", both, methods=["GET"])
    app.add_url_rule("/two", "two", both, methods=["POST"])
    app.add_url_rule("/three", "shown", both, methods=["GET"])
    app.add_url_rule("/three", "sent", both, methods=["POST"])
    assert app.test_client().get("/health").status_code == 200
    assert faults(app) == {}


class Orders(MethodView):
    def get(self):
        return "orders"

    def post(self):
        return "ordered"


def guarded_orders(get, post):
    methods = {"get": get(Orders.get), "post": post(Orders.post)}
    return type("Orders", (Orders,), methods).as_view("orders")


def test_a_guard_of_a_method_of_a_class_must_be_at_work_there():
    class Reports(View):
        @idempotent()
        def dispatch_request(self):
            return "report"

    class Api(MethodView):
        decorators = (idempotent(),)
        get = Orders.get

    class Ordering(Api):
        post = Orders.post

    app, both = make_app(), idempotent()
    app.add_url_rule("/one", "one", guarded_orders(idempotent(), idempotent()))
    app.add_url_rule("/both", "both", guarded_orders(both, both))
    app.add_url_rule("/reports", view_func=Reports.as_view("reports"))
    app.add_url_rule("/api", view_func=Api.as_view("api"))
    assert list(faults(app)) == ["one", "both", "reports", "api"]
    assert "the route has safe methods only (GET)" in faults(app)["one"]
    app.add_url_rule("/orders", view_func=Ordering.as_view("orders"))
    assert list(faults(app)) == ["one", "both", "reports"]  # one guard of both classes


@pytest.mark.parametrize("app", ["shop", Blueprint("shop", __name__), object()])
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


@pytest.mark.parametrize("has_database", [False, True])
def test_within_a_session_on_a_store_without_a_database_closes_its_route_alone(
    has_database, tmp_path
):
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    store = SqlStore(engine) if has_database else MemoryStore()
    app, runs = with_health(make_app(store=store, TESTING=False)), []
    guard = idempotent(within=lambda: Session(engine))
    app.add_url_rule("/pay", "pay", guard(lambda: runs.append(1) or "paid"), methods=["POST"])
    assert list(faults(app)) == ([] if has_database else ["pay"])
    assert app.test_client().get("/health").status_code == 200
    if not has_database:
        assert app.test_client().post("/pay").status_code == 500
        assert runs == []


async def asynchronous(*_):
    """An event loop would have to run it."""


@pytest.mark.parametrize("name", ["identity_loader", "result_failed"])
@pytest.mark.parametrize("function", [None, "tenant", asynchronous])
def test_a_callback_is_a_function_when_it_is_registered(name, function):
    with pytest.raises(ConfigurationError, match=name):
        getattr(Idempotence(), name)(function)
