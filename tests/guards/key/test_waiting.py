"""A repeat that waits for the first request: each look is a claim, and every outcome answers."""

import contextlib
import threading
import time
from datetime import timedelta
from itertools import accumulate

import pytest
from flask import Response
from helpers.apps import CountingStore, KeyedApp, killed, verdict
from helpers.servers.processes import all_at_once

from flask_idempotence import claimed, rejected, replayed


class Queue:
    """A keyed app whose first request runs until a repeat has slept so many times."""

    def __init__(self, *, wait, looks, first=lambda: "done", **options):
        self.keyed = KeyedApp(self._view, wait=wait, **options)
        self.keyed.engine.sleep = self._sleep
        self.first_view = first
        self.looks = looks
        self.sleeps = []
        self.is_running, self.may_end = threading.Event(), threading.Event()

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
        with contextlib.suppress(SystemExit):
            self.keyed.send(json=[1])

    def repeat(self, *, body=1):
        """Begin the first request and return the answer of one that comes while it runs."""
        self.thread = threading.Thread(target=self._send_first)
        self.thread.start()
        assert self.is_running.wait(10)
        try:
            return self.keyed.send(json=[body])
        finally:
            self.end_first()


STREAMED = Response(iter("streamed"))
ENDS = {
    "a response": ({}, lambda: "done", 5, "replay of 200"),
    "a release": ({}, lambda: ("no", 503), 3, 200),
    "a death": ({}, killed, 1, 200),
    "a death, at-most-once": ({"guarantee": "at-most-once"}, killed, 1, "outcome-unknown"),
    "a response, not to be repeated": ({"on_repeat": "reject"}, lambda: "done", 2, "key-repeated"),
    "a stream": ({}, lambda: STREAMED, 2, "response-not-stored"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_repeat_waits_for_what_comes_of_the_first(end):
    options, first, looks, told = ENDS[end]
    queue = Queue(wait=60, looks=looks, first=first, **options)
    answer = queue.repeat()
    assert verdict(answer) == told
    assert queue.keyed.runs == (2 if told == 200 else 1)
    if first is killed:
        assert 30 <= sum(queue.sleeps) <= 31.1
    else:
        assert len(queue.sleeps) == looks
    if told == 200:  # what the repeat did is what counts from now on
        assert answer.text == queue.keyed.send(json=[1]).text == "the repeat ran"
        assert queue.keyed.runs == 2


def test_another_request_with_the_key_is_refused_without_waiting():
    queue = Queue(wait=60, looks=1)
    assert (verdict(queue.repeat(body=2)), queue.sleeps) == ("key-reused", [])


@pytest.mark.parametrize("wait", [0.05, 0.06, 4.76, 29])
def test_a_repeat_gives_up_after_the_time_that_it_was_given(wait):
    queue = Queue(wait=wait, looks=1000)
    answer = queue.repeat()
    assert (answer.status_code, verdict(answer)) == (409, "key-in-progress")
    assert answer.headers["Retry-After"] == "1"
    assert sum(queue.sleeps) == pytest.approx(wait)
    assert queue.keyed.runs == 1
    # Its pauses grow, and none is shorter than 50 milliseconds.
    assert min(queue.sleeps) >= 0.05 - 1e-6
    *growing, _the_rest = queue.sleeps
    longest = accumulate([0.05] + [1.5] * len(growing), lambda pause, by: min(by * pause, 1))
    assert all(most / 2 <= pause <= most for pause, most in zip(growing, longest, strict=False))


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


def test_two_that_wait_together_do_not_go_on_asking_together():
    queues = [Queue(wait=29, looks=1000) for _ in range(2)]
    for queue in queues:
        queue.repeat()
    assert len({round(sum(queue.sleeps[:9]), 6) for queue in queues}) == 2


def test_each_look_is_one_claim():
    queue = Queue(wait=5, looks=1000)
    store = queue.keyed.engine.store = CountingStore(clock=queue.keyed.clock)
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

    def __init__(self, uri, **options):
        self.looked_at = threading.Semaphore(0)
        self.keyed = KeyedApp(self._view, uri=uri, **options)
        self.keyed.engine.sleep = lambda seconds: self.looked_at.release() or time.sleep(0.01)

    def _view(self):
        for _ in range(15):
            assert self.looked_at.acquire(timeout=20)
        return {"run": self.keyed.runs}

    def send(self):
        answer = self.keyed.send()
        if answer.status_code == 409:
            self.looked_at.release()
        return verdict(answer)


@pytest.mark.parametrize(("wait", "told"), [(10, "replay of 200"), (0, "key-in-progress")])
@pytest.mark.parametrize("store", ["memory", "redis"])
def test_of_many_at_once_one_runs_and_those_who_wait_get_its_response(store, wait, told, request):
    uri = None if store == "memory" else request.getfixturevalue("redis_url")
    crowd = Crowd(uri, wait=wait)
    found = all_at_once([crowd.send] * 16)
    assert sorted(map(str, found)) == ["200", *[told] * 15]
    assert crowd.keyed.runs == 1
