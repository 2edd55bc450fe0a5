"""Replays under what people build Flask applications with: frameworks, hooks, sessions."""

import flask_restx
import flask_smorest
import pytest
from flask import jsonify, session
from guards.key.test_replay import check_app
from helpers.apps import KeyedApp, fail, make_app
from marshmallow import Schema, fields

from flask_idempotence import KeyReused, current_guard, idempotent

RETURNED = {
    "a dict": (lambda: {"id": 7}, 200),
    "a list": (lambda: [7], 200),
    "a string": (lambda: "7", 200),
    "None": (lambda: None, 200),
    "a tuple": (lambda: ({"id": 7}, 201), 201),
    "a tuple with headers": (lambda: ({"id": 7}, 201, {"X-Id": "7", "Location": "/7"}), 201),
    "None and a status": (lambda: (None, 204), 204),
    "a failure": (lambda: ({"why": "no"}, 422), 422),
    "an abort": (lambda: flask_restx.abort(422, "no such thing", field="id"), 422),
    "a response": (lambda: jsonify(id=7), 200),
}


class TestRestx:
    @pytest.mark.parametrize("how", ["a decorated method", "method_decorators", "decorators"])
    @pytest.mark.parametrize("value", RETURNED)
    def test_a_resource_is_replayed(self, value, how):
        app, runs = make_app(), []
        view, status = RETURNED[value]

        def post(self):
            runs.append(1)
            return view()

        guard = idempotent()
        members = {"post": guard(post) if how == "a decorated method" else post}
        members |= {} if how == "a decorated method" else {how: [guard]}
        resource = type("Orders", (flask_restx.Resource,), members)
        flask_restx.Api(app, doc=False).add_resource(resource, "/orders")
        first, *_ = check_app(app, "/orders")
        assert (first.status_code, runs) == (status, [1])

    def test_an_error_handler_of_the_api_is_replayed(self):
        app = make_app()
        api = flask_restx.Api(app, doc=False)

        @api.errorhandler(ValueError)
        def refuse(error):
            return {"told": str(error)}, 418, {"X-Why": "no"}

        resource = type(
            "Orders", (flask_restx.Resource,), {"post": idempotent()(lambda _: fail())}
        )
        api.add_resource(resource, "/orders")
        first, *_ = check_app(app, "/orders")
        assert (first.status_code, first.json["told"]) == (418, "the view failed")


class OrderSchema(Schema):
    thing = fields.String(required=True)
    amount = fields.Integer(load_default=1)


@pytest.mark.parametrize("side", ["outside", "between", "inside"])
def test_a_smorest_view_is_replayed_on_either_side_of_its_decorators(side):
    app, runs = make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.2"), []
    blueprint = flask_smorest.Blueprint("orders", __name__)

    def order(arguments):
        runs.append(1)
        return {**arguments, "secret": 1}, {"X-Run": str(len(runs))}

    layers = [blueprint.arguments(OrderSchema), blueprint.response(201, OrderSchema)]
    layers.insert({"inside": 0, "between": 1, "outside": 2}[side], idempotent())
    for layer in layers:
        order = layer(order)
    blueprint.add_url_rule("/orders", endpoint="order", view_func=order, methods=["POST"])
    flask_smorest.Api(app).register_blueprint(blueprint)

    def send(key, **body):
        headers = {"Idempotency-Key": key}
        return app.test_client().post("/orders", headers=headers, json=body, buffered=True)

    first, second = send("k", thing="tea"), send("k", thing="tea")
    assert (first.status_code, first.json, runs) == (201, {"thing": "tea", "amount": 1}, [1])
    assert (second.status, second.data) == (first.status, first.data)
    assert second.headers["X-Run"] == "1"
    other = send("k", thing="coffee")
    assert (other.status_code, KeyReused.description in other.text) == (422, True)
    refused = [send("bad", amount="many") for _ in range(2)]
    assert [answer.status_code for answer in refused] == [422, 422]
    assert refused[0].data == refused[1].data
    assert runs == [1]


class TestHooks:
    @pytest.mark.parametrize("status", [200, 202])
    def test_hooks_run_on_a_replay_too_and_can_tell_it(self, status):
        keyed, seen = KeyedApp(), []

        @keyed.app.after_request
        def note(response):
            seen.append((current_guard.replayed, response.headers.get("Idempotent-Replayed")))
            response.headers["X-Hook"] = f"run {len(seen)}"
            response.set_cookie("run", str(len(seen)))
            response.set_data(response.get_data() + b"!")
            response.status_code = status
            return response

        answers = [keyed.send() for _ in range(3)]
        assert seen == [(False, None), (True, "true"), (True, "true")]
        assert [answer.text for answer in answers] == ["done!"] * 3
        assert [answer.headers["X-Hook"] for answer in answers] == ["run 1", "run 2", "run 3"]
        assert ["run=3" in answer.headers["Set-Cookie"] for answer in answers] == [
            False,
            False,
            True,
        ]

    def test_a_refused_repeat_is_no_replay(self):
        keyed, seen = KeyedApp(on_repeat="reject"), []
        keyed.app.after_request(lambda answer: seen.append(current_guard.replayed) or answer)
        keyed.verdicts({}, {}, {"json": {}}, {"key": ""})
        assert seen == [False] * 4
        assert current_guard.replayed is False

    def test_a_hook_that_fails_on_a_replay_spoils_no_later_one(self):
        keyed = KeyedApp(settings={"PROPAGATE_EXCEPTIONS": False})
        failing = [True]
        keyed.app.after_request(
            lambda answer: fail() if current_guard.replayed and failing.pop() else answer
        )
        assert keyed.verdicts({}, {}) == [200, 500]
        failing[:] = [False, False]
        assert keyed.verdicts({}, {}) == ["replay of 200"] * 2


class TestSessions:
    def test_the_session_cookie_is_of_the_first_answer_alone(self):
        keyed = KeyedApp(lambda: session.setdefault("cart", "tea"))
        first, second = (keyed.send() for _ in range(2))
        assert (first.text, second.text) == ("tea", "tea")
        assert "session=" in first.headers["Set-Cookie"]
        assert "Set-Cookie" not in second.headers

    def test_what_the_first_one_put_into_the_session_is_not_put_into_anothers(self):
        keyed = KeyedApp(lambda: session.update(paid=True) or "done")
        ann, bob = keyed.app.test_client(), keyed.app.test_client()
        assert keyed.verdicts({"client": ann}, {"client": bob}) == [200, "replay of 200"]
        with bob.session_transaction() as held:
            assert "paid" not in held
