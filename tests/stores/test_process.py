"""Forks, threads and uWSGI, as stores and keepers see them."""

import os
import select
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from flask_idempotence.stores import process


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        (b"2.0.26", {}, True),
        (b"1.9.30", {}, True),
        (b"2.0.27", {}, False),
        (b"2.1-dev", {}, False),
        (b"2.0.26", {"enable-threads": True}, False),
        (b"2.0.26", {"enable-threads": b"true"}, False),
        *((b"2.0.26", {"enable-threads": no}, True) for no in (b"false", b"off", b"no", b"0")),
        (b"2.0.26", {"enable-threads": False}, True),
        (b"2.0.26", {"threads": b"16"}, False),
        (b"2.0.26", {"enable-threads": b"false", "threads": b"16"}, False),
        (b"2.0.26", {"master": True, "processes": b"2"}, True),
        (b"2.0.26", None, True),
    ],
)
def test_threads_stand_still_under_an_old_uwsgi_without_threads(
    monkeypatch, version, options, expected
):
    uwsgi = SimpleNamespace(version=version)
    if options is not None:
        uwsgi.opt = options
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    assert process.threads_stand_still() is expected


class Pool:
    def __init__(self, its):
        self.known = []
        self._process = its

    def begin(self):
        self.known.append(self._process.id)


def test_a_fork_without_hooks_is_noticed_once(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")  # the object of this test is soon gone
    here = process._Process()
    pool, closed = Pool(here), Pool(here)
    here.add(pool.begin)
    here.add(closed.begin)
    del closed  # a dead object's method must not be called
    here.notice_fork()
    assert pool.known == []
    monkeypatch.setattr(os, "getpid", lambda: -1)
    before = here.id
    here.notice_fork()
    here.notice_fork()
    assert pool.known == [before]  # the new one is noted last: other threads wait until then
    assert here.id == -1
    assert len(here._methods) == 1


def test_a_daemon_runs_under_its_name_or_is_refused(monkeypatch):
    seen, ran = [], threading.Event()

    def run():
        seen.append((threading.current_thread().name, threading.current_thread().daemon))
        ran.set()

    assert process.start_daemon(run, "a-name") is True
    assert ran.wait(5)
    assert seen == [("a-name", True)]

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert process.start_daemon(run, "another") is False


@pytest.mark.parametrize("has_poll", [True, False])
def test_a_socket_has_input_when_the_other_end_has_closed_it(monkeypatch, has_poll):
    if not has_poll:  # as on Windows, and under gevent
        monkeypatch.delattr(select, "poll")
    ours, theirs = socket.socketpair()
    with ours:
        tell = process.has_input(ours.fileno())
        with theirs:
            assert not tell()
        assert tell()
