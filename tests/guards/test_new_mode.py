"""A mode of ten lines: three runs in a minute for each sender."""

from flask import Blueprint, jsonify
from helpers.apps import GuardedApp, make_app
from helpers.servers.processes import all_at_once

from flask_idempotence import RepeatSubmit, idempotent
from flask_idempotence.engine.guard import ViewGuard
from flask_idempotence.engine.values import FAILURES, Question, Settlement
from flask_idempotence.guards.wrapping import Decorator, put_behind


class QuotaGuard(ViewGuard):
    mode = "quota"
    decorator = "three_a_minute"
    toggle = "IDEMPOTENCE_ENABLED"

    def question(self, request):
        sender = self.services.identities.of(self.services.app, request)
        return Question(f"1 {sender.text}".encode(), lease=self.services.config.lease)

    def answer(self, operation, found):
        slot, _, sender = operation.question.name.partition(b" ")
        if slot == b"3":
            raise RepeatSubmit("Three in a minute are enough.", retry_after=60)
        return operation.question._replace(name=b"%d %s" % (int(slot) + 1, sender))

    def settle(self, operation, now):
        if operation.verdict in FAILURES:
            return Settlement("release")
        return Settlement("renew", operation.granted_at + 60 - now)


class Shop(GuardedApp):
    """An application with one view behind the quota, which answers as it is asked to."""

    def __init__(self):
        super().__init__()
        self.add_view("/<int:status>", self.order, lambda view: put_behind(QuotaGuard(), view))

    def order(self, status):
        return jsonify(status=status), status

    def post(self, status=200, sender="alice"):
        headers = {"Authorization": f"Bearer {sender}"}
        return self.app.test_client().post(f"/{status}", headers=headers).status_code


def test_of_sixteen_at_once_three_run(caplog):
    shop = Shop()
    shop.app.debug = True
    with caplog.at_level("DEBUG", "flask_idempotence"):
        codes = all_at_once([shop.post] * 16)
    assert (sorted(codes), shop.runs) == ([200] * 3 + [409] * 13, 3)
    assert "Flask-Idempotence: three_a_minute at '<int:status>': claimed" in caplog.text


def test_each_sender_has_three_and_after_a_minute_three_more():
    shop = Shop()
    for sender in ("alice", "bob"):
        assert [shop.post(sender=sender) for _ in range(4)] == [200, 200, 200, 409]
    shop.clock.advance(59.9)
    assert shop.post() == 409
    shop.clock.advance(0.2)
    assert [shop.post() for _ in range(4)] == [200, 200, 200, 409]


def test_a_blueprint_carries_it_outside_a_key():
    app, runs = make_app(), []
    blueprint = Blueprint("shop", __name__)
    for guard in (idempotent(), Decorator(QuotaGuard())):
        guard(blueprint)
    blueprint.post("/")(lambda: str(runs.append(1)))
    app.register_blueprint(blueprint)
    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 409]
    assert ["Idempotent-Replayed" in answer.headers for answer in answers[:3]] == [
        False,
        True,
        True,
    ]
    assert len(runs) == 1


def test_a_failed_view_frees_its_slot():
    shop, asked = Shop(), [200, 500, 200, 500, 200]
    assert [shop.post(status) for status in asked] == asked
    assert (shop.post(), shop.runs) == (409, len(asked))
