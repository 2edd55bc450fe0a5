"""A call of a store whose server is frozen, and what runs beside it under gevent; run as a script.

Its arguments: when gevent patches the process (`before` the package is loaded, or `after` it), and
the driver. It prints the seconds of the call, and those in which another greenlet ran.
"""

import os
import sys
import time

when, driver = sys.argv[1:]
if when == "before":
    import gevent.monkey

    gevent.monkey.patch_all()

import threading  # noqa: E402 - after patching, as under a server that patches first
from contextlib import suppress  # noqa: E402

from helpers.servers.mariadb import MariaDbServer  # noqa: E402
from helpers.servers.postgres import PostgresServer  # noqa: E402
from helpers.servers.processes import RedisServer  # noqa: E402

from flask_idempotence import StoreError  # noqa: E402
from flask_idempotence.stores import open_store  # noqa: E402
from flask_idempotence.stores.base import NO_FINGERPRINT  # noqa: E402

TICK = 0.05
SERVERS = {
    "redis": (RedisServer, "redis"),
    "psycopg": (PostgresServer, "postgresql+psycopg"),
    "pg8000": (PostgresServer, "postgresql+pg8000"),
    "pymysql": (MariaDbServer, "mysql+pymysql"),
}
kind, scheme = SERVERS[driver]


def claim(store, key):
    with suppress(StoreError):
        store.claim(key, os.urandom(16), NO_FINGERPRINT, 60, 0)


def tick(ticks, ended):
    while not ended.is_set():
        ticks.append(1)
        time.sleep(TICK)


with kind() as server:
    uri = server.url if driver == "redis" else server.new_database()
    store = open_store(f"{scheme}://{uri.partition('://')[2]}", {"deadline": 2.0})
    if driver != "redis":
        store.create_table()
    if when == "after":
        import gevent.monkey

        gevent.monkey.patch_all()
        store = open_store(f"{scheme}://{uri.partition('://')[2]}", {"deadline": 2.0})
    claim(store, "a connection is open")
    server.pause()
    ticks, ended = [], threading.Event()
    threading.Thread(target=tick, args=(ticks, ended), daemon=True).start()
    began = time.monotonic()
    claim(store, "no answer comes")
    took, ran = time.monotonic() - began, len(ticks) * TICK
    ended.set()
    server.resume()
sys.stdout.write(f"{took} {ran}")
sys.stdout.flush()
os._exit(0)  # threads may still wait for the server
