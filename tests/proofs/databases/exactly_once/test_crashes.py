"""Processes that are killed on their way, and answers that are lost: the effect exactly once."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import closing

import psutil
import pytest
from helpers.payment_database import PaymentApp, is_unavailable
from helpers.row_locks import wait_for_waiting
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from proofs.databases.exactly_once.killed_process import LEASE, STEPS, Children
from sqlalchemy import event, make_url

pytestmark = pytest.mark.database

DEATHS = 30
"""At each step."""

COMMITS = {"postgres": b"Q\0\0\0\x0bCOMMIT", "mariadb": b"\x07\0\0\0\x03COMMIT"}
"""As it stands on the wire; BEGIN ISOLATION LEVEL READ COMMITTED ends alike."""

COMMITTED = ("after the commit", "before the answer")


@pytest.fixture(params=COMMITS)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def commit(request):
    return COMMITS[request.node.callspec.params["server"]]


@pytest.fixture
def url(server):
    return server.new_database()


@pytest.fixture
def pay_app(url):
    with closing(PaymentApp(url)) as site:
        yield site


@pytest.fixture
def children(url, pay_app):
    return Children(url)


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_any_step_pays_exactly_once(children, pay_app, step):
    amounts = list(range(1, DEATHS + 1))
    assert children.answers(step, amounts) == [{}] * DEATHS
    paid = Counter(pay_app.amounts())
    assert [paid[amount] for amount in amounts] == [int(step in COMMITTED)] * DEATHS
    time.sleep(LEASE + 0.1)
    answers = children.answers("none", amounts)
    assert [each["status"] for each in answers] == [201] * DEATHS
    assert [each["replayed"] for each in answers] == [step in COMMITTED] * DEATHS
    assert [pay_app.amount_of(each["json"]["number"]) for each in answers] == amounts
    assert sorted(pay_app.amounts()) == amounts


def test_a_process_frozen_past_its_lease_is_rolled_back_when_it_wakes(children, pay_app):
    frozen = children.send("frozen", "one", 7)
    assert until(lambda: psutil.Process(frozen[0].pid).status() == psutil.STATUS_STOPPED, 30)
    time.sleep(LEASE + 0.1)
    assert children.answer(children.send("none", "one", 7))["status"] == 201
    os.kill(frozen[0].pid, signal.SIGCONT)
    late = children.answer(frozen)
    assert (late["status"], late["json"]["type"]) == (409, "urn:flask-idempotence:lease-lost")
    assert pay_app.amounts() == [7]
    assert children.answer(children.send("none", "one", 7))["replayed"] is True


@pytest.fixture
def proxy(server):
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def site(proxy, url):
    settings = {"IDEMPOTENCE_LEASE": 2}
    with closing(PaymentApp(make_url(url).set(port=proxy.port), settings=settings)) as site:
        yield site


def test_a_commit_whose_answer_is_lost_is_found_to_be_done(proxy, commit, site, pay_app):
    site.post(key="warm", amount=1)
    proxy.drop_next_replies(1, after=commit)
    answer = site.post(amount=7)
    assert answer.status_code == 201
    assert pay_app.amount_of(answer.json["number"]) == 7
    again = site.post(amount=7)
    assert (again.json, again.headers["Idempotent-Replayed"]) == (answer.json, "true")
    assert (site.runs, pay_app.amounts()) == (2, [1, 7])


@pytest.mark.parametrize("arrives", [True, False])
def test_an_undecidable_commit_is_503_and_leaves_the_claim_alone(
    proxy, commit, site, pay_app, arrives
):
    real = site.session().commit

    def cut_off():
        if arrives:
            proxy.drop_next_replies(1, after=commit)
            event.listen(site.engine, "handle_error", lambda _: proxy.refuse())
        else:
            proxy.refuse()
        real()

    def view(session):
        session().commit = cut_off
        return site.pay(session, 7)

    site._view = view
    assert is_unavailable(site.post())
    (key,) = pay_app.store.scan("")
    assert pay_app.store.peek(key).kind == ("record" if arrives else "claim")
    assert pay_app.amounts() == ([7] if arrives else [])
    proxy.accept()
    site._view = None
    assert until(lambda: pay_app.post().status_code == 201, 10)
    assert len(pay_app.amounts()) == 1


def test_looking_a_commit_up_waits_for_what_is_being_decided(url, pay_app):
    store = pay_app.store
    key, owner = "idempotence:2:key:pay:" + "0" * 32, b"o" * 16
    store.claim(key, owner, b"f" * 16, 30, 0)
    with pay_app.engine.connect() as connection:
        store.complete_in(connection, key, owner, b"f" * 16, b"record", 60)
        found = []
        looking = threading.Thread(target=lambda: found.append(store.look_up(key, owner)))
        looking.start()
        wait_for_waiting(url, 1)
        assert found == []
        connection.commit()
        looking.join()
    assert found == ["record"]
