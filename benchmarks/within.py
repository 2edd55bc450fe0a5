"""What `within=` adds to a route that does the same by hand, on three databases.

    uv run python benchmarks/within.py --requests 600

Both claim a key, write a row, leave a record and answer; the route by hand sends the very
statements that the guard sends, over a connection and a session of its own. They take turns in one
process; the ratio is that of the medians. Statements and commits are counted on the way.
"""

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from flask import Flask, jsonify, request
from helpers.servers.mariadb import MariaDbServer
from helpers.servers.postgres import PostgresServer
from measuring.timing import Server
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
)
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import Idempotence, SqlStore, idempotent

metadata = MetaData()
payments = Table(
    "payments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("amount", Integer, nullable=False),
)
LEASE, TTL = 30, 86400
BODY = b'{"amount": 7}'
CHUNK = 50


def environ():
    """Return a first request: its key is new."""
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/payments",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)),
        "HTTP_IDEMPOTENCY_KEY": f'"{uuid.uuid4()}"',
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def application(url):
    """Return an application with a session of its own."""
    app = Flask("shop")
    app.config["SECRET_KEY"] = "a secret for the benchmark"
    app.engine = create_engine(url)
    app.session = scoped_session(sessionmaker(app.engine))
    app.teardown_appcontext(lambda _: app.session.remove())
    app.store = SqlStore(app.engine, deadline=10)
    return app


def pay(session):
    """Write the payment, and answer its number."""
    made = session.execute(insert(payments).values(amount=request.json["amount"]))
    return jsonify(number=made.inserted_primary_key[0])


def guarded(url):
    """Return the route behind the guard."""
    app = application(url)
    Idempotence(app, store=app.store)

    @app.post("/payments")
    @idempotent(within=app.session)
    def payment():
        return pay(app.session)

    return app


def by_hand(url):
    """Return the route that claims and completes by hand, by the statements of the same store."""
    app = application(url)

    @app.post("/payments")
    def payment():
        key = request.headers["Idempotency-Key"].strip('"')
        owner, body = os.urandom(16), request.get_data()
        app.store.claim(f"hand:{key}", owner, body[:16], LEASE, 0)
        answer = pay(app.session)
        app.store.complete_in(
            app.session.connection(), f"hand:{key}", owner, body[:16], answer.get_data(), TTL
        )
        app.session.commit()
        return answer

    return app


def bare(url):
    """Return the route that only pays."""
    app = application(url)

    @app.post("/payments")
    def payment():
        answer = pay(app.session)
        app.session.commit()
        return answer

    return app


def counted(app):
    """Return how many statements and commits one request sends; a statement of a connection that
    commits each by itself is a commit, too."""
    seen = {"statements": 0, "commits": 0}

    def statement(connection, _, sql, *__):
        seen["statements"] += 1
        by_itself = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        seen["commits"] += by_itself and not sql.startswith("SELECT")

    def commit(_):
        seen["commits"] += 1

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(app.engine, "commit", commit)
    Server().send(app, environ())
    event.remove(Engine, "before_cursor_execute", statement)
    event.remove(app.engine, "commit", commit)
    return seen


def measure(name, url, requests):
    """Print what one database makes of it."""
    engine = create_engine(url)
    metadata.create_all(engine)
    SqlStore(engine).create_table()
    engine.dispose()
    apps = {"bare": bare(url), "by hand": by_hand(url), "within=": guarded(url)}
    server, times, turn = Server(), {which: [] for which in apps}, list(apps)
    for which in turn * CHUNK:
        send(server, apps[which])
    for _ in range(requests):
        for which in turn:
            times[which].append(send(server, apps[which]))
        turn.append(turn.pop(0))
    medians = {which: statistics.median(each) for which, each in times.items()}
    print(name)
    for which, app in apps.items():
        seen = counted(app)
        print(
            f"  {which:8} {medians[which] / 1e6:6.2f} ms"
            f"  {seen['statements']} statements, {seen['commits']} commits"
        )
    parts = [
        statistics.median(times["within="][n : n + CHUNK])
        / statistics.median(times["by hand"][n : n + CHUNK])
        for n in range(0, requests, CHUNK)
    ]
    print(
        f"  within= / by hand: {medians['within='] / medians['by hand']:.2f}"
        f" ({min(parts):.2f} to {max(parts):.2f} over blocks of {CHUNK})"
    )
    for app in apps.values():
        app.store.close()
        app.engine.dispose()


def send(server, app):
    """Answer one request; return its nanoseconds."""
    asked = environ()
    start = time.perf_counter_ns()
    server.send(app, asked)
    took = time.perf_counter_ns() - start
    if not server.status.startswith("200"):
        raise RuntimeError(server.status)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=600, help="of each kind")
    requests = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as directory:
        measure("SQLite", f"sqlite:///{directory}/shop.db", requests)
    with PostgresServer(fsync="on", full_page_writes="on") as postgres:
        measure("PostgreSQL", postgres.new_database(), requests)
    flushing = {"innodb_flush_log_at_trx_commit": 1, "innodb_flush_method": "fsync"}
    with MariaDbServer(**flushing, innodb_doublewrite=1) as mariadb:
        measure("MariaDB", mariadb.new_database(), requests)


if __name__ == "__main__":
    main()
