"""The publisher of signals: exact, without a secret, and never in the way of a request."""

import json
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from unittest import mock

import pytest
from helpers.apps import make_app
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from observability.test_metrics import add_views

from flask_idempotence import signals
from flask_idempotence.cli.watch import Reader, print_event
from flask_idempotence.engine import publisher
from flask_idempotence.engine.publisher import Publisher
from flask_idempotence.stores import open_store
from flask_idempotence.testing import record_signals

CHANNEL = "idempotence:watch"
THREAD = "flask-idempotence-watch"

EVENT = [1.0, "claimed", "lock", "order", "ab", "claimed", {}]
GOOD = {"worker": "w", "run": "r", "number": 1, "dropped": 0, "events": [EVENT]}


class Listener:
    """A client of Redis that keeps each message of a channel."""

    def __init__(self, server):
        self._pubsub = server.client().pubsub()
        self._pubsub.subscribe(CHANNEL)
        assert self._pubsub.get_message(timeout=5)["type"] == "subscribe"
        self.messages = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pubsub.close()

    def receive(self):
        while (message := self._pubsub.get_message(timeout=0.05)) is not None:
            self.messages.append(message["data"])
        return self.messages

    def events(self):
        return [event for message in self.receive() for event in json.loads(message)["events"]]

    def counts(self):
        """Return how often each signal came, by mode, endpoint and outcome."""
        return Counter((name, *rest[:2], rest[3]) for _, name, *rest in self.events())

    def dropped(self):
        return json.loads(self.receive()[-1])["dropped"]


@pytest.fixture(autouse=True)
def quick_publishers(monkeypatch):
    """Let the test wait less, and end its threads."""
    monkeypatch.setattr(publisher, "POLL_EVERY", 0.1)
    monkeypatch.setattr(publisher, "PUBLISH_EVERY", 0.05)
    made, connect = [], Publisher.connect

    def connect_and_note(own, app):
        made.append(own)
        connect(own, app)

    monkeypatch.setattr(Publisher, "connect", connect_and_note)
    yield
    for each in made:
        each._shut_down()
        assert not each._is_started or each._ended.is_set()  # an exit would wait


@pytest.fixture
def listener(redis_url, redis_server):
    with Listener(redis_server) as listener:
        yield listener


def watched_app(**settings):
    return add_views(make_app(IDEMPOTENCE_WATCH=True, **settings))


def published_by(server, **more):
    """Return an application on memory whose signals go to a server, and the publisher."""
    app = add_views(make_app())
    own = Publisher(open_store(server.url, {"deadline": 0.4}), "idempotence")
    own.connect(app)
    return app.test_client(), own


def test_every_signal_is_published_once_with_its_outcome(redis_url, listener):
    app = watched_app(IDEMPOTENCE_STORAGE_URI=redis_url)
    client = app.test_client()
    with record_signals(app) as signals:
        for outcome in ("well", "well", "fail", "lose"):
            client.post(f"/orders/{outcome}")
        for key in ("1", "1", None):
            client.post("/payments", headers={"Idempotency-Key": key} if key else {})
        token = client.get("/token").get_json()["token"]
        for _ in range(2):
            client.post("/checkout", headers={"Idempotence-Token": token})
    sent = Counter(
        (name, facts["mode"], facts["endpoint"], getattr(facts.get("error"), "slug", name))
        for name, facts in signals.events
    )
    assert until(lambda: len(listener.events()) == 16)
    time.sleep(0.3)
    assert listener.counts() == sent
    facts = {tuple(sorted(event[6])) for event in listener.events() if event[1] == "claimed"}
    assert facts == {("lease", "waited")}
    assert listener.dropped() == 0


