"""Random kills, restarts and time-outs under load: an acknowledged payment is written once.

`IDEMPOTENCE_TEST_SOAK=60` gives each combination a minute in place of six seconds.
"""

import contextlib
import os
import random
import threading
import time
from collections import Counter

import pytest
from flask import got_request_exception, request
from helpers.payment_database import PaymentApp, by_driver, pay
from helpers.servers.mariadb import MariaDbServer
from helpers.servers.pgbouncer import PgBouncer
from helpers.servers.postgres import PostgresServer

from flask_idempotence.stores import open_store

pytestmark = [
    pytest.mark.database,
    # pg8000 leaves the file over its socket open where its last write has failed.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SECONDS = float(os.environ.get("IDEMPOTENCE_TEST_SOAK", "6"))
CALLERS = 4
PATIENCE = 30
"""Seconds in which each key is answered once the database is whole again."""

SITE = {"IDEMPOTENCE_LEASE": 2}


@pytest.fixture(scope="module")
def mysql():
    with MariaDbServer(wait_timeout=2) as server:
        yield server


@pytest.fixture(scope="module")
def postgresql():
    with PostgresServer(idle_session_timeout="2s") as server:
        yield server


@pytest.fixture
def pooler(postgresql):
    with PgBouncer(postgresql, server_login_retry=1) as pooler:
        yield pooler


class Soak:
    def __init__(self, server, url, direct, *, is_by_uri, has_ping, seed):
        self.server, self.direct = server, direct
        self.name = direct.rpartition("/")[2]
        self.random = random.Random(seed)
        PaymentApp(direct).close()  # makes the tables
        options = {"pool_pre_ping": has_ping}
        if url != direct and "+psycopg:" in url:  # the pooler's connections are shared
            options["connect_args"] = {"prepare_threshold": None}
        store = open_store(url, {**options, "deadline": 2}) if is_by_uri else None
        self.site = PaymentApp(
            url, self.pay, store=store, prepare=False, deadline=2, settings=SITE, engine=options
        )
        self.site.add_once()
        self.errors, self.statuses, self.acknowledged = [], Counter(), set()
        self.numbers = iter(range(1, 10**6))
        self.is_over = threading.Event()

    def pay(self, session):
        """Pay; the application's own connection may break, too."""
        try:
            pay(session, request.get_json()["amount"])
            time.sleep(self.random.random() / 50)
        except Exception:
            return "gone", 503
        return "paid", 201

    # Callers

    def call(self):
        while not self.is_over.is_set():
            number = next(self.numbers)
            path = ("/payments", "/once")[number % 2]
            self.call_until_paid(path, number, lambda: not self.is_over.is_set())
            self.pending.append((path, number))

    def call_until_paid(self, path, number, may_try):
        while may_try() and number not in self.acknowledged:
            status = self.post(path, number)
            self.statuses[status] += 1
            if status == 201:
                self.acknowledged.add(number)
            else:
                time.sleep(0.05)

    def post(self, path, number):
        headers = {"Idempotency-Key": f"key-{number}"}
        client = self.site.app.test_client()
        return client.post(path, json={"amount": number}, headers=headers).status_code

    # The database

    def disturb(self):
        restart_at = time.monotonic() + SECONDS * self.random.uniform(0.3, 0.7)
        while not self.is_over.wait(self.random.uniform(0.05, 0.5)):
            if time.monotonic() > restart_at:
                self.server.stop()
                self.server.start()
                restart_at += max(SECONDS / 2, 10)
            elif self.random.random() < 0.1:
                self.is_over.wait(2.5)  # idle connections are closed, where callers leave any
            else:
                with contextlib.suppress(Exception):  # it may have ended meanwhile
                    self.hurt()

    def hurt(self):
        found, fault = self.server.connections(self.name), self.random.choice(self.server.KILLS)
        for victim in found if self.random.random() < 0.2 else [self.random.choice(found)]:
            self.server.execute(fault.format(victim))

    # The course

    def run(self):
        self.pending = []

        def note(_, exception):
            self.errors.append(exception)

        with got_request_exception.connected_to(note, self.site.app):
            threads = [threading.Thread(target=self.call) for _ in range(CALLERS)]
            threads.append(threading.Thread(target=self.disturb))
            for each in threads:
                each.start()
            time.sleep(SECONDS)
            self.is_over.set()
            for each in threads:
                each.join()
            end = time.monotonic() + PATIENCE
            for path, number in self.pending:
                self.call_until_paid(path, number, lambda: time.monotonic() < end)

    def counts(self):
        with contextlib.closing(PaymentApp(self.direct, prepare=False)) as books:
            return Counter(books.amounts())

    def close(self):
        self.site.close()
        self.site.store.close()


CELLS = [
    (driver, *way)
    for driver in ("pymysql", "mysqldb", "psycopg", "psycopg2", "pg8000", "pgbouncer")
    for way in ((True, False), (False, True), (False, False), (True, True))
]
if SECONDS <= 6:
    CELLS = [cell for cell in CELLS if cell[1] is not cell[2]]


@pytest.mark.parametrize(("driver", "is_by_uri", "has_ping"), CELLS)
def test_what_is_acknowledged_is_written_once(
    request, driver, is_by_uri, has_ping, record_property
):
    server = request.getfixturevalue("mysql" if "mysql" in driver else "postgresql")
    direct = server.new_database()
    url = by_driver(direct, driver)
    if driver == "pgbouncer":
        url = request.getfixturevalue("pooler").url(direct)
    seed = random.randrange(10**6)
    soak = Soak(server, url, direct, is_by_uri=is_by_uri, has_ping=has_ping, seed=seed)
    try:
        soak.run()
        counts = soak.counts()
    finally:
        soak.close()
    record_property("report", f"{driver}, seed {seed}: {dict(soak.statuses)}")
    asked = {number for _, number in soak.pending}
    assert soak.errors == []
    assert set(soak.statuses) <= {201, 409, 503}
    assert asked == soak.acknowledged
    assert {number: counts[number] for number in asked} == dict.fromkeys(asked, 1)
    assert len(asked) >= CALLERS
