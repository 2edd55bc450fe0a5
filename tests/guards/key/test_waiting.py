"""A repeat that waits for the first request: each look is a claim, and every outcome answers."""

import threading
import time
from datetime import timedelta
from itertools import accumulate

import pytest
from flask import Response
from helpers.apps import KeyedApp, killed, verdict
from helpers.servers.processes import all_at_once

from flask_idempotence import MemoryStore, claimed, rejected, replayed


class Queue:
    """A keyed app whose first request runs until a repeat has slept so many times."""

    def __init__(self, *, wait, looks, first=lambda: "done", **options):
        self.keyed = KeyedApp(self._view, wait=wait, **options)
        self.keyed.engine.sleep = self._sleep
        self.first_view = first
        self.looks = looks
        self.sleeps = []
        self.is_running, self.may_end = threading.Event(), threading.Event()
        self.first_answer = []

    def _view(self):
        if self.keyed.runs > 1:
            return "the repeat ran"
        self.is_running.set()
        assert self.may_end.wait(10)
        return self.first_view()

    def _sleep(self, seconds):
        self.sleeps.append(seconds)
        self.keyed.clock.advance(seconds)
        self.keyed.engine.keeper.tick()
        if len(self.sleeps) == self.looks:
            self.end_first()

    def end_first(self):
        self.may_end.set()
        self.thread.join(10)

    def _send_first(self):
        try:
            self.first_answer.append(self.keyed.send(json=[1]))
        except BaseException as error:
            self.first_answer.append(error)

    def repeat(self, *, body=1):
        """Begin the first request and return the answer of one that comes while it runs."""
        self.thread = threading.Thread(target=self._send_first)
        self.thread.start()
        assert self.is_running.wait(10)
        try:
            return self.keyed.send(json=[body])
        finally:
            self.end_first()


def test_a_repeat_waits_and_gets_the_first_response():
    queue = Queue(wait=60, looks=5)
    answer = queue.repeat()
    assert (verdict(answer), answer.text) == ("replay of 200", "done")
    assert (len(queue.sleeps), queue.keyed.runs) == (5, 1)


@pytest.mark.parametrize("first", [lambda: ("no", 503), lambda: ("no", 409)])
def test_a_repeat_becomes_the_first_where_that_one_was_released(first):
    queue = Queue(wait=60, looks=3, first=first)
    answer = queue.repeat()
    assert (verdict(answer), answer.text) == (200, "the repeat ran")
    assert (len(queue.sleeps), queue.keyed.runs) == (3, 2)
    assert queue.first_answer[0].text == "no"
    assert queue.keyed.send(json=[1]).text == "the repeat ran"
    assert queue.keyed.runs == 2


def test_a_repeat_becomes_the_first_where_that_one_died():
    queue = Queue(wait=60, looks=1, first=killed)
    answer = queue.repeat()
    assert (verdict(answer), answer.text) == (200, "the repeat ran")
    assert 30 <= sum(queue.sleeps) <= 31.1
    assert isinstance(queue.first_answer[0], SystemExit)


def test_a_repeat_is_told_that_the_first_one_died_where_nothing_runs_twice():
    queue = Queue(wait=60, looks=1, first=killed, guarantee="at-most-once")
    assert verdict(queue.repeat()) == "outcome-unknown"
    assert (sum(queue.sleeps) < 31.1, queue.keyed.runs) == (True, 1)


def test_a_repeat_is_rejected_once_the_first_one_is_done_where_repeats_are():
    queue = Queue(wait=60, looks=2, on_repeat="reject")
    assert (verdict(queue.repeat()), len(queue.sleeps)) == ("key-repeated", 2)


def test_a_repeat_is_told_at_once_that_the_response_was_not_kept():
    queue = Queue(wait=60, looks=2, first=lambda: Response(iter("streamed")))
    assert (verdict(queue.repeat()), len(queue.sleeps)) == ("response-not-stored", 2)


def test_another_request_with_the_key_is_refused_without_waiting():
    queue = Queue(wait=60, looks=1)
    assert (verdict(queue.repeat(body=2)), queue.sleeps) == ("key-reused", [])