def test_what_clients_send_is_in_no_message(redis_url, redis_server):
    everything = redis_server.client().pubsub()
    everything.psubscribe("*")
    with Listener(redis_server) as listener:
        client = watched_app(IDEMPOTENCE_STORAGE_URI=redis_url).test_client()
        client.post("/orders/well?mark=secretmark", environ_base={"REMOTE_ADDR": "192.0.2.77"})
        client.post(
            "/payments",
            data={"a": "secretmark"},
            headers={"Idempotency-Key": "secretmark", "Authorization": "Bearer secretmark"},
        )
        client.get("/token?purpose=secretmark")
        client.post("/checkout", headers={"Idempotence-Token": "secretmark"})
        assert until(lambda: len(listener.events()) == 6)
        sent = b"".join(listener.receive())
    channels = set()
    while (message := everything.get_message(timeout=0.2)) is not None:
        if message["type"] == "pmessage":
            channels.add(message["channel"])
    everything.close()
    assert channels == {CHANNEL.encode()}
    assert b"secretmark" not in sent
    assert b"192.0.2.77" not in sent
    for key in redis_server.client().scan_iter():
        assert key not in sent
        digest = key.rpartition(b":")[2]
        assert digest not in sent
        assert digest[:12] in sent


@pytest.mark.parametrize("store", ["redis", "memory"])
def test_off_means_no_receiver_and_no_thread(redis_url, listener, store):
    """As do stores that carry no messages."""
    uri = redis_url if store == "redis" else "memory://"
    app = add_views(make_app(IDEMPOTENCE_STORAGE_URI=uri, IDEMPOTENCE_WATCH=store == "memory"))
    assert app.test_client().post("/orders/well").status_code == 200
    assert not any(signal.has_receivers_for(app) for signal in signals.ALL_SIGNALS)
    assert listener.receive() == []


def test_nothing_is_published_or_queued_while_nobody_listens(fresh_redis):
    client, own = published_by(fresh_redis)
    client.post("/orders/well")
    assert until(lambda: not own._is_queueing)
    for number in range(20):
        client.post("/payments", headers={"Idempotency-Key": str(number)})
    assert not own._events
    assert "cmdstat_publish" not in fresh_redis.client().info("commandstats")
    with Listener(fresh_redis) as listener:
        assert until(lambda: own._is_heard)
        assert listener.receive() == []
        client.post("/payments", headers={"Idempotency-Key": "last"})
        assert until(lambda: len(listener.events()) == 2)
        assert {event[1] for event in listener.events()} == {"claimed", "completed"}


def test_a_full_queue_drops_and_counts_and_no_request_waits(fresh_redis, monkeypatch):
    monkeypatch.setattr(publisher, "MOST_EVENTS", 10)
    client, _ = published_by(fresh_redis)
    with Listener(fresh_redis) as listener:
        client.get("/token")
        assert until(lambda: len(listener.events()) == 1)
        fresh_redis.pause()
        # All of them are answered while the server is frozen.
        for number in range(20):
            headers = {"Idempotency-Key": str(number)}
            assert client.post("/payments", headers=headers).status_code == 200
        # One event may be on its way already.
        fresh_redis.resume()
        assert until(lambda: listener.receive() and listener.dropped() > 0)
        time.sleep(0.3)
        assert len(listener.events()) - 1 + listener.dropped() == 40
        assert 10 <= len(listener.events()) - 1 <= 20


def test_events_of_an_outage_arrive_once_the_command_is_back(fresh_redis, monkeypatch):
    # It would publish at once when the server is back, and ask for listeners later.
    monkeypatch.setattr(publisher, "POLL_EVERY", 1.0)
    monkeypatch.setattr(publisher, "PUBLISH_EVERY", 0.01)
    client, own = published_by(fresh_redis)
    with Listener(fresh_redis) as listener:
        client.get("/token")
        assert until(lambda: len(listener.events()) == 1)
        fresh_redis.stop()
        for number in range(3):
            client.post("/payments", headers={"Idempotency-Key": str(number)})
        assert until(lambda: own._has_warned)
    fresh_redis.start()
    assert until(lambda: not own._has_warned)  # it has found the server before the command does
    with Listener(fresh_redis) as listener:
        assert until(lambda: len(listener.events()) == 6)


