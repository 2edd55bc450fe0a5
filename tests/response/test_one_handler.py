"""One error handler writes every refusal in the application's own format."""

from functools import partial
from types import SimpleNamespace as Namespace

import flask_restful
import flask_restx
import pytest
from flask import Blueprint
from helpers.apps import bare_app, make_app
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.refusal_cases import REFUSAL_CASES, RefusalCase
from helpers.repository import REFERENCE, section
from response.test_refusals_in_frameworks import APPS, resource_app

from flask_idempotence import Idempotence, Refusal, no_repeat_submit

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


def of_blueprint(view, settings):
    app, blueprint = bare_app(**settings), Blueprint("orders", __name__)
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
    app = OWN_HANDLERS[framework](no_repeat_submit(60)(lambda: {"done": True}), {})
    Idempotence(app)
    app.register_error_handler(Refusal, own)
    answers = [app.test_client().post("/orders") for _ in range(2)]
    assert answers[1].json == {"error": {"code": "repeat-submit", "status": 409}}
    assert answers[1].headers["Idempotence-Refusal"] == "repeat-submit"


def test_one_handler_writes_the_refusals_of_whole_app_mode():
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    app.register_error_handler(Refusal, own)
    app.add_url_rule("/orders", "orders", lambda: "done", methods=["POST"])
    client = app.test_client()
    assert client.post("/orders", headers=KEY).text == "done"
    answer = client.post("/orders", headers=KEY, json={"other": 1})
    assert answer.json == {"error": {"code": "key-reused", "status": 422}}
