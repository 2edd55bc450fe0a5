"""Refusals under frameworks that answer HTTP errors in their own form."""

import apiflask
import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Blueprint, Flask, current_app, jsonify
from helpers.apps import make_app
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


def apiflask_app(view, settings):
    app = apiflask.APIFlask("shop")
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
    "Flask-RESTful": lambda view, settings: resource_app(flask_restful, view, settings),
    "Flask-RESTX": lambda view, settings: resource_app(flask_restx, view, settings, doc=False),
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


def in_progress():
    """Send the same request from inside its view."""
    answers.append(current_app.test_client().post("/orders", headers=inner))
    return done()


answers, inner = [], {}

REFUSED = {
    "repeat-submit": (no_repeat_submit(60), "Repeated submit", 409, "60"),
    "token-missing": (one_time_token(), "Token missing", 400, None),
    "token-spent": (one_time_token(), "Token already spent", 409, None),
    "key-missing": (idempotent(required=True), "Key missing", 400, None),
    "key-reused": (idempotent(), "Key reused", 422, None),
    "key-in-progress": (idempotent(), "Request in progress", 409, "1"),
    "key-repeated": (idempotent(on_repeat="reject"), "Key repeated", 409, None),
    "store-unavailable": (no_repeat_submit(60), "Store unavailable", 503, "1"),
}


def refused(app, slug, accept):
    """Return the answer to a request that is refused with this slug."""
    client, headers = app.test_client(), {"Accept": accept}
    if slug == "token-spent":
        token = client.get("/token").json["token"]
        headers["Idempotence-Token"] = token
    elif slug.startswith("key-") and slug != "key-missing":
        headers["Idempotency-Key"] = "one"
    if slug == "key-in-progress":
        answers.clear()
        inner.clear()
        inner.update(headers)
        client.post("/orders", headers=headers)
        return answers[0]
    client.post("/orders", headers=headers)
    body = {"json": {"other": 1}} if slug == "key-reused" else {}
    return client.post("/orders", headers=headers, **body)


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
@pytest.mark.parametrize("slug", REFUSED)
@pytest.mark.parametrize("framework", APPS)
def test_a_framework_shows_status_text_and_slug(framework, slug, accept):
    guard, title, status, retry_after = REFUSED[slug]
    settings = {"IDEMPOTENCE_MESSAGES": {slug: "请稍候 <b>"}}
    if slug == "store-unavailable":
        settings["IDEMPOTENCE_STORAGE_URI"] = "redis://127.0.0.1:1"
    view = guard(in_progress if slug == "key-in-progress" else done)
    app = APPS[framework](view, settings)
    Idempotence(app)
    answer = refused(app, slug, accept)
    assert answer.status_code == status
    assert answer.json == body_of(framework, slug, title, status, "请稍候 <b>")
    assert answer.headers.getlist(HEADER) == [slug]
    assert answer.headers.getlist("Content-Type") == ["application/json"]
    assert answer.headers.getlist("Retry-After") == ([retry_after] if retry_after else [])


@pytest.mark.parametrize("slug", ["repeat-submit", "token-spent", "key-in-progress"])
@pytest.mark.parametrize(
    ("framework", "status"),
    # RESTX knows the statuses of http.HTTPStatus only.
    [
        (name, status)
        for name in APPS
        for status in (201, 299, 499)
        if status < 299 or "X" not in name
    ],
)
def test_so_does_a_refusal_with_a_status_of_the_setting(framework, status, slug):
    guard, title, _, _ = REFUSED[slug]
    view = guard(in_progress if slug == "key-in-progress" else done)
    app = APPS[framework](view, {"IDEMPOTENCE_DUPLICATE_STATUS": {slug: status}})
    Idempotence(app)
    answer = refused(app, slug, "application/json")
    assert answer.status_code == status
    assert answer.headers[HEADER] == slug
    shown = answer.json
    if framework == "flask-smorest":
        assert shown["errors"] == {"idempotence": [slug]}
    else:
        problem = shown.get("detail", shown)
        assert (problem["status"], problem["title"]) == (status, title)