def test_a_message_whose_answer_was_lost_counts_once(fresh_redis):
    with Proxy(fresh_redis) as proxy, Listener(fresh_redis) as listener:
        app = add_views(make_app())
        Publisher(open_store(proxy.url, {}), "idempotence").connect(app)
        client = app.test_client()
        client.get("/token")
        assert until(lambda: len(listener.events()) == 1)
        proxy.drop_next_replies(1, after=b"PUBLISH")
        client.post("/orders/well")
        assert until(lambda: proxy.drops_left == 0 and len(listener.events()) >= 3)
        time.sleep(0.5)
        reader, messages = Reader(), listener.receive()
        numbers = [json.loads(message)["number"] for message in messages]
        assert len(numbers) == len(set(numbers)) + 1  # one of them came twice
        assert sum(len(reader.read(message)) for message in messages) == 3


def test_a_server_that_forbids_publishing_is_reported_once_and_guards_work(fresh_redis, caplog):
    fresh_redis.client().execute_command(
        *["ACL", "SETUSER", "shop", "on", ">pw", "~idempotence:*", "resetchannels", "+@all"]
    )
    url = fresh_redis.url.replace("redis://", "redis://shop:pw@")
    with caplog.at_level(logging.WARNING), Listener(fresh_redis) as listener:
        client = watched_app(IDEMPOTENCE_STORAGE_URI=url).test_client()
        assert client.post("/orders/well").status_code == 200
        assert client.post("/orders/well").status_code == 409
        assert until(lambda: caplog.records)
        time.sleep(0.5)
        assert listener.receive() == []
    [record] = caplog.records
    assert "cannot be published" in record.getMessage()


def test_messages_that_do_not_come_are_counted_by_the_numbers_of_the_others():
    reader = Reader()
    for run, number in (("a", 7), ("b", 1), ("a", 8), ("a", 8), ("b", 4), ("a", 10), ("b", 3)):
        reader.read(json.dumps(GOOD | {"run": run, "number": number}).encode())
    assert reader.missed == 3


NO_MESSAGES = [
    *(b"", b"\xff", b"[]", b"7", b'{"worker": "w"}', b"[" * 100_000),
    *(
        json.dumps(GOOD | changes).encode()
        for changes in (
            {"events": [EVENT[:3]]},
            {"events": [["now", *EVENT[1:]]]},
            {"events": [[1e300, *EVENT[1:]]]},
            {"events": [[*EVENT[:6], 7]]},
            {"run": [], "number": "x"},
        )
    ),
]


@pytest.mark.parametrize("message", NO_MESSAGES, ids=lambda message: str(message[:20]))
def test_messages_of_another_origin_are_passed_over(message):
    reader = Reader()
    assert (reader.read(message), reader.runs) == ([], {})
    good = json.dumps(GOOD).encode()
    assert [len(reader.read(good)) for _ in range(2)] == [1, 0]
    assert (reader.runs, reader.missed) == ({"r": (1, 0)}, 0)


