"""`flask idempotence watch` in real processes: workers, a pipe, a terminal and a failing Redis."""

import fcntl
import http.client
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest
import redis
from helpers.cli_shell import Shell
from helpers.servers.processes import Gunicorn, all_at_once, until

from flask_idempotence.cli.watch.feed import Event
from flask_idempotence.cli.watch.views import Rates

pytestmark = pytest.mark.servers

SHOP = """
import os
from flask import Flask
from flask_idempotence import Idempotence, idempotent, no_repeat_submit

app = Flask("shop")
app.config["SECRET_KEY"] = "a secret for the tests"
app.config.from_prefixed_env()
Idempotence(app)

@app.get("/")
def index():
    return {"pid": os.getpid()}

@app.post("/orders")
@no_repeat_submit(60)
def create_order():
    return {"pid": os.getpid()}

@app.post("/payments")
@idempotent
def pay():
    return {"pid": os.getpid()}
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
        """Wait until the last notice has a text."""
        assert until(lambda: self.err and text in self.err[-1], seconds), self.err

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(timeout=30)
        self._finish()
        return code

    @property
    def events(self):
        return [json.loads(line) for line in self.out]


def post(server, path, key=None):
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    try:
        connection.request("POST", path, headers={"Idempotency-Key": key} if key else {})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body)["pid"] if answer.status == 200 else None
    finally:
        connection.close()


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
    """Send keyed requests until two workers have answered; return both."""
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
            watch.wait_for("2 processes publish: ")
            shown = {int(pid) for pid in re.findall(r"/(\d+)", watch.err[-1])}
            assert shown == pids
            assert watch.out == []  # nothing of the requests before it began to listen
            orders = [lambda n=n: post(server, f"/orders?n={n % 20}") for n in range(60)]
            statuses = Counter(status for status, _ in all_at_once(orders))
            assert statuses == {200: 20, 409: 40}
            for _ in range(2):
                for n in range(30):
                    post(server, "/payments", f"key-{n}")
            assert until(lambda: len(watch.out) >= 170, 20)
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
        assert not [line for line in watch.err if "dropped" in line or "Traceback" in line]


@pytest.mark.gunicorn
def test_a_killed_worker_leaves_and_its_successor_comes(shell):
    with served(shell) as server:
        pids = reach_both(server)
        with Watch(shell, "--json") as watch:
            watch.wait_for("2 processes publish: ")
            victim = max(pids)
            os.kill(victim, signal.SIGKILL)
            watch.wait_for("1 process publishes: ")
            [left] = pids - {victim}
            assert watch.err[-1].endswith(f"/{left}.\n")
            reach_both(server)
            watch.wait_for("2 processes publish: ")
            assert f"/{victim}" not in watch.err[-1]
            assert watch.interrupt() == 0


@pytest.mark.gunicorn
def test_redis_stops_and_comes_back_while_it_is_watched(tmp_path, fresh_redis):
    shell = Shell(tmp_path, app=SHOP, **{URI: fresh_redis.url, SWITCH: "true"})
    with served(shell) as server:
        reach_both(server)
        with Watch(shell, "--json") as watch:
            watch.wait_for("2 processes publish: ")
            fresh_redis.stop()
            watch.wait_for("The store does not answer (ConnectionError); trying again.")
            began = time.monotonic()
            for n in range(20):
                assert post(server, "/payments", f"away-{n}") == (503, None)
            assert time.monotonic() - began < 5  # it refuses: nothing waits for it
            fresh_redis.start()
            watch.wait_for("2 processes publish: ")
            for n in range(20):
                assert post(server, "/payments", f"back-{n}")[0] == 200
            assert until(lambda: len(watch.out) >= 80, 20), (outcomes(watch.events), watch.err)
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
        ):
            some.wait_for("2 processes publish: ")
            of_pay.wait_for("2 processes publish: ")
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
            for line in process.stderr:
                if "2 processes publish" in line:
                    break
            # The reader has gone after the first of them, and no other signal follows.
            began = time.monotonic()
            post(server, "/orders?n=1")
            out, err = process.communicate()
        assert process.returncode == 0
        assert time.monotonic() - began < 10
        assert json.loads(out)["outcome"] in {"claimed", "completed"}
        assert "Traceback" not in err
        assert "BrokenPipe" not in err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed_from_the_start_is_no_error(shell, closed):
    words = " ".join(shell.command(["watch", "--for", "1"]))
    done = subprocess.run(
        ["bash", "-c", f"{words} {closed}"],
        check=False,
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


class Terminal:
    """The command in a terminal of a size, as a screen of lines."""

    def __init__(self, shell, columns, lines, *arguments, **environment):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {k: v for k, v in shell.environment.items() if k not in {"COLUMNS", "LINES"}}
        self._process = subprocess.Popen(
            shell.command(["watch", *arguments]),
            cwd=shell.directory,
            env=kept | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        try:
            while chunk := os.read(self._ours, 65536):
                self.raw += chunk.decode()
        except OSError:  # Linux: the other side is closed
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._ours)

    @property
    def frame(self):
        """The lines of the last whole frame."""
        frames = re.findall(r"\x1b\[H(.*?)\x1b\[J", self.raw, re.DOTALL)
        shown = re.sub(r"\x1b\[[\d;]*[mK]", "", frames[-1] if frames else "")
        return shown.replace("\r\n", "\n").splitlines()

    def wait_for(self, text):
        assert until(lambda: text in "\n".join(self.frame), 30), self.frame

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(20)


@pytest.mark.gunicorn
def test_a_terminal_shows_rates_and_the_latest_signals_in_place(shell):
    with (
        served(shell) as server,
        Terminal(shell, 120, 30) as wide,
        Terminal(shell, 80, 24, NO_COLOR="1") as usual,
        Terminal(shell, 40, 12, NO_COLOR="1") as narrow,
    ):
        reach_both(server)
        for terminal in (wide, usual, narrow):
            terminal.wait_for("2 processes publish")
        for n in range(40):
            post(server, f"/orders?n={n % 10}")
        for terminal, columns, lines in ((wide, 120, 30), (usual, 80, 24), (narrow, 40, 12)):
            terminal.wait_for("10  lock  claimed")
            terminal.wait_for("30  lock  repeat")
            frame = terminal.frame
            assert len(frame) < lines
            assert max(map(len, frame)) <= columns
            [header] = [line for line in frame if "TOTAL" in line]
            assert header.split()[:5] == ["10", "s", "60", "s", "TOTAL"]
            assert [line for line in frame if re.match(r"\d\d:\d\d:\d\d  \w+", line)]
            assert ("\x1b[33m" in terminal.raw) == (terminal is wide)
            assert terminal.interrupt() == 0
            assert "Traceback" not in terminal.raw
            assert "Aborted" not in terminal.raw
        assert "repeat-submit  create_order" in "\n".join(wide.frame)


def test_a_dumb_terminal_gets_lines(shell):
    done = shell.terminal("watch", "--for", "1", TERM="dumb")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "No process publishes" in done.out


@pytest.mark.parametrize(
    ("switch", "remedy"),
    [("false", "Set IDEMPOTENCE_WATCH = True, and restart"), ("true", "IDEMPOTENCE_WATCH is on")],
)
def test_silence_is_explained(shell, switch, remedy):
    done = shell.pipe("watch", "--json", "--for", "0.5", **{SWITCH: switch})
    assert (done.code, done.out) == (0, "")
    assert f"No process publishes its signals. {remedy}" in done.err
    with Watch(shell) as watch:  # before the end, too
        watch.wait_for("No process publishes")


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
    assert done.err.startswith("Error: The store does not answer (ConnectionError).")


def test_names_of_another_origin_do_not_control_the_terminal(shell, redis_url):
    evil = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\n\ud800"
    escaped = r"\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\n\ud800"
    client = redis.Redis.from_url(redis_url)
    message = {"worker": f"a{evil}", "run": "r", "number": 1, "dropped": 0}
    message["events"] = [[1.7e9, *[evil] * 5, {}]]
    with Terminal(shell, 300, 24, NO_COLOR="1") as screen, Watch(shell) as pipe:
        assert until(lambda: pubsub_listeners(client) == 2, 30)
        client.publish("idempotence:watch", json.dumps(message))
        pipe.wait_for(f"1 process publishes: a{escaped}.")
        assert until(lambda: pipe.out, 10)
        screen.wait_for(f"1 process publishes: a{escaped}.")
        assert screen.interrupt() == pipe.interrupt() == 0
        assert escaped in pipe.out[0]
        for text in (screen.raw, *pipe.out, *pipe.err):
            assert "title\x07" not in text
            assert "\u202e" not in text
            assert "\x9b" not in text


def pubsub_listeners(client):
    [(_, count)] = client.pubsub_numsub("idempotence:watch")
    return count


def test_rates_are_events_per_second_of_each_window():
    now = [1000.0]
    rates = Rates(lambda: now[0])
    event = Event(None, "claimed", "lock", "order", "ab", "claimed", {}, "w")
    for _ in range(30):
        rates.add(event)
    now[0] = 1003.0
    assert rates.rows() == [(10.0, 10.0, 30, "lock", "claimed", "order")]
    now[0] = 1009.5
    rates.add(event._replace(outcome="repeat-submit", endpoint=None))
    now[0] = 1010.0  # the first second has left the window of ten
    assert rates.rows() == [
        (1 / 9, 0.1, 1, "lock", "repeat-submit", "-"),
        (0.0, 3.0, 30, "lock", "claimed", "order"),
    ]
    now[0] = 1100.0
    assert [row[:3] for row in rates.rows()] == [(0.0, 0.0, 30), (0.0, 0.0, 1)]
    assert not any(rates._seconds.values())
