"""The consumers of docs/how-to/consume-messages.md, each with its broker, for the tests."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import redis
from celery import Celery
from rq import Queue, Retry
from sqlalchemy import NullPool, column, create_engine, select, text

from helpers.repository import ROOT, section
from helpers.servers.processes import ServerProcess, environment

PAGE = ROOT / "docs" / "how-to" / "consume-messages.md"
FILE = re.compile(r"(?ms)^```\{code-block\} python\n:caption: (\S+)\n(.*?)^```$")


def files_of(text):
    return dict(FILE.findall(text))


class Consumer(ServerProcess):
    def __init__(self, broker, command):
        self._broker, self._command = broker, command

    def start(self):
        """Start it; a test waits for its effects."""
        options = {"cwd": self._broker.directory, "env": self._broker.env}
        self._launch(self._command, lambda: True, 1, **options)

    def terminate(self):
        self._process.terminate()

    @property
    def status(self):
        """The exit code; None while it runs."""
        return self._process.poll()


class Broker:
    """The page's files, a broker, and a book of what was done (`proofs.brokers.broker_probe`)."""

    file, effect, command = "", "send_invoice", ()
    runs = 5
    """How often a message that fails is handled."""

    def __init__(self, directory, store, *, plans=None, lease=1.0, **constants):
        self.directory, self.book = directory, directory / "book"
        self.book.touch()
        self._consumers = 0
        introduction = section(PAGE, "Behind a broker")
        files = files_of(introduction) | files_of(section(PAGE, self.title))
        for name, code in files.items():
            (directory / name).write_text(code)
        self.env = environment(
            store,
            lease=lease,
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            BOOK=self.book,
            EFFECT=self.effect,
            PLANS=json.dumps({str(order): plan for order, plan in (plans or {}).items()}),
            CONSTANTS=json.dumps(constants),
        )

    def consumer(self):
        self._consumers += 1
        command = [each.format(number=self._consumers) for each in self.command]
        module = self.file.removesuffix(".py")
        probe = [sys.executable, "-m", "proofs.brokers.broker_probe", module]
        return Consumer(self, [*probe, *command])

    @contextlib.contextmanager
    def holding(self):
        hold = self.directory / "hold"
        hold.touch()
        yield
        hold.unlink()

    def count(self, event, order=None):
        lines = [line.split() for line in self.book.read_text().splitlines()]
        counted = Counter(int(line[1]) for line in lines if line[0] == event)
        return counted if order is None else counted[order]

    def run(self, *arguments):
        command = [sys.executable, *arguments]
        options = {"cwd": self.directory, "env": self.env, "text": True, "timeout": 60}
        return subprocess.run(command, check=True, capture_output=True, **options).stdout

    def effects(self):
        return self.count("effect")

    def set_aside(self):
        return 0


class RabbitBroker(Broker):
    title, file = "RabbitMQ", "rabbitmq_consumer.py"
    queues = ("invoices", "invoices.retry")

    def __init__(self, directory, store, server, query="", **more):
        super().__init__(directory, store, **more)
        self.server = server
        self.env["AMQP_URL"] = server.url + query
        with server.connect() as connection:
            for queue in (*self.queues, "invoices.dead"):
                connection.channel().queue_delete(queue)

    def publish(self, *orders):
        """Publish as the page does, by a process that has the same constants."""
        code = "import json, os, rabbitmq_consumer, rabbitmq_publish\n"
        code += "vars(rabbitmq_consumer).update(json.loads(os.environ['CONSTANTS']))\n"
        self.run("-c", f"{code}rabbitmq_publish.publish(*{list(orders)!r})")

    def waiting(self):
        return [self.messages(queue) for queue in self.queues]

    def set_aside(self):
        return self.messages("invoices.dead")

    def messages(self, queue):
        with self.server.connect() as connection:
            return connection.channel().queue_declare(queue, passive=True).method.message_count


class StreamBroker(Broker):
    title, file = "Redis Streams", "stream_consumer.py"

    def __init__(self, directory, store, **more):
        super().__init__(directory, store, **more)
        url = store.removesuffix("/0") + "/1"
        self.env["STREAM_URL"] = url
        self.client = redis.Redis.from_url(url, decode_responses=True)

    def publish(self, *orders):
        for order in orders:
            self.client.xadd("invoices", {"order": order})

    def waiting(self):
        pending = self.client.xpending("invoices", "senders")["pending"]
        return [self.client.xlen("invoices"), pending]

    def set_aside(self):
        return self.client.xlen("invoices:dead")


