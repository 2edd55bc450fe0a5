"""`flask idempotence watch` in real processes: workers, a pipe, a terminal and a failing Redis."""

import itertools
import json
import re
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from uuid import uuid4

import pytest
import redis
from helpers.apps import make_app
from helpers.cli_shell import APP, Shell, invoke
from helpers.servers.faults import Proxy
from helpers.servers.processes import Gunicorn, all_at_once, run_to_end, until

from flask_idempotence.cli.watch import SILENCE

pytestmark = pytest.mark.servers

SHOP = f"""{APP}
app.add_url_rule("/probes", "probe", no_repeat_submit(60)(pid), methods=["POST"])
"""
URI, SWITCH = "FLASK_IDEMPOTENCE_STORAGE_URI", "FLASK_IDEMPOTENCE_WATCH"


class Watch:
    """The command as a process, whose lines arrive while it runs."""

    def __init__(self, shell, *arguments):
        self._files = [shell.directory / f"{uuid4().hex}.{name}" for name in ("out", "err")]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            self._process = subprocess.Popen(
                shell.command(["watch", *arguments]),
                cwd=shell.directory,
                env=shell.environment,
                stdout=out,
                stderr=err,
            )
        self.signal = self._process.send_signal

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    @property
    def out(self):
        return [line for line in self._files[0].read_text().splitlines(True) if line[-1] == "\n"]

    @property
    def err(self):
        return self._files[1].read_text().splitlines()

    def wait_for(self, text, seconds=30):
        assert until(lambda: self.err and text in self.err[-1], seconds), self.err

    def interrupt(self):
        self.signal(signal.SIGINT)
        return self._process.wait(timeout=30)

    @property
    def events(self):
        return [each for each in map(json.loads, self.out) if each["endpoint"] != "probe"]

    def hear_two_workers(self, server):
        """Send probes until signals of two workers have arrived; return both."""

        def workers():
            post(server, f"/probes?n={time.monotonic_ns()}")
            return {json.loads(line)["worker"].rpartition("/")[2] for line in self.out}

        assert until(lambda: len(workers()) == 2, 30), self.err
        return set(map(int, workers()))


def post(server, path, key=None):
    answer = server.ask(path, "POST", {"Idempotency-Key": key} if key else {})
    return answer.status, answer.json["pid"] if answer.status == 200 else None


