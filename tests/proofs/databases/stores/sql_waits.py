"""Callers of an SQL store that meet one fault, all at once, or many, one after the other.

In a process of their own, which gevent may have patched, and whose resolver is ours.
"""

import json
import os
import socket
import sqlite3
import ssl
import statistics
import sys
import time
from functools import partial

import pytest
from helpers.fault_soak import Lag, Soak
from helpers.servers.faults import Proxy
from helpers.servers.processes import HOST, all_at_once
from helpers.servers.resolver import Resolver
from sqlalchemy import create_engine, make_url

from flask_idempotence import SqlStore, StoreError
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed
from flask_idempotence.stores.process import PROBE_EVERY
from flask_idempotence.stores.uris import limited_engine

CALLERS = 32
DEADLINE = 2.0
SILENT = [f"127.0.0.{number}" for number in range(2, 8)]
NAME = "database.test"
RECORD = b"r" * 7_000_000
"""More than the buffers of a connection take."""


class SQLiteScene:
    def __init__(self, url):
        self.store = SqlStore(create_engine(url), deadline=DEADLINE)
        self._writer = sqlite3.connect(
            self.store.engine.url.database, isolation_level=None, check_same_thread=False
        )

    def begin(self, _):
        self._writer.execute("BEGIN IMMEDIATE")

    def end(self):
        self._writer.execute("ROLLBACK")


class Scene:
    """A store behind a proxy and a resolver, and the faults by their places."""

    def __init__(self, url, place):
        url = make_url(url)
        driver = url.get_driver_name()
        self.proxy = Proxy(url)
        self.resolver = Resolver(pytest.MonkeyPatch(), database_test=[(HOST, None)])
        self.proxy.accept()
        options = {}
        if place in ("full pool", "give-back"):
            options = {"pool_size": 2, "max_overflow": 0}
        if place == "TLS":
            key = {"pg8000": "ssl_context", "pymysql": "ssl"}.get(driver, "sslmode")
            options["connect_args"] = {key: tls_for(driver)}
        elif driver.startswith("psycopg"):
            options["connect_args"] = {"sslmode": "disable", "gssencmode": "disable"}
        if driver == "psycopg2":  # which looks names up in C, where no resolver of ours is asked
            options["connect_args"]["hostaddr"] = HOST
        self.url = url.set(host=NAME, port=self.proxy.port)
        self.listeners = []
        for address in SILENT:  # on the proxy's port
            self.listeners.append(socket.create_server((address, self.proxy.port), backlog=500))
        engine = limited_engine(self.url, options, DEADLINE)  # as for a store by URI
        self.store = SqlStore(engine, deadline=DEADLINE)

    def begin(self, place):
        proxy, resolver = self.proxy, self.resolver
        if place == "resolving":
            resolver.hang()
        elif place == "addresses":
            resolver.hosts[NAME] = [(address, None) for address in SILENT]
        elif place in ("handshake", "TLS", "AUTH"):
            proxy.greetings = 0 if place == "handshake" else 1
        elif place in ("sending", "reading", "full pool"):
            proxy.is_shut = True
        else:
            proxy.marker = {"commit": b"COMMIT", "give-back": b"ROLLBACK"}[place]
        if place in ("resolving", "addresses", "handshake", "TLS", "AUTH"):
            self.store.close()  # a new connection is needed

    def end(self):
        self.proxy.let_go()
        self.resolver.answer()
        self.resolver.hosts[NAME] = [(HOST, None)]


def tls_for(driver):
    if driver.startswith("psycopg"):
        return "require"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def call(store, place, number=1):
    started = time.monotonic()
    key, owner = os.urandom(8).hex(), os.urandom(16)
    try:
        if place == "commit":
            store.prune(1)
        elif place == "sending" and number < 2:
            store.complete(key, owner, NO_FINGERPRINT, RECORD, 60)
        else:
            assert store.claim(key, owner, NO_FINGERPRINT, 60, 0) == Claimed()
    except StoreError as error:
        return str(error), time.monotonic() - started
    return None, time.monotonic() - started


def play(scene, place):
    store = scene.store
    all_at_once([lambda: call(store, "reading")] * CALLERS)  # connections, prepared statements
    lag = Lag()
    scene.begin(place)
    first, second = (
        all_at_once([partial(call, store, place, number) for number in range(CALLERS)])
        for _ in range(2)
    )
    rounds = first + second
    if place == "full pool":
        time.sleep(0.5)
    scene.end()
    time.sleep(PROBE_EVERY)
    cured = time.monotonic()
    at_first = call(store, "reading")
    after = all_at_once([lambda: call(store, "reading")] * CALLERS)
    within = time.monotonic() - cured
    return {
        "succeeded": sum(error is None for error, _ in rounds),
        "longest": max(took for _, took in rounds),
        "second": statistics.median(took for _, took in second),
        "after": [error for error, _ in [at_first, *after] if error is not None],
        "within": within,
        "lag": lag.longest,
    }


def main():
    plan = json.loads(sys.argv[1])
    is_file = plan["url"].startswith("sqlite")
    scene = SQLiteScene(plan["url"]) if is_file else Scene(plan["url"], plan["place"])
    if plan["place"] == "soak":
        found = Soak(scene, plan["seconds"], plan["places"]).run()
    else:
        found = play(scene, plan["place"])
    scene.store.close()
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # helpers may still wait for a resolver
