"""A flask-smorest application that describes itself, with a view behind every kind of guard."""

import contextlib

import flask_smorest
from flask import request
from marshmallow import Schema, fields
from openapi_schema_validator import OAS30Validator, OAS31Validator

from flask_idempotence import Refusal, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.openapi import IdempotencePlugin
from helpers.apps import StillApp

BASE = "urn:flask-idempotence:"
PROBLEM = "application/problem+json"
VALIDATORS = {"3.0.3": OAS30Validator, "3.1.0": OAS31Validator}
SMOREST_ERRORS = {"application/json": {"schema": "Error"}}

GUARDS = {
    "pay": idempotent(required=True, guarantee="at-most-once", ttl=3600, on_store_error="reject"),
    "refund": idempotent(on_repeat="reject", key="Refund-Key"),
    "claim": idempotent(key="Idempotence-Token", required=True),
    "deliver": idempotent(key=lambda: request.headers.get("X-Delivery")),
    "order": no_repeat_submit(60),
    "checkout": one_time_token(purpose="pay"),
    "both": lambda view: idempotent(no_repeat_submit(60)(view)),
    "look": lambda view: view,
}
PATHS = [f"/{name}" for name in GUARDS if name != "look"]


class PaymentSchema(Schema):
    amount = fields.Integer(required=True, strict=True)


def guarded_blueprint(site):
    shop = flask_smorest.Blueprint("shop", __name__)
    for name, guard in GUARDS.items():

        def view(arguments):
            return site.inside() or arguments

        for layer in (guard, shop.arguments(PaymentSchema), shop.response(201, PaymentSchema)):
            view = layer(view)
        shop.add_url_rule(f"/{name}", endpoint=name, view_func=view, methods=["POST"])
    return shop


class Shop(StillApp):
    def __init__(self, version="3.1.0", *, error_content=None, **settings):
        self.version = version
        described = {"API_TITLE": "Shop", "API_VERSION": "1", "OPENAPI_VERSION": version}
        super().__init__(**described, OPENAPI_URL_PREFIX="/docs", **settings)
        self.user, self.inside = "ann", lambda: None
        self.idempotence.identity_loader(lambda: self.user)
        plugin = IdempotencePlugin(self.app, error_content=error_content)
        api = flask_smorest.Api(self.app, spec_kwargs={"extra_plugins": [plugin]})
        if error_content is None:
            self.app.register_error_handler(Refusal, lambda refusal: refusal)
        api.register_blueprint(guarded_blueprint(self))
        self.described = self.app.test_client().get("/docs/openapi.json").json

    def post(self, path, headers=(), amount=5, *, buffered=True):
        sent = {"json": {"amount": amount}, "headers": dict(headers)}
        return self.app.test_client().post(path, **sent, buffered=buffered)

    def post_while(self, inside, path, headers=()):
        found = []
        self.inside = lambda: found.append(inside())
        with contextlib.suppress(SystemExit):
            self.post(path, headers)
        self.inside = lambda: None
        return found and found[0]

    def token(self, purpose=None):
        with self.app.test_request_context():
            return self.idempotence.issue_token(purpose)

    def operation(self, path):
        return self.described["paths"][path]["post"]

    def problems(self, path):
        found = set()
        for status, response in self.operation(path)["responses"].items():
            if PROBLEM in response.get("content", {}):
                schema = response["content"][PROBLEM]["schema"]
                types = schema["allOf"][1]["properties"]["type"]["enum"]
                found |= {(int(status), problem.removeprefix(BASE)) for problem in types}
        return found

    def check(self, path, answer):
        """Assert that an answer is as described; return its status and problem."""
        response = self.operation(path)["responses"][str(answer.status_code)]
        self._validate(response["content"][answer.mimetype]["schema"], answer.json)
        headers = response.get("headers", {})
        names = {"Retry-After", "Idempotent-Replayed", "Idempotence-Refusal"}
        for name in names & set(answer.headers.keys()):
            value = answer.headers[name]
            self._validate(headers[name]["schema"], int(value) if value.isdigit() else value)
        return answer.status_code, answer.json.get("type", "").removeprefix(BASE)

    def _validate(self, schema, value):
        whole = {**schema, "components": self.described["components"]}
        VALIDATORS[self.version](whole).validate(value)