@pytest.mark.parametrize("framework", APPS)
def test_an_extension_that_is_registered_first_makes_no_difference(framework):
    idempotence = Idempotence()
    app = APPS[framework](no_repeat_submit(60)(done), {})
    idempotence.init_app(app)
    assert refused(app, "repeat-submit", "*/*").json["message"] == RepeatSubmit.description


# Handlers of the application


def test_an_error_processor_of_apiflask_has_text_and_type():
    app = apiflask_app(no_repeat_submit(60, "Not twice.")(done), {})
    Idempotence(app)

    @app.error_processor
    def envelope(error):
        body = {"code": error.status_code, "msg": error.message, "data": error.detail["type"]}
        return body, 200, error.headers

    answer = refused(app, "repeat-submit", "*/*")
    assert answer.status_code == 200
    assert answer.json == {
        "code": 409,
        "msg": "Not twice.",
        "data": "urn:flask-idempotence:repeat-submit",
    }
    assert answer.headers[HEADER] == "repeat-submit"
    assert answer.headers["Retry-After"] == "60"


def test_an_async_error_processor_is_awaited():
    app = apiflask_app(no_repeat_submit(60, "Not twice.")(done), {})
    Idempotence(app)

    @app.error_processor
    async def envelope(error):
        return {"msg": error.message}, error.status_code, error.headers

    assert refused(app, "repeat-submit", "*/*").json == {"msg": "Not twice."}


@pytest.mark.parametrize("kind", [HTTPException, IdempotenceError, Refusal, RepeatSubmit], ids=str)
def test_a_handler_of_an_apiflask_application_wins(kind):
    app = apiflask_app(no_repeat_submit(60)(done), {})
    Idempotence(app)
    app.register_error_handler(kind, lambda error: ({"mine": error.description}, error.code))
    assert refused(app, "repeat-submit", "*/*").json == {"mine": RepeatSubmit.description}


def test_a_handler_of_a_blueprint_of_apiflask_wins():
    app = apiflask.APIFlask("shop")
    app.config.update(SETTINGS)
    blueprint = Blueprint("shop", __name__)
    blueprint.post("/orders")(no_repeat_submit(60)(done))
    blueprint.register_error_handler(HTTPException, lambda error: ({"mine": 1}, error.code))
    app.register_blueprint(blueprint)
    Idempotence(app)
    assert refused(app, "repeat-submit", "*/*").json == {"mine": 1}


def test_apiflask_without_json_errors_sends_the_problem_document():
    app = apiflask.APIFlask("shop", json_errors=False)
    app.config.update(SETTINGS)
    app.post("/orders")(no_repeat_submit(60)(done))
    Idempotence(app)
    assert refused(app, "repeat-submit", "*/*").content_type == "application/problem+json"


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

    resource = type("Orders", (flask_restx.Resource,), {"post": no_repeat_submit(60)(done)})
    resource.post = no_repeat_submit(60)(lambda self: {"done": True})
    namespace.add_resource(resource, "/orders")
    answer = refused(app, "repeat-submit", "*/*")
    assert (answer.status_code, answer.json["mine"]) == (409, "repeat-submit")
    assert answer.headers[HEADER] == "repeat-submit"


def test_the_errors_of_restful_by_name_are_kept():
    own = {"RepeatSubmit": {"message": "Mine.", "status": 410}}
    app = resource_app(flask_restful, no_repeat_submit(60)(done), {}, errors=own)
    Idempotence(app)
    answer = refused(app, "repeat-submit", "*/*")
    assert (answer.status_code, answer.json["message"]) == (410, "Mine.")
    assert answer.json["type"] == "urn:flask-idempotence:repeat-submit"


@pytest.mark.parametrize("framework", ["Flask-RESTful", "Flask-RESTX"])
def test_a_view_beside_the_api_gets_the_problem_document(framework):
    app = APPS[framework](done, {})
    app.post("/visits")(no_repeat_submit(60)(done))
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
