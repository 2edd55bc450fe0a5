"""Servers that others wrote: one application on Redis under each, in the same words.

Needs the dependency group `wsgi`. A server that is not installed is skipped, or fails where CI is
set.
"""

import threading
import time
import uuid
from functools import partial

import pytest
from helpers.servers.processes import all_at_once, until
from helpers.servers.wsgi import COMMANDS, WsgiServer, uwsgi_needs_threads_enabled

pytestmark = pytest.mark.wsgi

DUPLICATES = 50


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in COMMANDS],
)
def server(request, redis_server):
    with WsgiServer(request.param, redis_server) as running:
        yield running


@pytest.fixture
def name():
    return uuid.uuid4().hex


def test_of_fifty_duplicates_under_each_server_one_takes_effect(server, name):
    send_duplicates(server, "/lock", f"{name}-lock")
    token = {"Idempotence-Token": server.token()}
    send_duplicates(server, "/token-view", f"{name}-token", token)
    send_duplicates(server, "/key", f"{name}-key", {"Idempotency-Key": name})


def send_duplicates(server, path, effect, headers=()):
    answers = all_at_once([lambda: server.post(path, headers, as_=effect)] * DUPLICATES)
    replayed = [each for each in answers if each.headers.get("Idempotent-Replayed") == "true"]
    first = [each for each in answers if each.status == 201 and each not in replayed]
    refused = [each for each in answers if each.status == 409]
    assert server.count(effect) == len(first) == 1
    assert len(refused) + len(replayed) == DUPLICATES - 1
    assert not replayed or path == "/key"
    assert {each.text for each in replayed} <= {first[0].text}


def test_a_view_that_outlives_its_lease_keeps_it_under_each_server(server, name):
    outlive_lease(server, name)


def outlive_lease(server, name):
    arguments = {"as_": name, "sleep": 2.5}
    first = threading.Thread(target=server.post, args=("/lock",), kwargs=arguments)
    first.start()
    assert until(lambda: server.count(name) == 1)
    time.sleep(1.6)  # the first lease has ended: repeats meet a renewed one
    repeats = [lambda: server.post("/lock", as_=name, sleep=2.5).status] * 8
    assert all_at_once(repeats) == [409] * 8
    first.join()
    assert server.count(name) == 1
    assert "lease was lost" not in server.log


def test_a_stream_is_guarded_until_its_end_under_each_server(server, name):
    answers = []

    def stream():
        answers.append(server.post("/stream", as_=name, chunks=20))

    first = threading.Thread(target=stream)
    first.start()
    assert until(lambda: server.count(name) == 1)
    time.sleep(1.5)  # longer than the lease and the interval
    assert server.post("/stream", as_=name, chunks=20).status == 409
    first.join()
    assert (answers[0].status, answers[0].text) == (201, "chunk\n" * 20)
    assert server.count(name) == 1


def test_a_client_that_disconnects_gets_its_answer_later_under_each_server(server, name):
    headers = {"Idempotency-Key": name}
    server.abandon("/key", headers, as_=name, sleep=1)
    found = []

    def is_replayed():
        found[:] = [server.post("/key", headers, as_=name, sleep=1)]
        return found[0].status == 201

    assert until(is_replayed, 10)
    assert found[0].headers["Idempotent-Replayed"] == "true"
    assert server.count(name) == 1


@pytest.mark.parametrize("sent", ["3\r\nabc\r\n", "9\r\nabc", "3\r\nabc\r\nzz\r\n"])
def test_a_chunked_body_that_breaks_off_runs_nothing_but_under_granian(server, name, sent):
    headers = {"Idempotency-Key": name, "Content-Type": "text/plain"}
    server.abandon("/key", headers, sent=sent, as_=name)
    assert until(lambda: server.count(name) == 1, 1) == (server.name == "granian")


def test_a_stream_without_a_reader_leaves_no_claim_under_each_server(server, name):
    server.abandon("/stream", as_=name, chunks=15)
    assert until(lambda: server.post("/stream", as_=name, chunks=15).status == 201, 15)
    assert server.count(name) == 2


@pytest.mark.parametrize("served_by", ["uwsgi", "gunicorn gthread"])
def test_workers_forked_from_a_used_application_share_no_connection_and_keep_leases(
    redis_server, name, served_by
):
    environment = {"USE_AT_IMPORT": name, "GUNICORN_CMD_ARGS": "--preload"}
    boots = redis_server.client(decode_responses=True, db=3).get("boot")
    with WsgiServer(served_by, redis_server, **environment) as server:
        assert server.count("boot") == int(boots or 0) + 1  # before the fork

        def send(number):
            headers = {"Idempotency-Key": f"{name}-{number}"}
            return server.post("/key", headers, as_=name, sleep=0.05).status

        different = [partial(send, number) for number in range(40)]
        assert all_at_once(different) == [201] * 40
        assert server.count(name) == 40
        outlive_lease(server, f"{name}-slow")
        assert "did not answer" not in server.log


@pytest.mark.parametrize("served_by", ["uwsgi without threads", "uwsgi threads", "uwsgi"])
def test_each_worker_of_uwsgi_says_once_where_its_threads_stop_between_requests(
    redis_server, name, served_by
):
    stop = served_by == "uwsgi without threads" and uwsgi_needs_threads_enabled()
    with WsgiServer(served_by, redis_server) as server:
        assert server.post("/later", as_=name).status == 201
        time.sleep(1.5)
        assert server.count(name) == (0 if stop else 1)
        for number in range(6):
            assert server.post("/lock", as_=f"{name}-{number}", sleep=0).status == 201
        lines = server.log.count("Set enable-threads = true")
        assert 1 <= lines <= 2 if stop else lines == 0
