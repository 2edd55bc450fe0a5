"""Payment providers that notify the page's application on Gunicorn, Redis and PostgreSQL.

The application is that of docs/how-to/payment-callbacks.md, word for word. Around its booking, a
plan says for each run how long it takes, whether it fails, and where its process is killed.
"""

import contextlib
import http.client
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.callers.payment_providers import PROVIDERS, SETTINGS, application_of_page
from helpers.servers.processes import Gunicorn, all_at_once, environment, until

pytestmark = pytest.mark.servers

SERVICE = """
import os, signal, time
import redis
from flask import g
import callbacks

effects = redis.Redis.from_url(os.environ["EFFECTS"], decode_responses=True)
book = callbacks.book

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def planned(connection, **payment):
    number = payment["number"]
    effects.incr(f"runs of {number}")
    plan = effects.lpop(f"plans of {number}") or "0"
    g.dies = plan == "die after the commit"
    if plan.isdigit():
        time.sleep(int(plan) / 1000)
    book(connection, **payment)
    if plan == "die before the commit":
        die()
    if plan == "fail":
        raise ConnectionError

def after(response):
    if g.get("dies"):
        die()
    return response

callbacks.book = planned
for app in (callbacks.app, callbacks.exact):
    app.after_request(after)
app, exact = callbacks.app, callbacks.exact
"""

PREPARE = """
import callbacks
from sqlalchemy import text

with callbacks.database.begin() as connection:
    for table in callbacks.TABLES:
        connection.execute(text(table))
callbacks.exact.test_cli_runner().invoke(args=["idempotence", "init-db"], catch_exceptions=False)
"""

WAYS = [*PROVIDERS, "alipay within"]


class Service:
    def __init__(self, stack, folder, redis_server, postgres, name):
        (folder / "callbacks.py").write_text(application_of_page())
        (folder / "service.py").write_text(SERVICE)
        url = postgres.new_database()
        redis_url = redis_server.url.removesuffix("/0")
        self.effects = redis_server.client(decode_responses=True, db=3)
        self.effects.flushdb()
        redis_server.client(db=4).flushdb()
        settings = {f"FLASK_{setting}": value for setting, value in SETTINGS.items()}
        settings |= {"FLASK_DATABASE": url, "EFFECTS": f"{redis_url}/3"}
        place = {"env": environment(f"{redis_url}/4", lease=1, **settings), "cwd": folder}
        subprocess.run([sys.executable, "-c", PREPARE], check=True, **place)
        self.connection = stack.enter_context(postgres.connect(url.rpartition("/")[2]))
        self.server = stack.enter_context(Gunicorn(f"service:{name}", workers=2, **place))

    def order(self, number, *plans, cents=8800):
        self.connection.execute(
            "INSERT INTO orders VALUES (%s, %s, 'CNY', 'open')", (number, cents)
        )
        if plans:
            self.effects.rpush(f"plans of {number}", *plans)
        return number

    def runs(self, number):
        return int(self.effects.get(f"runs of {number}") or 0)

    def payments(self, prefix):
        query = "SELECT number, trade, cents, review FROM payments WHERE number LIKE %s"
        return sorted(self.connection.execute(query, (prefix + "%",)).fetchall())

    def is_paid(self, number):
        query = "SELECT state FROM orders WHERE number = %s"
        return self.connection.execute(query, (number,)).fetchone() == ("paid",)


class Caller:
    """A provider, and the way to the service; every attempt comes from another address."""

    def __init__(self, service, provider, *, is_exact=False):
        self.service = service
        self.provider = provider
        self.is_exact = is_exact

    def attempt(self, number, cents=8800):
        notification = self.provider.notify(f"trade of {number}", number, cents)
        source = (f"127.0.0.{random.randrange(1, 9)}", 0)
        status, body = None, b""
        with contextlib.suppress(http.client.HTTPException, OSError):  # the worker died
            path, headers, sent = notification
            answer = self.service.server.ask(path, "POST", headers, sent, source=source)
            status, body = answer.status, answer.body
        is_content = status is not None and self.provider.is_content(status, body)
        if is_content:
            # No success is said of a payment that is not booked.
            assert self.service.is_paid(number)
        return is_content, status, body

    def until_content(self, number):
        for attempts in range(1, 200):
            if self.attempt(number)[0]:
                return attempts
            time.sleep(0.1)
        raise AssertionError(f"never content: {number}")


