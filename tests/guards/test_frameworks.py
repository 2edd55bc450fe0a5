"""The guards under what people build Flask applications with."""

import asyncio
import functools

import apiflask
import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Blueprint
from helpers.apps import make_app
from marshmallow import Schema, fields

from flask_idempotence import (
    Idempotence,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

MESSAGE = "Please do not order twice."
locked = no_repeat_submit(interval=60, message=MESSAGE)


def answers(app, path="/orders", times=3, **options):
    """Send the same POST so many times, each from a client without cookies."""
    return [app.test_client().post(path, **options) for _ in range(times)]


def statuses(app, path="/orders", times=3, **options):
    return [answer.status_code for answer in answers(app, path, times, **options)]


def check_refusal(answer):
    assert answer.status_code == 409
    assert MESSAGE in answer.text
    assert 0 < int(answer.headers["Retry-After"]) <= 60


VALUES = {
    "a dict": (lambda: {"id": 7}, 200, {"id": 7}),
    "a tuple": (lambda: ({"id": 7}, 201), 201, {"id": 7}),
    "a tuple with headers": (lambda: ({"id": 7}, 201, {"X-Id": "7"}), 201, {"id": 7}),
    "None": (lambda: None, 200, None),
}


@pytest.mark.parametrize("how", ["a decorated method", "method_decorators"])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("framework", [flask_restx, flask_restful], ids=["restx", "restful"])
def test_a_resource_keeps_its_values_and_the_refusal_its_message(framework, value, how):
    app, runs = make_app(RESTX_ERROR_404_HELP=False), []
    view, status, body = VALUES[value]

    def post(self):
        runs.append(1)
        return view()

    if how == "method_decorators":
        members = {"post": post, "method_decorators": [locked]}
    else:
        members = {"post": locked(post)}
    orders = type("Orders", (framework.Resource,), members)
    framework.Api(app).add_resource(orders, "/orders")

    first, second, third = answers(app)
    assert (first.status_code, first.json) == (status, body)
    assert ("X-Id" in first.headers) == (value == "a tuple with headers")
    check_refusal(second)
    assert (third.status_code, runs) == (409, [1])


class OrderSchema(Schema):
    thing = fields.String(required=True)
    amount = fields.Integer(load_default=1)


def smorest_app(layered):
    app = make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    blueprint = flask_smorest.Blueprint("orders", __name__)
    order = layered(blueprint.arguments(OrderSchema), blueprint.response(201, OrderSchema))
    blueprint.add_url_rule("/orders", endpoint="order", view_func=order, methods=["POST"])
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


def apiflask_app(layered):
    app = apiflask.APIFlask("shop")
    app.config["SECRET_KEY"] = "a secret for the tests"
    Idempotence(app)
    app.post("/orders")(
        layered(app.input(OrderSchema, arg_name="arguments"), app.output(OrderSchema, 201))
    )
    return app


@pytest.mark.parametrize("side", [2, 1, 0], ids=["outside", "between", "inside"])
@pytest.mark.parametrize("app_of", [smorest_app, apiflask_app])
def test_a_view_is_guarded_on_either_side_of_the_decorators_of_schemas(app_of, side):
    runs = []

    def order(*bodies, **named):
        [body] = [*bodies, *named.values()]
        runs.append(body)
        return {**body, "secret": 1}

    def layered(*layers):
        layers = [*layers]
        layers.insert(side, locked)
        return functools.reduce(lambda view, layer: layer(view), layers, order)

    app = app_of(layered)
    assert statuses(app, json={"amount": "many"}, buffered=True) == [422, 422, 422]
    first, second, third = answers(app, json={"thing": "tea"})
    assert (first.status_code, first.json) == (201, {"thing": "tea", "amount": 1})
    assert runs == [{"thing": "tea", "amount": 1}]
    assert statuses(app, json={"thing": "coffee"}) == [201, 409, 409]
    assert third.status_code == 409
    check_refusal(second)


def test_a_restful_resource_replays_what_it_answered():
    app, runs = make_app(), []

    class Orders(flask_restful.Resource):
        @idempotent
        def post(self):
            runs.append(1)
            return {"id": len(runs)}, 201, {"Location": "/orders/1"}

    flask_restful.Api(app).add_resource(Orders, "/orders")
    first, *repeats = answers(app, headers={"Idempotency-Key": "one"})
    for repeat in repeats:
        assert (repeat.status_code, repeat.data) == (201, first.data)
        assert repeat.headers["Location"] == first.headers["Location"]
        assert repeat.headers["Idempotent-Replayed"] == "true"
    assert runs == [1]


@pytest.mark.parametrize("guard", [locked, one_time_token(restore_on_failure=True)])
def test_an_async_view_is_settled_by_what_it_returns_or_raises(guard):
    app, runs = make_app(PROPAGATE_EXCEPTIONS=False), []

    @app.post("/orders")
    @guard
    async def order():
        await asyncio.sleep(0)
        runs.append(1)
        if len(runs) < 2:
            raise ValueError("not yet")
        return {"ordered": True}, 201

    headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
    assert statuses(app, headers=headers, buffered=True) == [500, 201, 409]
    assert len(runs) == 2


def test_the_same_view_under_two_blueprints_and_two_endpoints_is_four_views():
    app, runs = make_app(), []
    view = locked(lambda: runs.append(1) or "done")
    for name in ("eu", "us"):
        inner = Blueprint("inner", __name__, url_prefix="/inner")
        for endpoint in ("order", "reorder"):
            inner.add_url_rule(f"/{endpoint}", endpoint, view, methods=["POST"])
        outer = Blueprint(name, __name__, url_prefix=f"/{name}")
        outer.register_blueprint(inner)
        app.register_blueprint(outer)
    paths = [f"/{name}/inner/{end}" for name in ("eu", "us") for end in ("order", "reorder")]
    assert [statuses(app, path) for path in paths] == [[200, 409, 409]] * 4
    assert len(runs) == 4


@pytest.mark.parametrize(
    ("framework", "by_method"),
    [(flask_restx, False), (flask_restful, False), (flask_restful, True)],
)
def test_a_guard_among_method_decorators_keeps_its_rules_in_whole_app_mode(framework, by_method):
    runs, guards = [], [idempotent(guarantee="at-most-once")]

    class Pay(framework.Resource):
        method_decorators = {"post": guards} if by_method else guards

        def post(self):
            runs.append("post")
            return "boom", 500

        def put(self):
            return "put"

    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    framework.Api(app).add_resource(Pay, "/pay")
    shown = app.test_cli_runner().invoke(args=["idempotence", "routes"]).output
    assert "POST\t/pay\tpay\tkey\troute: guarantee='at-most-once'\n" in shown
    assert ("PUT\t/pay\tpay\tnone" in shown) == by_method
    for _ in range(3):
        app.test_client().post("/pay", headers={"Idempotency-Key": "k"})
    assert runs == ["post"]
