"""Refusals under frameworks and error handlers that answer errors in their own form."""

from functools import partial
from types import SimpleNamespace as Namespace

import apiflask
import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Blueprint, Flask, jsonify
from helpers.apps import make_app
from helpers.refusal_cases import REFUSAL_CASES, refused_as_documented
from werkzeug.exceptions import HTTPException

from flask_idempotence import (
    Idempotence,
    IdempotenceError,
    Refusal,
    RepeatSubmit,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

HEADER = "Idempotence-Refusal"
SETTINGS = {
    "SECRET_KEY": "a secret for the tests",
    "API_TITLE": "shop",
    "API_VERSION": "1",
    "OPENAPI_VERSION": "3.0.2",
}


def apiflask_app(view, settings, **options):
    app = apiflask.APIFlask("shop", **options)
    app.config.update(SETTINGS, **settings)
    app.post("/orders")(view)
    return app


def resource_app(framework, view, settings, **options):
    app = Flask("shop")
    app.config.update(SETTINGS, **settings)
    resource = type("Orders", (framework.Resource,), {"post": lambda self: view()})
    framework.Api(app, **options).add_resource(resource, "/orders")
    return app


def smorest_app(view, settings):
    app = Flask("shop")
    app.config.update(SETTINGS, **settings)
    blueprint = flask_smorest.Blueprint("orders", __name__)
    blueprint.route("/orders", methods=["POST"])(view)
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


APPS = {
    "APIFlask": apiflask_app,
    "Flask-RESTful": partial(resource_app, flask_restful),
    "Flask-RESTX": partial(resource_app, flask_restx, doc=False),
    "flask-smorest": smorest_app,
}


def body_of(framework, slug, title, status, text):
    problem = {"type": f"urn:flask-idempotence:{slug}", "title": title, "status": status}
    names = {409: "Conflict", 400: "Bad Request", 422: "Unprocessable Entity"}
    names |= {503: "Service Unavailable"}
    return {
        "APIFlask": {"message": text, "detail": problem},
        "Flask-RESTful": {"message": text, **problem},
        "Flask-RESTX": {"message": text, **problem},
        "flask-smorest": {
            "code": status,
            "status": names.get(status, title),
            "message": text,
            "errors": {"idempotence": [slug]},
        },
    }[framework]


def done():
    return jsonify(done=True)


REFUSED = {
    "repeat-submit": (no_repeat_submit(60), "Repeated submit", 409, "60"),
    "token-missing": (one_time_token(), "Token missing", 400, None),
    "key-reused": (idempotent(), "Key reused", 422, None),
    "store-unavailable": (no_repeat_submit(60), "Store unavailable", 503, "1"),
}
"""One of each status, and of each kind of `Retry-After`."""


def refused(app, slug="repeat-submit", accept="*/*"):
    """Return the answer to the second request, which is refused with this slug."""
    client, headers = app.test_client(), {"Accept": accept, "Idempotency-Key": "one"}
    client.post("/orders", headers=headers)
    body = {"json": {"other": 1}} if slug == "key-reused" else {}
    return client.post("/orders", headers=headers, **body)


def app_of(framework, guard, **settings):
    app = APPS[framework](guard(done), settings)
    Idempotence(app)
    return app


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
@pytest.mark.parametrize("slug", REFUSED)
@pytest.mark.parametrize("framework", APPS)
def test_a_framework_shows_status_text_and_slug(framework, slug, accept):
    guard, title, status, retry_after = REFUSED[slug]
    settings = {"IDEMPOTENCE_MESSAGES": {slug: "请稍候 <b>"}}
    if slug == "store-unavailable":
        settings["IDEMPOTENCE_STORAGE_URI"] = "redis://127.0.0.1:1"
    answer = refused(app_of(framework, guard, **settings), slug, accept)
    assert answer.status_code == status
    assert answer.json == body_of(framework, slug, title, status, "请稍候 <b>")
    assert answer.headers.getlist(HEADER) == [slug]
    assert answer.headers.getlist("Content-Type") == ["application/json"]
    assert answer.headers.getlist("Retry-After") == ([retry_after] if retry_after else [])


@pytest.mark.parametrize("status", [201, 299, 499])
@pytest.mark.parametrize("framework", APPS)
def test_so_does_a_refusal_with_a_status_of_the_setting(framework, status):
    if framework == "Flask-RESTX" and status != 201:
        return  # it knows the statuses of http.HTTPStatus only
    answer = refused(
        app_of(framework, no_repeat_submit(60), IDEMPOTENCE_DUPLICATE_STATUS=status),
        accept="application/json",
    )
    assert (answer.status_code, answer.headers[HEADER]) == (status, "repeat-submit")
    shown = body_of(framework, "repeat-submit", "Repeated submit", status, answer.json["message"])
    assert answer.json | {"status": 0} == shown | {"status": 0}


# Handlers of the application


def test_an_error_processor_of_apiflask_has_text_and_type():
    app = app_of("APIFlask", no_repeat_submit(60, "Not twice."))

    @app.error_processor
    async def envelope(error):
        return {"msg": error.message, "data": error.detail["type"]}, 200, error.headers

    answer = refused(app)
    assert answer.status_code == 200
    assert answer.json == {"msg": "Not twice.", "data": "urn:flask-idempotence:repeat-submit"}
    assert (answer.headers[HEADER], answer.headers["Retry-After"]) == ("repeat-submit", "60")


@pytest.mark.parametrize("place", ["application", "blueprint"])
@pytest.mark.parametrize("kind", [HTTPException, IdempotenceError, Refusal, RepeatSubmit], ids=str)
def test_a_handler_of_an_apiflask_application_wins(kind, place):
    app = apiflask.APIFlask("shop")
    app.config.update(SETTINGS)
    blueprint = Blueprint("shop", __name__)
    blueprint.post("/orders")(no_repeat_submit(60)(done))
    where = blueprint if place == "blueprint" else app
    where.register_error_handler(kind, lambda error: ({"mine": error.description}, error.code))
    app.register_blueprint(blueprint)
    Idempotence(app)
    assert refused(app).json == {"mine": RepeatSubmit.description}


@pytest.mark.parametrize("place", ["api", "namespace"])
@pytest.mark.parametrize("kind", [RepeatSubmit, Refusal, HTTPException])
def test_an_error_handler_of_restx_wins(kind, place):
    app = make_app()
    api = flask_restx.Api(app, doc=False)
    namespace = api.namespace("shop", path="/")
    where = api if place == "api" else namespace

    @where.errorhandler(kind)
    def refuse(error):
        return {"mine": error.slug}, error.code

    guarded = no_repeat_submit(60)(lambda self: {"done": True})
    namespace.add_resource(type("Orders", (flask_restx.Resource,), {"post": guarded}), "/orders")
    answer = refused(app)
    assert (answer.status_code, answer.json["mine"]) == (409, "repeat-submit")
    assert answer.headers[HEADER] == "repeat-submit"


def test_the_errors_of_restful_by_name_are_kept():
    own = {"RepeatSubmit": {"message": "Mine.", "status": 410}}
    app = resource_app(flask_restful, no_repeat_submit(60)(done), {}, errors=own)
    Idempotence(app)
    answer = refused(app)
    assert (answer.status_code, answer.json["message"]) == (410, "Mine.")
    assert answer.json["type"] == "urn:flask-idempotence:repeat-submit"


@pytest.mark.parametrize("framework", ["Flask-RESTful", "Flask-RESTX", "APIFlask"])
def test_a_view_beside_the_api_gets_the_problem_document(framework):
    """And so does one of an APIFlask that leaves errors to Flask."""
    options = {"json_errors": False} if framework == "APIFlask" else {}
    app = APPS[framework](done, {}, **options)
    view = no_repeat_submit(60)(done)
    app.add_url_rule("/visits", "visits", view, methods=["POST"])
    Idempotence(app)
    app.test_client().post("/visits")
    assert app.test_client().post("/visits").content_type == "application/problem+json"


def test_of_two_apis_the_one_that_answers_counts():
    """A handler of the other one does not, and nor does its form."""
    app = Flask("shop")
    app.config.update(SETTINGS)
    guarded = no_repeat_submit(60)(lambda self: {"done": True})
    apis = {}
    for name in ("with", "without"):
        blueprint = Blueprint(name + "_handler", __name__, url_prefix=f"/{name}")
        apis[name] = api = flask_restx.Api(blueprint, doc=False)
        api.add_resource(type("Orders", (flask_restx.Resource,), {"post": guarded}), "/orders")
        app.register_blueprint(blueprint)
    apis["with"].errorhandler(Refusal)(lambda error: ({"mine": 1}, error.code))
    third = flask_smorest.Blueprint("third", __name__, url_prefix="/third")
    third.route("/orders", methods=["POST"])(no_repeat_submit(60)(done))
    flask_smorest.Api(app).register_blueprint(third)
    Idempotence(app)

    def second(name):
        return [app.test_client().post(f"/{name}/orders") for _ in range(2)][1].json

    assert second("with")["mine"] == 1
    assert second("without")["type"] == "urn:flask-idempotence:repeat-submit"
    assert second("third")["errors"] == {"idempotence": ["repeat-submit"]}


# One handler writes every refusal in the application's own format


def own(refusal):
    return {"error": {"code": refusal.slug, "status": refusal.code}}, refusal.code


@pytest.mark.parametrize("slug", REFUSAL_CASES)
def test_one_handler_writes_every_refusal(slug):
    answer = refused_as_documented(slug, handlers={Refusal: own})
    assert f'"code": "{slug}"' in answer
    assert "problem+json" not in answer


def of_blueprint(view, settings):
    app, blueprint = Flask("shop"), Blueprint("orders", __name__)
    app.config.update(SETTINGS)
    blueprint.post("/orders")(view)
    app.register_blueprint(blueprint)
    return app


def of_resource(framework, view, settings, **options):
    class Api(framework.Api):
        def handle_error(self, error):
            if isinstance(error, Refusal):
                raise error  # to the handlers of the application
            return super().handle_error(error)

    return resource_app(Namespace(Api=Api, Resource=framework.Resource), view, settings, **options)


OWN_HANDLERS = {
    **APPS,
    "a blueprint": of_blueprint,
    "Flask-RESTful": partial(of_resource, flask_restful),
    "Flask-RESTX": partial(of_resource, flask_restx, doc=False),
}


@pytest.mark.parametrize("framework", OWN_HANDLERS)
def test_one_handler_writes_the_refusals_of_a_framework_and_of_blueprints(framework):
    app = OWN_HANDLERS[framework](no_repeat_submit(60)(done), {})
    Idempotence(app)
    app.register_error_handler(Refusal, own)
    answer = refused(app)
    assert answer.json == {"error": {"code": "repeat-submit", "status": 409}}
    assert answer.headers[HEADER] == "repeat-submit"


def test_one_handler_writes_the_refusals_of_whole_app_mode():
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    app.register_error_handler(Refusal, own)
    app.add_url_rule("/orders", "orders", lambda: "done", methods=["POST"])
    client = app.test_client()
    assert client.post("/orders", headers={"Idempotency-Key": "one"}).text == "done"
    answer = client.post("/orders", headers={"Idempotency-Key": "one"}, json={"other": 1})
    assert answer.json == {"error": {"code": "key-reused", "status": 422}}