class RqBroker(Broker):
    title, file, runs = "RQ", "rq_jobs.py", 2
    command = ("rq", "worker", "--with-scheduler", "--quiet", "invoices", "--url")

    def __init__(self, directory, store, **more):
        super().__init__(directory, store, **more)
        url = store.removesuffix("/0") + "/1"
        self.command = (*self.command, url)
        self.queue = Queue("invoices", connection=redis.Redis.from_url(url))

    def publish(self, *orders):
        for order in orders:
            retry = Retry(max=self.runs - 1, interval=1)
            self.queue.enqueue("rq_jobs.invoice", order, retry=retry)

    def waiting(self):
        queue = self.queue
        return [len(queue), len(queue.scheduled_job_registry), len(queue.started_job_registry)]

    def set_aside(self):
        return len(self.queue.failed_job_registry)


class CeleryBroker(Broker):
    title, file, effect, runs = "Celery", "celery_shop.py", "send", 1
    command = ("celery", "-A", "celery_shop:celery", "worker", "-n", "{number}@%h")
    queue = "celery"

    def __init__(self, directory, store, server=None, **more):
        super().__init__(directory, store, **more)
        self.server, url = server, server.url if server else store.removesuffix("/0") + "/1"
        self.env["BROKER_URL"] = url
        self.client = Celery("client", broker=url)
        self.client.conf.broker_transport_options = {"confirm_publish": True}
        if server:
            with server.connect() as connection:
                connection.channel().queue_delete(self.queue)

    def publish(self, *orders, task="send_invoice"):
        with self.client.connection_for_write() as connection:
            for order in orders:
                self.client.send_task(f"celery_shop.{task}", [order], connection=connection)

    def waiting(self):
        """Count the messages in the queue, and on Redis those that are not acknowledged."""
        with self.client.connection_for_read() as connection:
            channel = connection.channel()
            if self.server:
                return [channel.queue_declare(self.queue, passive=True).message_count]
            return [channel.client.llen(self.queue), channel.client.hlen("unacked")]


class TableBroker(Broker):
    title, file = "A table of your database", "table_consumer.py"

    def __init__(self, directory, url, **more):
        super().__init__(directory, url, **more)
        self.env["FLASK_SQLALCHEMY_DATABASE_URI"] = url
        self.run("-m", "flask", "--app", "table_consumer", "idempotence", "init-db")
        self._in_context("db.create_all()")
        self._engine = create_engine(url, poolclass=NullPool)

    def publish(self, *orders):
        rows = f"[Message(order=order) for order in {list(orders)!r}]"
        self._in_context(f"db.session.add_all({rows})\n    db.session.commit()")

    def waiting(self):
        return [len(self._orders("messages", "failures < 5"))]

    def set_aside(self):
        return len(self._orders("messages", "failures = 5"))

    def effects(self):
        return Counter(self._orders("invoices"))

    def _orders(self, table, condition="true"):
        rows = select(column("order")).select_from(text(table)).where(text(condition))
        with self._engine.connect() as connection:
            return list(connection.scalars(rows))

    def _in_context(self, code):
        return self.run("-c", f"from table_consumer import *\nwith app.app_context():\n    {code}")


def make_broker(kind, directory, store, server=None, **more):
    if kind is TableBroker:
        return kind(directory, server.new_database(), **more)
    return kind(directory, store, *([server] if server else []), **more)


BROKERS = {
    "rabbit": (RabbitBroker, "rabbitmq", {"RETRY_AFTER": 0.5}),
    "stream": (StreamBroker, None, {"RETRY_AFTER": 0.5}),
    "postgres_table": (TableBroker, "postgres", {"RETRY_AFTER": 1.5}),
    "mariadb_table": (TableBroker, "mariadb", {"RETRY_AFTER": 1.5}),
    "rq": (RqBroker, None, {"RETRY_AFTER": 1, "lease": 3.0}),
    "celery": (CeleryBroker, None, {}),
    "celery_on_rabbit": (CeleryBroker, "rabbitmq", {}),
}
"""By name: the class, the fixture of its server, and its constants for tests."""


def thrice(orders, seed=1):
    mixed = [*orders] * 3
    random.Random(seed).shuffle(mixed)
    return mixed


def work_off(consumers, finished, seconds=120, stays=3, *, supervised=False):
    """Start consumers that were killed again until it is, and stays, finished; return how many.

    It has to stay so for longer than a message waits where no queue shows it, as Celery's do.
    """
    killed, deadline = 0, time.monotonic() + seconds
    since = None
    while since is None or time.monotonic() - since < stays:
        since = (since or time.monotonic()) if finished() else None
        assert time.monotonic() < deadline, [consumer.log for consumer in consumers]
        for consumer in consumers:
            if consumer.status is not None:
                assert supervised or consumer.status == -9, consumer.log
                killed += 1
                consumer.start()
        time.sleep(0.1)
    return killed
