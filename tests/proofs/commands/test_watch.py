"""`flask idempotence watch` in real processes: workers, a pipe, a terminal and a failing Redis."""

import itertools
import json
import re
import signal
import subprocess
import threading
import time
from collections import Counter

import pytest
import redis
from helpers.apps import make_app
from helpers.cli_shell import APP, Shell
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
        self._process = subprocess.Popen(
            shell.command(["watch", *arguments]),
            cwd=shell.directory,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out, self.err = [], []
        self._readers = [
            threading.Thread(target=self._collect, args=pair)
            for pair in ((self._process.stdout, self.out), (self._process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._finish()

    @staticmethod
    def _collect(stream, lines):
        lines.extend(iter(stream.readline, ""))

    def _finish(self):
        for reader in self._readers:
            reader.join()
        self._process.stdout.close()
        self._process.stderr.close()
        return self._process.wait()

    def wait_for(self, text, seconds=30):
        assert until(lambda: self.err and text in self.err[-1], seconds), self.err

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(timeout=30)
        self._finish()
        return code

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


def reach_both(server):
    pids, sent = set(), 0
    while len(pids) < 2:
        assert sent < 800, "one worker has served everything"
        keys = [f"{time.monotonic_ns()}-{n}" for n in range(20)]
        answers = all_at_once([lambda key=key: post(server, "/payments", key) for key in keys])
        pids |= {pid for _, pid in answers}
        sent += 20
    return pids


def outcomes(events):
    return Counter((event["mode"], event["endpoint"], event["outcome"]) for event in events)


@pytest.mark.gunicorn
@pytest.mark.parametrize("extra", [(), ("--preload",)], ids=["forked first", "preloaded"])
def test_the_signals_of_two_workers_add_up_exactly(shell, extra):
    with served(shell, *extra) as server:
        pids = reach_both(server)
        with Watch(shell, "--json") as watch:
            assert watch.hear_two_workers(server) == pids
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
        reach_both(server)
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
        reach_both(server)
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
        assert [len(row) for row in rows] == [8] * 4
        assert sorted(row[1:5] for row in rows) == [
            ["rejected", "lock", "create_order", "repeat-submit"],
            ["rejected", "lock", "create_order", "repeat-submit"],
            ["replayed", "key", "pay", "replayed"],
            ["replayed", "key", "pay", "replayed"],
        ]
        assert all(re.fullmatch(r"\d\d:\d\d:\d\d", row[0]) for row in rows)
        assert all(re.fullmatch(r"[0-9a-f]{12}", row[5]) for row in rows)
        [first] = [event for event in of_pay.events if event["signal"] == "claimed"]
        assert set(first) == {
            *("time", "worker", "signal", "mode", "endpoint", "key", "outcome"),
            *("lease", "waited"),
        }
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])


@pytest.mark.gunicorn
def test_a_reader_that_leaves_ends_the_command_without_an_error(shell):
    with served(shell) as server:
        reach_both(server)
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
            # The reader goes after the first signal.
            began = time.monotonic()
            while process.poll() is None and time.monotonic() < began + 10:
                post(server, f"/orders?n={time.monotonic_ns()}")
                time.sleep(0.2)
            out, err = process.communicate()
        assert process.returncode == 0
        assert time.monotonic() - began < 10
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


def test_a_terminal_gets_the_same_lines(shell):
    done = shell.terminal("watch", "--for", "1")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert done.out.splitlines()[-1] == "Signals: 0. Processes that have published: 0."


@pytest.mark.parametrize(
    ("switch", "remedy"),
    [("false", "Set IDEMPOTENCE_WATCH = True, and restart"), ("true", "Waiting for signals.")],
)
def test_silence_is_explained(shell, switch, remedy):
    done = shell.pipe("watch", "--json", "--for", "0.5", **{SWITCH: switch})
    assert (done.code, done.out) == (0, "")
    assert remedy in done.err
    assert "Signals: 0. Processes that have published: 0." in done.err


@pytest.mark.parametrize(
    ("uri", "kind"),
    [("memory://", "the memory of each process"), ("sqlite:///watch.db", "a database")],
)
def test_other_stores_are_refused_with_the_remedy(shell, uri, kind):
    done = shell.pipe("watch", **{URI: uri})
    assert (done.code, done.out) == (1, "")
    assert f"the store is {kind}." in done.err
    assert "Set IDEMPOTENCE_STORAGE_URI to a Redis server" in done.err


def test_a_store_that_does_not_answer_at_the_start_is_one_line(shell):
    done = shell.pipe("watch", **{URI: "redis://127.0.0.1:1/0"})
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "Error: The server's host refuses the connection (ConnectionError)."
    )


def test_the_subscription_ends_with_the_command(redis_url):
    app = make_app(IDEMPOTENCE_STORAGE_URI=redis_url)
    done = app.test_cli_runner().invoke(args=["idempotence", "watch", "--for", "0.1"])
    assert done.exit_code == 0
    assert until(lambda: pubsub_listeners(redis.Redis.from_url(redis_url)) == 0, 3)


def test_an_output_that_is_too_slow_loses_messages_and_counts_them(shell, redis_server):
    """The server keeps them, and ends a subscription that keeps too many of them waiting."""
    client = redis_server.client()
    before = client.config_get("client-output-buffer-limit")
    client.config_set("client-output-buffer-limit", "pubsub 1mb 1mb 1")
    events = [[1.7e9, "claimed", "key", "p" * 99, "ab", "claimed", {}]] * 500
    numbers = itertools.count(1)

    def publish():
        message = {"worker": "w", "run": "r", "number": next(numbers), "dropped": 0}
        client.publish("idempotence:watch", json.dumps(message | {"events": events}))

    try:
        with Watch(shell, "--json") as watch:
            assert until(lambda: pubsub_listeners(client) == 1, 30)
            assert until(lambda: publish() or watch.out, 30)
            watch._process.send_signal(signal.SIGSTOP)
            for _ in range(100):
                publish()
            assert pubsub_listeners(client) == 0
            watch._process.send_signal(signal.SIGCONT)
            assert until(lambda: pubsub_listeners(client) == 1, 30)
            publish()
            time.sleep(1)
            assert watch.interrupt() == 0
        assert re.search(r"(?m)^\d+ messages were lost: ", "".join(watch.err)), watch.err
    finally:
        client.config_set("client-output-buffer-limit", before["client-output-buffer-limit"])


def test_a_quiet_channel_costs_no_subscription(shell, redis_url):
    """Between two subscriptions, a signal could be lost."""
    client = redis.Redis.from_url(redis_url)

    def subscribers():
        return [each["id"] for each in client.client_list(_type="pubsub")]

    with Watch(shell, "--for", "60") as watch:
        assert until(subscribers, 30)
        before = subscribers()
        time.sleep(SILENCE + 1)
        assert subscribers() == before
        assert watch.interrupt() == 0


def test_a_connection_that_a_firewall_has_forgotten_is_replaced(tmp_path, redis_server, redis_url):
    client = redis.Redis.from_url(redis_url)
    numbers = itertools.count(1)

    def is_printed(text):
        event = [1.7e9, "claimed", "key", text, "ab", "claimed", {}]
        message = {"worker": "w", "run": "r", "number": next(numbers), "dropped": 0}
        client.publish("idempotence:watch", json.dumps(message | {"events": [event]}))
        return any(text in line for line in watch.out)

    with Proxy(redis_server) as proxy:
        shell = Shell(tmp_path, app=SHOP, **{URI: proxy.url, SWITCH: "true"})
        with Watch(shell, "--for", "90") as watch:
            assert until(lambda: is_printed("before"), 30)
            proxy.forget_connections()
            assert until(lambda: is_printed("after"), 30)
            assert watch.interrupt() == 0


def pubsub_listeners(client):
    [(_, count)] = client.pubsub_numsub("idempotence:watch")
    return count
