"""Guards on classes: their order among the decorators of a class, a resource and a schema."""

import functools

import apiflask
import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Flask, abort, request
from flask.views import MethodView
from helpers.apps import make_app, verdict
from marshmallow import Schema, fields

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

SMOREST = {"API_TITLE": "shop", "API_VERSION": "1", "OPENAPI_VERSION": "3.0.2"}


class OrderSchema(Schema):
    thing = fields.String(required=True)


def send(app, json=None):
    headers = {"Idempotency-Key": "k"}
    return app.test_client().post("/orders", headers=headers, json=json, buffered=True)


@pytest.mark.parametrize(
    "guard", [no_repeat_submit, one_time_token(), idempotent], ids=["lock", "token", "key"]
)
def test_a_class_itself_is_refused_and_the_error_names_the_remedy(guard):
    with pytest.raises(TypeError, match="decorate its methods, or name the guard in its"):
        guard(type("Orders", (MethodView,), {"post": lambda self: "done"}))
    # An application can be called, and a guard around that call would guard no view.
    with pytest.raises(TypeError, match="decorates a view function, not <Flask"):
        guard(Flask("shop"))


def signed_in(view):
    @functools.wraps(view)
    def checked(*args, **kwargs):
        if "Authorization" not in request.headers:
            abort(401)
        return view(*args, **kwargs)

    return checked


@pytest.mark.parametrize(
    ("framework", "where"),
    [
        (None, "decorators"),
        (flask_restx, "decorators"),
        (flask_restx, "method_decorators"),
        (flask_restful, "method_decorators"),
    ],
)
@pytest.mark.parametrize("login", ["first", "last"])
def test_the_last_decorator_of_a_list_is_the_outermost(framework, where, login):
    app, guard = make_app(), idempotent(required=True)
    order = [guard, signed_in] if login == "last" else [signed_in, guard]
    base = framework.Resource if framework else MethodView
    orders = type("Orders", (base,), {"post": lambda self: {}, where: order})
    if framework:
        framework.Api(app).add_resource(orders, "/orders")
    else:
        app.add_url_rule("/orders", view_func=orders.as_view("orders"))
    found = app.test_client().post("/orders").status_code
    assert found == (401 if login == "last" else 400)


def layered(layers, view):
    return functools.reduce(lambda inner, layer: layer(inner), reversed(layers), view)


def apiflask_app(below):
    app = apiflask.APIFlask("shop")
    app.config["SECRET_KEY"] = "a secret for the tests"
    Idempotence(app)
    schemas, guard = [app.input(OrderSchema), app.output(OrderSchema)], [idempotent()]
    layers = schemas + guard if below else guard + schemas
    post = layered(layers, lambda self, json_data: json_data)
    orders = type("Orders", (MethodView,), {"post": post})
    app.add_url_rule("/orders", view_func=orders.as_view("orders"))
    return app


def smorest_app(below):
    app = make_app(**SMOREST)
    blueprint = flask_smorest.Blueprint("orders", __name__)
    schemas = [blueprint.arguments(OrderSchema), blueprint.response(200, OrderSchema)]
    layers = [*schemas, idempotent()] if below else [idempotent(), *schemas]
    post = layered(layers, lambda self, data: data)
    orders = type("Orders", (MethodView,), {"post": post})
    blueprint.route("/orders")(orders)
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


@pytest.mark.parametrize("app_of", [apiflask_app, smorest_app])
@pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
def test_wrong_input_takes_no_key_of_a_guard_below_the_schema(app_of, below):
    app = app_of(below)
    answers = [send(app, json) for json in ({}, {}, {"thing": "tea"}, {"thing": "tea"})]
    if below:
        assert [verdict(answer) for answer in answers] == [422, 422, 200, "replay of 200"]
    else:
        assert [verdict(answer) for answer in answers[:2]] == [422, "replay of 422"]
        refused = [answer.headers["Idempotence-Refusal"] for answer in answers[2:]]
        assert refused == ["key-reused", "key-reused"]


def test_restx_refuses_wrong_input_before_a_guard_above_expect():
    app = make_app()
    api = flask_restx.Api(app, doc=False)
    model = api.model("Order", {"thing": flask_restx.fields.String(required=True)})

    @api.route("/orders")
    class Orders(flask_restx.Resource):
        @idempotent()
        @api.expect(model, validate=True)
        def post(self):
            return request.json

    found = [verdict(send(app, json)) for json in ({}, {"thing": "tea"}, {"thing": "tea"})]
    assert found == [400, 200, "replay of 200"]


@pytest.mark.parametrize(("status", "sent"), [(208, 208), (299, 500), (499, 500)])
def test_restx_makes_a_500_of_a_refusal_with_a_status_that_python_does_not_know(status, sent):
    app = make_app(IDEMPOTENCE_DUPLICATE_STATUS=status, PROPAGATE_EXCEPTIONS=False)
    guarded = no_repeat_submit(60)(lambda self: "done")
    resource = type("Orders", (flask_restx.Resource,), {"post": guarded})
    flask_restx.Api(app, doc=False).add_resource(resource, "/orders")
    assert [send(app).status_code for _ in range(2)] == [200, sent]