@pytest.mark.parametrize("wait", [0.05, 4.76, 29])
def test_a_repeat_gives_up_after_the_time_that_it_was_given(wait):
    queue = Queue(wait=wait, looks=1000)
    answer = queue.repeat()
    assert (answer.status_code, verdict(answer)) == (409, "key-in-progress")
    assert answer.headers["Retry-After"] == "1"
    assert sum(queue.sleeps) == pytest.approx(wait)
    assert queue.keyed.runs == 1


@pytest.mark.parametrize(
    ("signal", "first", "looks"),
    [
        (replayed, lambda: "done", 5),
        (claimed, lambda: ("no", 503), 5),
        (rejected, lambda: "done", 1000),
    ],
)
def test_a_signal_says_how_long_it_has_waited(signal, first, looks):
    queue = Queue(wait=3, looks=looks, first=first)
    waited = []
    with signal.connected_to(lambda app, **about: waited.append(about["waited"])):
        queue.repeat()
    assert waited[-1] == pytest.approx(sum(queue.sleeps))
    assert waited[-1] >= 0.25


@pytest.mark.parametrize("wait", [0.05, 0.06, 4.76, 29])
def test_pauses_grow_and_are_never_shorter_than_50_milliseconds(wait):
    queue = Queue(wait=wait, looks=1000)
    queue.repeat()
    assert min(queue.sleeps) >= 0.05 - 1e-6
    assert max(queue.sleeps) <= 1.1
    *growing, _the_rest = queue.sleeps
    longest = accumulate([0.05] + [1.5] * len(growing), lambda pause, by: min(by * pause, 1))
    assert all(most / 2 <= pause <= most for pause, most in zip(growing, longest, strict=False))


def test_two_that_wait_together_do_not_go_on_asking_together():
    queues = [Queue(wait=29, looks=1000) for _ in range(2)]
    for queue in queues:
        queue.repeat()
    assert len({round(sum(queue.sleeps[:9]), 6) for queue in queues}) == 2


def test_each_look_is_one_claim():
    class Counting(MemoryStore):
        claims = 0

        def claim(self, *arguments):
            self.claims += 1
            return super().claim(*arguments)

    queue = Queue(wait=5, looks=1000)
    store = queue.keyed.engine.store = Counting(clock=queue.keyed.clock)
    queue.repeat()
    assert store.claims == 2 + len(queue.sleeps)


@pytest.mark.parametrize(
    ("options", "setting", "slept"),
    [({}, 2, 2), ({}, 0, 0), ({"wait": 0}, 2, 0), ({"wait": timedelta(seconds=1)}, 2, 1)],
)
def test_the_setting_is_the_default_and_the_route_wins(options, setting, slept):
    settings = {"IDEMPOTENCE_KEY_WAIT": setting}
    keyed = KeyedApp(lambda: keyed.send().get_data(), settings=settings, **options)
    began = keyed.clock()
    assert b"key-in-progress" in keyed.send().data
    assert keyed.clock() - began == pytest.approx(slept)


class Crowd:
    """Sixteen equal requests at once, of which one runs until all others have been looked at."""

    SIZE = 16

    def __init__(self, uri, **options):
        self.looked_at = threading.Semaphore(0)
        self.keyed = KeyedApp(self._view, uri=uri, **options)
        self.keyed.engine.sleep = lambda seconds: self.looked_at.release() or time.sleep(0.01)

    def _view(self):
        for _ in range(self.SIZE - 1):
            assert self.looked_at.acquire(timeout=20)
        return {"run": self.keyed.runs}

    def _send(self):
        answer = self.keyed.send()
        if answer.status_code == 409:
            self.looked_at.release()
        return answer

    def send(self):
        return all_at_once([self._send] * self.SIZE)


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_of_many_at_once_one_runs_and_all_who_wait_get_its_response(store, request):
    uri = None if store == "memory" else request.getfixturevalue("redis_url")
    crowd = Crowd(uri, wait=10)
    answers = crowd.send()
    found = sorted(map(str, map(verdict, answers)))
    assert found == ["200", *["replay of 200"] * 15]
    assert {answer.data for answer in answers} == {b'{"run":1}\n'}
    assert crowd.keyed.runs == 1


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_of_many_at_once_one_runs_and_those_who_do_not_wait_are_told(store, request):
    uri = None if store == "memory" else request.getfixturevalue("redis_url")
    crowd = Crowd(uri)
    answers = crowd.send()
    found = sorted(map(str, map(verdict, answers)))
    assert found == ["200", *["key-in-progress"] * 15]
    assert crowd.keyed.runs == 1
