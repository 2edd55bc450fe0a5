"""A mode of twenty lines: each sender runs a view once in a minute."""

from apispec import APISpec
from flask import Blueprint, jsonify
from helpers.apps import GuardedApp, make_app
from helpers.servers.processes import all_at_once

from flask_idempotence import RepeatSubmit, idempotent
from flask_idempotence.engine.guard import ViewGuard
from flask_idempotence.engine.values import FAILURES, RELEASE, Operation, Settlement
from flask_idempotence.guards.wrapping import Decorator, put_behind
from flask_idempotence.openapi import IdempotencePlugin


class PauseGuard(ViewGuard):
    mode = "pause"
    decorator = "once_a_minute"
    toggle = "IDEMPOTENCE_ENABLED"
    refuses_with = (RepeatSubmit,)
    outlasts_view = True

    def operation(self, request):
        sender = self.services.identities.of(self.services.app, request)
        return Operation(sender.text.encode(), lease=self.services.config.lease)

    def answer(self, claim, found):
        raise RepeatSubmit("Once in a minute is enough.", retry_after=found.remaining)

    def settle(self, claim, now):
        if claim.verdict in FAILURES:
            return RELEASE
        return Settlement("renew", claim.granted_at + 60 - now)


class Shop(GuardedApp):
    """An application with one view behind the guard, which answers as it is asked to."""

    def __init__(self):
        super().__init__()
        self.add_view("/<int:status>", self.order, lambda view: put_behind(PauseGuard(), view))

    def order(self, status):
        return jsonify(status=status), status

    def post(self, status=200, sender="alice"):
        headers = {"Authorization": f"Bearer {sender}"}
        return self.app.test_client().post(f"/{status}", headers=headers).status_code


def test_of_sixteen_at_once_one_runs(caplog):
    shop = Shop()
    shop.app.debug = True
    with caplog.at_level("DEBUG", "flask_idempotence"):
        codes = all_at_once([shop.post] * 16)
    assert (sorted(codes), shop.runs) == ([200] + [409] * 15, 1)
    assert "Flask-Idempotence: once_a_minute at '<int:status>': claimed" in caplog.text


def test_each_sender_runs_once_and_after_a_minute_once_more():
    shop = Shop()
    for sender in ("alice", "bob"):
        assert [shop.post(sender=sender) for _ in range(2)] == [200, 409]
    shop.clock.advance(59.9)
    assert shop.post() == 409
    shop.clock.advance(0.2)
    assert [shop.post() for _ in range(2)] == [200, 409]


def test_a_blueprint_carries_it_outside_a_key():
    app, runs = make_app(), []
    blueprint = Blueprint("shop", __name__)
    for guard in (idempotent(), Decorator(PauseGuard())):
        guard(blueprint)
    blueprint.post("/")(lambda: str(runs.append(1)))
    app.register_blueprint(blueprint)
    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "Idempotent-Expires-In" in answers[0].headers
    assert len(runs) == 1


def test_a_failed_view_releases_it():
    shop, asked = Shop(), [500, 500, 200]
    assert [shop.post(status) for status in asked] == asked
    assert (shop.post(), shop.runs) == (409, len(asked))


def test_openapi_has_its_refusals():
    shop = Shop()
    spec = APISpec("Shop", "1", "3.1.0", plugins=[IdempotencePlugin(shop.app)])
    spec.path("/", operations={"post": {}}, view=shop.app.view_functions["<int:status>"])
    refused = {
        code: response["headers"]["Idempotence-Refusal"]["schema"]["enum"]
        for code, response in spec.to_dict()["paths"]["/"]["post"]["responses"].items()
    }
    assert refused == {"409": ["repeat-submit"], "503": ["store-unavailable"]}