@pytest.fixture(autouse=True)
def interruptible():
    """Let Ctrl-C reach the command: a shell ignores it for what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def shell(tmp_path, redis_url):
    return Shell(tmp_path, app=SHOP, **{URI: redis_url, SWITCH: "true"})


def served(shell, *extra):
    return Gunicorn(
        "shop:app", workers=2, threads=8, env=shell.environment, cwd=shell.directory, extra=extra
    )


def outcomes(events):
    return Counter((event["mode"], event["endpoint"], event["outcome"]) for event in events)


@pytest.mark.gunicorn
@pytest.mark.parametrize("extra", [(), ("--preload",)], ids=["forked first", "preloaded"])
def test_the_signals_of_two_workers_add_up_exactly(shell, extra):
    with served(shell, *extra) as server:
        post(server, "/payments", "before")
        with Watch(shell, "--json") as watch:
            pids = watch.hear_two_workers(server)
            assert watch.events == []  # nothing of the requests before it began to listen
            orders = [lambda n=n: post(server, f"/orders?n={n % 20}") for n in range(60)]
            statuses = Counter(status for status, _ in all_at_once(orders))
            assert statuses == {200: 20, 409: 40}
            for _ in range(2):
                for n in range(30):
                    post(server, "/payments", f"key-{n}")
            assert until(lambda: len(watch.events) >= 170, 20)
            time.sleep(1)
            assert watch.interrupt() == 0
        assert outcomes(watch.events) == {
            ("lock", "create_order", "claimed"): 20,
            ("lock", "create_order", "completed"): 20,
            ("lock", "create_order", "repeat-submit"): 40,
            ("key", "pay", "claimed"): 30,
            ("key", "pay", "completed"): 30,
            ("key", "pay", "replayed"): 30,
        }
        assert {int(event["worker"].rpartition("/")[2]) for event in watch.events} <= pids
        summary = [tuple(line.split()) for line in watch.err]
        assert ("40", "lock", "create_order", "repeat-submit") in summary
        assert ("30", "key", "pay", "replayed") in summary
        assert not [line for line in watch.err if "dropped" in line or "Traceback" in line]


@pytest.mark.gunicorn
def test_redis_stops_and_comes_back_while_it_is_watched(tmp_path, fresh_redis):
    shell = Shell(tmp_path, app=SHOP, **{URI: fresh_redis.url, SWITCH: "true"})
    with served(shell) as server:
        with Watch(shell, "--json") as watch:
            watch.hear_two_workers(server)
            fresh_redis.stop()
            watch.wait_for("The store does not answer (ConnectionError); trying again.")
            began = time.monotonic()
            for n in range(20):
                assert post(server, "/payments", f"away-{n}") == (503, None)
            assert time.monotonic() - began < 5  # it refuses: nothing waits for it
            fresh_redis.start()
            watch.wait_for("The store answers again.")
            for n in range(20):
                assert post(server, "/payments", f"back-{n}")[0] == 200
            assert until(lambda: len(watch.events) >= 80, 20), (outcomes(watch.events), watch.err)
            assert watch.interrupt() == 0
        assert outcomes(watch.events) == {
            ("key", "pay", "store_failed"): 20,
            ("key", "pay", "store-unavailable"): 20,
            ("key", "pay", "claimed"): 20,
            ("key", "pay", "completed"): 20,
        }


@pytest.mark.gunicorn
def test_filters_and_lines_in_a_pipe(shell):
    with served(shell) as server:
        with (
            Watch(shell, "--signal", "rejected", "--signal", "replayed") as some,
            Watch(shell, "--json", "--endpoint", "pay") as of_pay,
            Watch(shell, "--json") as everything,
        ):
            client = redis.Redis.from_url(shell.environment[URI])
            assert until(lambda: pubsub_listeners(client) == 3, 120)
            everything.hear_two_workers(server)
            for _ in range(3):
                post(server, "/orders?n=1")
                post(server, "/payments", "one")
            assert until(lambda: len(some.out) == len(of_pay.out) == 4, 20)
            assert some.interrupt() == of_pay.interrupt() == 0
        rows = [line.rstrip("\n").split("\t") for line in some.out]
        rejected = ["rejected", "lock", "create_order", "repeat-submit"]
        replayed = ["replayed", "key", "pay", "replayed"]
        assert sorted(row[1:5] for row in rows) == [rejected] * 2 + [replayed] * 2
        for row in rows:
            assert len(row) == 8
            assert re.fullmatch(r"\d\d:\d\d:\d\d", row[0])
            assert re.fullmatch(r"[0-9a-f]{12}", row[5])
        [first] = [event for event in of_pay.events if event["signal"] == "claimed"]
        assert set(first) == {
            *("time", "worker", "signal", "mode", "endpoint", "key", "outcome"),
            *("lease", "waited"),
        }
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])


@pytest.mark.gunicorn
def test_a_reader_that_leaves_ends_the_command_without_an_error(shell):
    with served(shell) as server:
        words = " ".join(shell.command(["watch", "--json", "--for", "40"]))
        with subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {words} | head -1"],
            cwd=shell.directory,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            client = redis.Redis.from_url(shell.environment[URI])
            assert until(lambda: pubsub_listeners(client) == 1, 30)

            def is_over_after_a_signal():
                post(server, f"/orders?n={time.monotonic_ns()}")
                return process.poll() is not None

            assert until(is_over_after_a_signal, 10)
            out, err = process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["outcome"] in {"claimed", "completed"}
        assert "Traceback" not in err
        assert "BrokenPipe" not in err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed_from_the_start_is_no_error(shell, closed):
    words = " ".join(shell.command(["watch", "--for", "1"]))
    command = ["bash", "-c", f"{words} {closed}"]
    done = run_to_end(command, cwd=shell.directory, env=shell.environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("uri", "switch", "code", "told"),
    [
        (None, True, 0, "Waiting for signals."),
        (None, False, 0, "Set IDEMPOTENCE_WATCH = True, and restart"),
        ("memory://", True, 1, "the store is the memory of each process."),
        ("sqlite:///watch.db", True, 1, "the store is a database."),
    ],
)
def test_silence_and_other_stores_are_explained(redis_url, uri, switch, code, told):
    app = make_app(IDEMPOTENCE_STORAGE_URI=uri or redis_url, IDEMPOTENCE_WATCH=switch)
    done = invoke(app, "watch", "--json", "--for", "0.5")
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    remedy = "Set IDEMPOTENCE_STORAGE_URI to a Redis server" if code else "Signals: 0."
    assert remedy in done.stderr
    client = redis.Redis.from_url(redis_url)
    assert until(lambda: pubsub_listeners(client) == 0, 3)  # the subscription ends, too


def publisher(client):
    """Return a function that publishes so many equal signals in a message."""
    numbers = itertools.count(1)

    def publish(endpoint, count=1):
        event = [1.7e9, "claimed", "key", endpoint, "ab", "claimed", {}]
        message = {"worker": "w", "run": "r", "number": next(numbers), "dropped": 0}
        client.publish("idempotence:watch", json.dumps(message | {"events": [event] * count}))

    return publish


def test_an_output_that_is_too_slow_loses_messages_and_counts_them(shell, redis_server):
    """The server keeps them, and ends a subscription that keeps too many of them waiting."""
    client = redis_server.client()
    publish = partial(publisher(client), "p" * 99, 500)
    before = client.config_get("client-output-buffer-limit")
    client.config_set("client-output-buffer-limit", "pubsub 1mb 1mb 1")
    try:
        with Watch(shell, "--json") as watch:
            assert until(lambda: pubsub_listeners(client) == 1, 30)
            assert until(lambda: publish() or watch.out, 30)
            watch.signal(signal.SIGSTOP)
            for _ in range(100):
                publish()
            assert pubsub_listeners(client) == 0
            watch.signal(signal.SIGCONT)
            assert until(lambda: pubsub_listeners(client) == 1, 30)
            publish()
            time.sleep(1)
            assert watch.interrupt() == 0
        assert re.search(r"(?m)^\d+ messages were lost: ", "\n".join(watch.err)), watch.err
    finally:
        client.config_set("client-output-buffer-limit", before["client-output-buffer-limit"])


def test_a_quiet_channel_costs_no_subscription(shell, redis_server):
    """Between two subscriptions, a signal could be lost."""

    def subscribers():
        return [each["id"] for each in redis_server.client().client_list(_type="pubsub")]

    with Watch(shell, "--for", "60") as watch:
        assert until(subscribers, 30)
        before = subscribers()
        time.sleep(SILENCE + 1)
        assert subscribers() == before
        assert watch.interrupt() == 0


def test_a_connection_that_a_firewall_has_forgotten_is_replaced(tmp_path, redis_server):
    publish = publisher(redis_server.client())
    with Proxy(redis_server) as proxy:
        shell = Shell(tmp_path, app=SHOP, **{URI: proxy.url, SWITCH: "true"})

        def is_printed(text):
            publish(text)
            return any(text in line for line in watch.out)

        with Watch(shell, "--for", "90") as watch:
            assert until(lambda: is_printed("before"), 30)
            proxy.forget_connections()
            assert until(lambda: is_printed("after"), 30)
            assert watch.interrupt() == 0


def pubsub_listeners(client):
    [(_, count)] = client.pubsub_numsub("idempotence:watch")
    return count
