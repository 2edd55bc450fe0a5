"""The guards under what people build Flask applications with."""

import asyncio
import functools

import apiflask
import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Flask, Response, abort, request
from flask.views import MethodView
from guards.key.test_replay import check_app
from helpers.apps import fail, make_app, verdict
from marshmallow import Schema, fields

from flask_idempotence import Idempotence, KeyReused, idempotent, no_repeat_submit, one_time_token

MESSAGE = "Please do not order twice."
locked = no_repeat_submit(interval=60, message=MESSAGE)


def answers(app, times=3, **options):
    """Send the same POST so many times, each from a client without cookies."""
    return [app.test_client().post("/orders", buffered=True, **options) for _ in range(times)]


def statuses(app, times=3, **options):
    return [answer.status_code for answer in answers(app, times, **options)]


def verdicts(app, *bodies):
    """Say what comes of each body under the same key."""
    sent = [answers(app, times=1, json=body, headers={"Idempotency-Key": "k"}) for body in bodies]
    # Flask-smorest has a body of its own for a refusal.
    return [answer.headers.get("Idempotence-Refusal", verdict(answer)) for [answer] in sent]


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
    assert (second.status_code, MESSAGE in second.text) == (409, True)
    assert 0 < int(second.headers["Retry-After"]) <= 60
    assert (third.status_code, runs) == (409, [1])


RETURNED = {
    "None": (lambda: None, 200),
    "a tuple with headers": (lambda: ({"id": 7}, 201, {"X-Id": "7", "Location": "/7"}), 201),
    "None and a status": (lambda: (None, 204), 204),
    "an abort": (lambda: flask_restx.abort(422, "no such thing", field="id"), 422),
    "a response": (lambda: Response("done", 202), 202),
    "an error of the API's handler": (fail, 418),
}


@pytest.mark.parametrize("how", ["a decorated method", "method_decorators", "decorators"])
@pytest.mark.parametrize("value", RETURNED)
def test_a_resource_is_replayed(value, how):
    app, runs = make_app(), []
    view, status = RETURNED[value]

    def post(self):
        runs.append(1)
        return view()

    guard = idempotent()
    members = (
        {"post": guard(post)} if how == "a decorated method" else {"post": post, how: [guard]}
    )
    resource = type("Orders", (flask_restx.Resource,), members)
    api = flask_restx.Api(app, doc=False)
    api.add_resource(resource, "/orders")
    api.errorhandler(ValueError)(lambda error: ({"told": str(error)}, 418, {"X-Why": "no"}))
    first, *_ = check_app(app, "/orders")
    assert (first.status_code, runs) == (status, [1])


# Schemas of input and output


class OrderSchema(Schema):
    thing = fields.String(required=True)
    amount = fields.Integer(load_default=1)


def smorest_app(view_behind):
    app = make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    blueprint = flask_smorest.Blueprint("orders", __name__)
    view = view_behind(blueprint.arguments(OrderSchema), blueprint.response(201, OrderSchema))
    blueprint.add_url_rule("/orders", "order", view, methods=["POST"])
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


def apiflask_app(view_behind):
    app = apiflask.APIFlask("shop")
    app.config["SECRET_KEY"] = "a secret for the tests"
    Idempotence(app)
    schemas = app.input(OrderSchema, arg_name="order"), app.output(OrderSchema, 201)
    app.add_url_rule("/orders", "order", view_behind(*schemas), methods=["POST"])
    return app


def behind(view, guard, side, schemas):
    """Put a view behind a guard and schemas; the first layer is the innermost."""
    layers = [*schemas]
    layers.insert(side, guard)
    return functools.reduce(lambda inner, layer: layer(inner), layers, view)


@pytest.mark.parametrize("side", [2, 1, 0], ids=["outside", "between", "inside"])
@pytest.mark.parametrize("app_of", [smorest_app, apiflask_app])
def test_a_view_is_guarded_on_either_side_of_the_decorators_of_schemas(app_of, side):
    runs = []

    def order(*bodies, **named):
        [body] = [*bodies, *named.values()]
        runs.append(body)
        return {**body, "secret": 1}

    app = app_of(lambda *schemas: behind(order, locked, side, schemas))
    assert statuses(app, json={"amount": "many"}) == [422, 422, 422]
    first, second, third = answers(app, json={"thing": "tea"})
    assert (first.status_code, first.json) == (201, {"thing": "tea", "amount": 1})
    assert runs == [{"thing": "tea", "amount": 1}]
    assert (second.status_code, MESSAGE in second.text, third.status_code) == (409, True, 409)
    assert statuses(app, json={"thing": "coffee"}) == [201, 409, 409]


