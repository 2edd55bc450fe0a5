"""A mode of ten lines: three runs in a minute for each sender."""

import pytest
from flask import jsonify
from helpers.apps import make_app
from helpers.servers.processes import all_at_once

from flask_idempotence import MemoryStore, RepeatSubmit
from flask_idempotence.engine.guard import FAILURES, Question, Settlement, ViewGuard
from flask_idempotence.guards.wrapping import put_behind
from flask_idempotence.testing import FakeClock


class QuotaGuard(ViewGuard):
    mode = "quota"
    decorator = "three_a_minute"
    toggle = "IDEMPOTENCE_ENABLED"

    def question(self, request):
        sender = self.services.identities.of(self.services.app, request)
        return Question(f"1 {sender.text}".encode(), lease=self.services.config.lease)

    def answer(self, finding):
        slot, _, sender = finding.question.name.partition(b" ")
        if slot == b"3":
            raise RepeatSubmit("Three in a minute are enough.", retry_after=60)
        return finding.question._replace(name=b"%d %s" % (int(slot) + 1, sender))

    def settle(self, ending):
        if ending.verdict in FAILURES:
            return Settlement("release")
        return Settlement("renew", ending.granted_at + 60 - ending.now)


@pytest.fixture
def shop():
    """Return an application with one view behind the quota, which notes its runs."""
    clock = FakeClock()
    app = make_app(store=MemoryStore(clock=clock))
    clock.rule(app)
    app.clock, app.runs = clock, []

    def order(status):
        app.runs.append(status)
        return jsonify(status=status), status

    app.add_url_rule("/<int:status>", "order", put_behind(QuotaGuard(), order), methods=["POST"])
    return app


def post(app, status=200, sender="alice"):
    headers = {"Authorization": f"Bearer {sender}"}
    return app.test_client().post(f"/{status}", headers=headers).status_code


def test_of_sixteen_at_once_three_run(shop, caplog):
    shop.debug = True
    with caplog.at_level("DEBUG", "flask_idempotence"):
        codes = all_at_once([lambda: post(shop)] * 16)
    assert (sorted(codes), len(shop.runs)) == ([200] * 3 + [409] * 13, 3)
    assert "Flask-Idempotence: quota at 'order': claimed" in caplog.text


def test_each_sender_has_three_and_after_a_minute_three_more(shop):
    for sender in ("alice", "bob"):
        assert [post(shop, sender=sender) for _ in range(4)] == [200, 200, 200, 409]
    shop.clock.advance(59.9)
    assert post(shop) == 409
    shop.clock.advance(0.2)
    assert [post(shop) for _ in range(4)] == [200, 200, 200, 409]


def test_a_failed_view_frees_its_slot(shop):
    asked = [200, 500, 200, 500, 200]
    assert [post(shop, status) for status in asked] == asked
    assert post(shop) == 409
    assert shop.runs == asked