@pytest.fixture(scope="module")
def services(tmp_path_factory, redis_server, postgres):
    with contextlib.ExitStack() as stack:
        started = {}

        def start(name):
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                started[name] = Service(stack, folder, redis_server, postgres, name)
            return started[name]

        yield start


@pytest.fixture(params=WAYS)
def caller(request, services):
    name, _, within = request.param.partition(" ")
    service = services("exact" if within else "app")
    return Caller(service, PROVIDERS[name], is_exact=bool(within))


@pytest.fixture
def prefix(request, caller):
    return f"{caller.provider.name} {abs(hash(request.node.name)) % 10**9} "


def booked(*numbers):
    return sorted((number, f"trade of {number}", 8800, 0) for number in numbers)


def test_twenty_at_once_are_one_payment_and_all_get_success_from_a_slow_first(caller, prefix):
    number = caller.service.order(prefix + "1", "700")
    answers = all_at_once([lambda: caller.attempt(number)] * 20)
    assert [content for content, *_ in answers] == [True] * 20
    assert len({body for *_, body in answers}) == 1
    assert caller.service.payments(prefix) == booked(number)
    assert caller.service.runs(number) == 1


def test_a_first_that_fails_is_followed_by_one_that_waited(caller, prefix):
    number = caller.service.order(prefix + "1", "fail")
    answers = all_at_once([lambda: caller.attempt(number)] * 8)
    assert sorted(content for content, *_ in answers) == [False] + [True] * 7
    assert [status for content, status, _ in answers if not content] == [500]
    assert caller.service.payments(prefix) == booked(number)
    assert caller.service.runs(number) == 2


def test_a_repeat_that_waits_too_long_is_told_fail_and_gets_success_later(services):
    caller = Caller(services("app"), PROVIDERS["alipay"])
    number = caller.service.order("late 1", "4500")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(caller.attempt, number)
        assert until(lambda: caller.service.runs(number))
        assert caller.attempt(number) == (False, 409, b"fail")
        assert caller.attempt(number) == (True, 200, b"success")
        assert first.result() == (True, 200, b"success")
    assert caller.service.payments("late ") == booked(number)
    assert caller.service.runs(number) == 1


@pytest.mark.parametrize("death", ["die before the commit", "die after the commit"])
def test_a_worker_that_is_killed_is_followed_by_the_next_attempt(caller, prefix, death):
    number = caller.service.order(prefix + "1", death)
    assert caller.attempt(number)[1] is None
    caller.until_content(number)
    assert [caller.attempt(number)[0] for _ in range(3)] == [True] * 3
    assert caller.service.payments(prefix) == booked(number)
    # within=: the record was in the commit, and nothing runs again.
    was_recorded = caller.is_exact and death == "die after the commit"
    assert caller.service.runs(number) == (1 if was_recorded else 2)


def test_forty_orders_five_attempts_each_and_dying_workers_are_forty_payments(caller, prefix):
    """Every provider goes on until it is content, and so each order is paid, once."""
    plans = random.Random(7)
    numbers = [
        caller.service.order(f"{prefix}{n}", *plans.choices(["0", "50", "fail"], k=2))
        for n in range(37)
    ]
    for death in ("die before the commit", "die after the commit", "die before the commit"):
        numbers.append(caller.service.order(f"{prefix}{len(numbers)}", death, "0", death))
    tasks = numbers * 5
    plans.shuffle(tasks)
    with ThreadPoolExecutor(20) as pool:
        attempts = list(pool.map(caller.until_content, tasks))
    assert caller.service.payments(prefix) == booked(*numbers)
    assert sum(attempts) > len(tasks)  # some had to try again
