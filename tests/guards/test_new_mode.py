"""A mode of ten lines: three runs in a minute for each sender."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from flask import jsonify
from helpers.apps import make_app

from flask_idempotence import MemoryStore, RepeatSubmit
from flask_idempotence.engine.guard import FAILURES, Question, Settlement, ViewGuard
from flask_idempotence.guards.wrapping import put_behind
from flask_idempotence.testing import FakeClock

THREADS = 16


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


class Shop:
    """An application with one view behind the quota, which counts its runs."""

    def __init__(self):
        self.clock = FakeClock()
        self.app = make_app(store=MemoryStore(clock=self.clock))
        self.clock.rule(self.app)
        self.runs = []
        self.app.add_url_rule(
            "/<status>", "order", put_behind(QuotaGuard(), self.order), methods=["POST"]
        )

    def order(self, status):
        self.runs.append(status)
        return jsonify(status=status), int(status)

    def post(self, status=200, sender="alice"):
        headers = {"Authorization": f"Bearer {sender}"}
        return self.app.test_client().post(f"/{status}", headers=headers).status_code


@pytest.fixture
def shop():
    return Shop()


def test_of_sixteen_at_once_three_run(shop):
    barrier = Barrier(THREADS)

    def post(_):
        barrier.wait(timeout=10)
        return shop.post()

    with ThreadPoolExecutor(THREADS) as threads:
        codes = sorted(threads.map(post, range(THREADS)))
    assert codes == [200] * 3 + [409] * 13
    assert len(shop.runs) == 3


def test_each_sender_has_three(shop):
    for sender in ("alice", "bob"):
        assert [shop.post(sender=sender) for _ in range(4)] == [200, 200, 200, 409]
    assert len(shop.runs) == 6


def test_after_a_minute_there_are_three_more(shop):
    assert [shop.post() for _ in range(4)] == [200, 200, 200, 409]
    shop.clock.advance(59.9)
    assert shop.post() == 409
    shop.clock.advance(0.2)
    assert [shop.post() for _ in range(4)] == [200, 200, 200, 409]
    assert len(shop.runs) == 6


def test_a_failed_view_frees_its_slot(shop):
    asked = [200, 500, 200, 500, 200]
    assert [shop.post(status) for status in asked] == asked
    assert shop.post() == 409
    assert shop.runs == list(map(str, asked))


def test_its_name_is_in_the_lines_of_debug_mode(shop, caplog):
    shop.app.debug = True
    with caplog.at_level("DEBUG", "flask_idempotence"):
        assert shop.post() == 200
    assert "Flask-Idempotence: quota at 'order': claimed" in caplog.text