NAN, ENDLESS, HUGE = float("nan"), float("inf"), 10**400
ODD_EVENTS = [
    *(5, {"a": 1}, ["abcdefg"], [["one"]], None),
    *([[*EVENT[:n], ["\x1b[1m"], *EVENT[n + 1 :]]] for n in range(1, 6)),
    *([[time, *EVENT[1:]]] for time in (NAN, 253402300799, -62135596800)),
    *([[*EVENT[:6], {"lease": lease}]] for lease in (HUGE, NAN, ENDLESS, [1], None)),
]
ODD_VALUES = {
    "worker": [None, ["w"]],
    "run": [None, {}],
    "number": [None, "1", 1.5, ENDLESS, HUGE],
    "dropped": [None, "9" * 4_000, HUGE],
    "events": ODD_EVENTS,
}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima"])
@pytest.mark.parametrize("name", ODD_VALUES)
def test_values_of_another_origin_end_no_command(monkeypatch, name, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    for value in ODD_VALUES[name]:
        # The first or the last second of the calendar, west or east of here.
        for event in Reader().read(json.dumps(GOOD | {name: value}).encode()):
            assert event["time"].year in {1, 1969, 1970, 9999}
            print_event(event, as_json=False)
            print_event(event, as_json=True)
    monkeypatch.undo()
    time.tzset()


def test_facts_of_another_origin_replace_no_field(capsys):
    facts = {"lease": 60, "waited": "\ud800\x1b[2J", "time": 1, "worker": "me"}
    [event] = Reader().read(json.dumps(GOOD | {"events": [[*EVENT[:6], facts]]}).encode())
    assert (event["lease"], event["waited"]) == (60, "\ud800\x1b[2J")
    print_event(event, as_json=True)
    told = capsys.readouterr().out
    assert told.isascii()
    assert json.loads(told) == event | {"time": "1970-01-01T00:00:01.000Z", "worker": "w"}
    print_event(event, as_json=False)
    assert capsys.readouterr().out.endswith("\tlease=60s waited=\\ud800\\x1b[2J\n")


PROGRAM = """
import os, sys, warnings
from flask import Flask
from flask_idempotence import Idempotence
warnings.filterwarnings("ignore", "This process", DeprecationWarning)
app = Flask("job")
app.config.update(SECRET_KEY="a secret", IDEMPOTENCE_STORAGE_URI=sys.argv[1])
app.config["IDEMPOTENCE_WATCH"] = True
idempotence = Idempotence(app)
def work(id):
    with app.app_context(), idempotence.once("job", id):
        pass
work("parent")
if "fork" in sys.argv:
    import time
    time.sleep(0.5)
    pid = os.fork()
    if pid == 0:
        work("child")
        sys.exit()
    os.waitpid(pid, 0)
    work("parent again")
"""


FREEZE = """
import time
time.sleep(0.5)
os.kill(int(sys.argv[2]), 19)
print(time.monotonic())
"""


@pytest.mark.lifecycle
@pytest.mark.parametrize(("plan", "runs"), [([], 1), (["fork"], 3)])
def test_a_process_that_ends_has_published_its_events_and_so_has_its_child(
    redis_url, listener, plan, runs
):
    command = [sys.executable, "-c", PROGRAM, redis_url, *plan]
    subprocess.run(command, check=True, timeout=60)
    assert listener.counts() == {
        ("claimed", "once", "job", "claimed"): runs,
        ("completed", "once", "job", "completed"): runs,
    }
    sources = {
        (content["worker"], content["run"]): len(content["events"])
        for content in map(json.loads, listener.receive())
    }
    assert len(sources) == len({worker for worker, _ in sources}) == len(plan) + 1


@pytest.mark.lifecycle
def test_an_exit_waits_a_second_for_a_frozen_server_not_for_its_deadline(fresh_redis):
    patient = 'app.config["IDEMPOTENCE_STORAGE_OPTIONS"] = {"deadline": 120}\n'
    program = PROGRAM.replace("idempotence = ", f"{patient}idempotence = ") + FREEZE
    pid = str(fresh_redis._process.pid)
    with Listener(fresh_redis):
        done = subprocess.run(
            [sys.executable, "-c", program, fresh_redis.url, pid],
            check=True,
            capture_output=True,
            timeout=60,
        )
        ended = time.monotonic()
        fresh_redis._paused = True
        fresh_redis.resume()
    assert ended - float(done.stdout) < 30


def test_the_first_signal_for_which_a_thread_can_be_had_starts_it(redis_url, monkeypatch):
    watched_app(IDEMPOTENCE_STORAGE_URI=redis_url)
    before = [thread for thread in threading.enumerate() if thread.name == THREAD]
    client = watched_app(IDEMPOTENCE_STORAGE_URI=redis_url).test_client()
    assert [t for t in threading.enumerate() if t.name == THREAD] == before
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
        client.get("/token")
    assert [t for t in threading.enumerate() if t.name == THREAD] == before
    client.get("/token")
    assert len([t for t in threading.enumerate() if t.name == THREAD]) == len(before) + 1