@pytest.mark.parametrize("side", [2, 1, 0], ids=["outside", "between", "inside"])
@pytest.mark.parametrize("app_of", [smorest_app, apiflask_app])
def test_wrong_input_takes_no_key_of_a_guard_below_the_schema_and_a_replay_is_the_first_answer(
    app_of, side
):
    runs = []

    def post(self, *bodies, **named):
        [body] = [*bodies, *named.values()]
        runs.append(body)
        return {**body, "secret": 1}

    def view_behind(*schemas):
        method = behind(post, idempotent(), side, schemas)
        return type("Orders", (MethodView,), {"post": method}).as_view("orders")

    app, tea = app_of(view_behind), {"thing": "tea"}
    later = [201, "replay of 201"] if side == 0 else ["key-reused"] * 2
    assert verdicts(app, {}, {}, tea, tea) == [422, 422 if side == 0 else "replay of 422", *later]
    first, again = answers(app, 2, headers={"Idempotency-Key": "other"}, json=tea)
    assert (first.status_code, first.json) == (201, {"thing": "tea", "amount": 1})
    assert (again.status, again.data) == (first.status, first.data)
    assert again.headers["Idempotent-Replayed"] == "true"
    [other] = answers(app, 1, headers={"Idempotency-Key": "other"}, json={"thing": "coffee"})
    assert (other.status_code, KeyReused.description in other.text) == (422, True)
    assert len(runs) == (2 if side == 0 else 1)


def test_restx_refuses_wrong_input_before_a_guard_above_expect():
    app = make_app()
    api = flask_restx.Api(app, doc=False)
    model = api.model("Order", {"thing": flask_restx.fields.String(required=True)})
    post = idempotent()(api.expect(model, validate=True)(lambda self: request.json))
    api.add_resource(type("Orders", (flask_restx.Resource,), {"post": post}), "/orders")
    tea = {"thing": "tea"}
    assert verdicts(app, {}, tea, tea) == [400, 200, "replay of 200"]


@pytest.mark.parametrize(("status", "sent"), [(208, 208), (299, 500), (499, 500)])
def test_restx_makes_a_500_of_a_refusal_with_a_status_that_python_does_not_know(status, sent):
    app = make_app(IDEMPOTENCE_DUPLICATE_STATUS=status, PROPAGATE_EXCEPTIONS=False)
    resource = type("Orders", (flask_restx.Resource,), {"post": locked(lambda self: "done")})
    flask_restx.Api(app, doc=False).add_resource(resource, "/orders")
    assert statuses(app) == [200, sent, sent]


# Classes and their decorators


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
    assert statuses(app, times=1) == [401 if login == "last" else 400]


@pytest.mark.parametrize(
    ("framework", "by_method"),
    [(flask_restx, False), (flask_restful, False), (flask_restful, True)],
)
def test_a_guard_among_method_decorators_keeps_its_rules_in_whole_app_mode(framework, by_method):
    runs, guards = [], [idempotent(guarantee="at-most-once")]

    class Orders(framework.Resource):
        method_decorators = {"post": guards} if by_method else guards

        def post(self):
            runs.append("post")
            return "boom", 500, {"Location": "/orders/1"}

        def put(self):
            return "put"

    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    framework.Api(app).add_resource(Orders, "/orders")
    shown = app.test_cli_runner().invoke(args=["idempotence", "routes"]).output
    assert "POST\t/orders\torders\tkey\troute: guarantee='at-most-once'\n" in shown
    assert ("PUT\t/orders\torders\tnone" in shown) == by_method
    first, *repeats = answers(app, headers={"Idempotency-Key": "k"})
    for repeat in repeats:
        assert (verdict(repeat), repeat.data) == ("replay of 500", first.data)
        assert repeat.headers["Location"] == first.headers["Location"]
    assert runs == ["post"]


# Views


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
    assert statuses(app, headers=headers) == [500, 201, 409]
    assert len(runs) == 2


@pytest.mark.parametrize(("outside", "answers"), [(True, [201, 201]), (False, [201, 500])])
def test_a_guard_of_smorest_belongs_outside_etag(outside, answers):
    """Inside, a replay leaves it without the values of `response`, and each is a 500."""
    app = make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.2", TESTING=False)
    api, blueprint = flask_smorest.Api(app), flask_smorest.Blueprint("orders", "orders")

    schema = Schema.from_dict({"id": fields.Integer()})

    @blueprint.response(201, schema)
    def view():
        return {"id": 7}

    guarded = idempotent()(blueprint.etag(view)) if outside else blueprint.etag(idempotent()(view))
    blueprint.route("/orders", methods=["POST"])(guarded)
    api.register_blueprint(blueprint)
    client, headers = app.test_client(), {"Idempotency-Key": "one"}
    sent = [client.post("/orders", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in sent] == answers
    assert not outside or sent[0].headers["ETag"] == sent[1].headers["ETag"]
