"""One error handler writes every refusal in the application's own format."""

import flask_restful
import flask_restx
import flask_smorest
import pytest
from apiflask import APIFlask
from flask import Blueprint, Flask
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.refusal_cases import REFUSAL_CASES, RefusalCase
from helpers.repository import REFERENCE, section

from flask_idempotence import Idempotence, MemoryStore, Refusal, no_repeat_submit

KEY = {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}


def own(refusal):
    return {"error": {"code": refusal.slug, "status": refusal.code}}, refusal.code


@pytest.mark.parametrize("slug", REFUSAL_CASES)
def test_one_handler_writes_every_refusal(monkeypatch, slug):
    add_views = RefusalCase.add_views

    def add_handler_too(case):
        add_views(case)
        case.app.register_error_handler(Refusal, own)

    monkeypatch.setattr(RefusalCase, "add_views", add_handler_too)
    case = REFUSAL_CASES[slug]()
    [sent] = BLOCK.findall(section(REFERENCE / "errors.md", slug))[:1]
    answer = TranscriptClient(case.app, dict(case.names)).exchange(sent[2])
    assert f'"code": "{slug}"' in answer
    assert "problem+json" not in answer


def set_up(app=None, **settings):
    app = app or Flask("shop")
    app.config.update({"SECRET_KEY": "a secret for the tests", "API_TITLE": "shop", **settings})
    app.config.update(API_VERSION="1", OPENAPI_VERSION="3.0.2")
    Idempotence(app, store=MemoryStore())
    app.register_error_handler(Refusal, own)
    return app


def of_blueprint(view):
    app, blueprint = set_up(), Blueprint("orders", __name__)
    blueprint.post("/orders")(view)
    app.register_blueprint(blueprint)
    return app


def of_apiflask(view):
    app = set_up(APIFlask("shop"))
    app.post("/orders")(view)
    return app


def of_resource(framework, view, **options):
    class Api(framework.Api):
        def handle_error(self, error):
            if isinstance(error, Refusal):
                raise error  # to the handlers of the application
            return super().handle_error(error)

    app = set_up()
    resource = type("Orders", (framework.Resource,), {"post": lambda self: view()})
    Api(app, **options).add_resource(resource, "/orders")
    return app


def of_smorest(view):
    app, blueprint = set_up(), flask_smorest.Blueprint("orders", __name__)
    blueprint.route("/orders", methods=["POST"])(view)
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


APPS = {
    "a blueprint": of_blueprint,
    "APIFlask": of_apiflask,
    "Flask-RESTful": lambda view: of_resource(flask_restful, view),
    "Flask-RESTX": lambda view: of_resource(flask_restx, view, doc=False),
    "flask-smorest": of_smorest,
}


@pytest.mark.parametrize("framework", APPS)
def test_one_handler_writes_the_refusals_of_a_framework_and_of_blueprints(framework):
    app = APPS[framework](no_repeat_submit(60)(lambda: {"done": True}))
    answers = [app.test_client().post("/orders") for _ in range(2)]
    assert answers[1].json == {"error": {"code": "repeat-submit", "status": 409}}
    assert answers[1].headers["Idempotence-Refusal"] == "repeat-submit"


def test_one_handler_writes_the_refusals_of_whole_app_mode():
    app = set_up(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    app.add_url_rule("/orders", "orders", lambda: "done", methods=["POST"])
    client = app.test_client()
    assert client.post("/orders", headers=KEY).text == "done"
    answer = client.post("/orders", headers=KEY, json={"other": 1})
    assert answer.json == {"error": {"code": "key-reused", "status": 422}}
