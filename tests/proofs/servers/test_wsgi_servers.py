"""Servers that others wrote: one application on Redis under each, in the same words.

Needs the dependency group `wsgi`. A server that is not installed is skipped, or fails where CI is
set.
"""

import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from helpers.servers.processes import HOST, all_at_once, until
from helpers.servers.wsgi import COMMANDS, WsgiServer, uwsgi_needs_threads_enabled

pytestmark = pytest.mark.wsgi

DUPLICATES = 50

RUN_TO_THE_END = {name for name in COMMANDS if name.startswith(("uvicorn", "hypercorn"))}
"""They run a stream to its end if its client disconnects."""


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


def answer_when(is_it, ask):
    found = []

    def ask_again():
        found[:] = [ask()]
        return is_it(found[0])

    assert until(ask_again, 15), found
    return found[0]


def test_of_fifty_duplicates_under_each_server_one_takes_effect(server, name):
    send_duplicates(server, "/lock", f"{name}-lock")
    token = {"Idempotence-Token": server.token()}
    send_duplicates(server, "/token-view", f"{name}-token", token)
    send_duplicates(server, "/key", f"{name}-key", {"Idempotency-Key": name})


def send_duplicates(server, path, effect, headers=()):
    answers = all_at_once([lambda: server.post(path, headers, as_=effect)] * DUPLICATES)
    replayed = [each for each in answers if each.replayed]
    first = [each for each in answers if each.status == 201 and not each.replayed]
    refused = [each for each in answers if each.status == 409]
    assert server.count(effect) == len(first) == 1
    assert len(refused) + len(replayed) == DUPLICATES - 1
    assert not replayed or path == "/key"
    assert {each.text for each in replayed} <= {first[0].text}


def test_a_view_that_outlives_its_lease_keeps_it_under_each_server(server, name):
    outlive_lease(server, name)


def outlive_lease(server, name):
    arguments = {"as_": name, "sleep": 2.5}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.post, "/lock", **arguments)
        assert until(lambda: server.count(name) == 1)
        time.sleep(1.6)  # the first lease has ended: repeats meet a renewed one
        repeats = all_at_once([lambda: server.post("/lock", **arguments).status] * 8)
        assert repeats == [409] * 8
    assert server.count(name) == 1
    assert "lease was lost" not in server.log


def test_a_stream_is_guarded_until_its_end_under_each_server(server, name):
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, "/stream", as_=name, chunks=20)
        assert until(lambda: server.count(name) == 1)
        time.sleep(1.5)  # longer than the lease and the interval
        assert server.post("/stream", as_=name, chunks=20).status == 409
    assert (first.result().status, first.result().text) == (201, "chunk\n" * 20)
    assert server.count(name) == 1


def test_a_client_that_disconnects_gets_its_answer_later_under_each_server(server, name):
    headers = {"Idempotency-Key": name}
    server.abandon("/key", headers, as_=name, sleep=1)
    answer = answer_when(
        lambda answer: answer.status == 201,
        lambda: server.post("/key", headers, as_=name, sleep=1),
    )
    assert answer.replayed
    assert server.count(name) == 1


@pytest.mark.parametrize("sent", ["3\r\nabc\r\n", "9\r\nabc", "3\r\nabc\r\nzz\r\n"])
def test_a_chunked_body_that_breaks_off_runs_nothing_but_under_granian(server, name, sent):
    headers = {"Idempotency-Key": name, "Content-Type": "text/plain"}
    server.abandon("/key", headers, sent=sent, as_=name)
    assert until(lambda: server.count(name) == 1, 1) == (server.name == "granian")


DROP_UNDERSCORES = ("gunicorn", "waitress")
READ_CHUNKS = ("gunicorn", "waitress", "cheroot", "granian")


def test_a_header_with_an_underscore_is_dropped_or_counts_as_the_page_says(server, name):
    if server.name == "mod_wsgi":
        pytest.skip("the page does not say it of mod_wsgi")
    answers = [server.post("/lock", {"X_Api_Key": key}, as_=name, sleep=0) for key in "ab"]
    dropped = server.name.startswith(DROP_UNDERSCORES)
    assert [answer.status for answer in answers] == [201, 409 if dropped else 201]


def test_a_body_in_chunks_is_read_or_refused_as_the_page_says(server, name):
    if server.name == "mod_wsgi":
        pytest.skip("the page does not say it of mod_wsgi")
    statuses = []
    for body in ("one", "one", "two"):
        sent = f"POST /key?as={name}&sleep=0 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
        sent += f"Idempotency-Key: {name}\r\nContent-Type: text/plain\r\n"
        sent += f"Transfer-Encoding: chunked\r\n\r\n3\r\n{body}\r\n0\r\n\r\n"
        with socket.create_connection((HOST, server.port), timeout=30) as connection:
            connection.sendall(sent.encode())
            statuses.append(int(connection.makefile("rb").readline().split()[1]))
    reads = server.name.startswith(READ_CHUNKS)
    assert statuses == ([201, 201, 422] if reads else [411] * 3)


@pytest.mark.parametrize("guard", ["key", "token", "lock"])
def test_half_a_body_that_no_guard_reads_leaves_nothing_under_each_server(server, name, guard):
    path, body = f"/upload/{guard}", b"hello, server"
    headers = {"Idempotency-Key": name, "Idempotence-Token": server.token()}
    server.abandon(path, headers, sent="hello", length=len(body), as_=name)
    if server.name.startswith(("gunicorn", "waitress", "cheroot")):
        for sent in ("5\r\nhello\r\n", "9\r\nhello", "5\r\nhello\r\nzz\r\n"):
            server.abandon(path, headers, sent=sent, as_=name)

    answer_when(
        lambda answer: answer.text.strip() == '{"size":13}',
        lambda: server.post(path, headers, body=body, as_=name),
    )
    server.post(path, headers, body=body, as_=name)
    assert server.count(name) == 1


def test_a_stream_without_a_reader_leaves_no_claim_under_each_server(server, name):
    server.abandon("/stream", as_=name, chunks=15)
    answer_when(
        lambda answer: answer.status == 201, lambda: server.post("/stream", as_=name, chunks=15)
    )
    assert server.count(name) == 2


def test_a_stream_that_its_client_cut_off_is_not_done_under_each_server(server, name):
    headers = {"Idempotency-Key": name}
    server.abandon("/rows", headers, as_=name, rows=30)
    answer = answer_when(
        lambda answer: answer.slug != "key-in-progress",
        lambda: server.post("/rows", headers, as_=name, rows=30),
    )
    rows = server.count(name)
    ended = server.name in RUN_TO_THE_END
    assert answer.slug == ("response-not-stored" if ended else "outcome-unknown")
    assert (rows == 30) == ended
    assert server.post("/rows", headers, as_=name, rows=30).status == 409
    assert server.count(name) == rows


@pytest.mark.parametrize("served_by", ["uwsgi", "gunicorn gthread", "gunicorn gevent"])
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
