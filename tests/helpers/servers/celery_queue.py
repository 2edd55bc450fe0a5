"""A real queue: Celery on Redis, whose workers die where a message tells them to.

What a message brings about is a line in a file, so that what is counted is neither in the
store nor with the broker, and outlives every process.
"""

import os
import signal
import sys
from collections import Counter

from celery import Celery

from helpers.servers.processes import ServerProcess

APP = """
import os, signal, time
from celery import Celery, Task
from flask import Flask
from flask_idempotence import Idempotence, Running

class InContext(Task):
    def __call__(self, *args, **kwargs):
        with shop.app_context():
            return self.run(*args, **kwargs)

shop = Flask("shop")
shop.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_LEASE=float(os.environ["LEASE"]),
)
idempotence = Idempotence(shop)
celery = Celery("post", broker=os.environ["BROKER"], backend=os.environ["BROKER"],
                task_cls=InContext)
celery.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": float(os.environ["VISIBILITY"])},
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
)
book = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(what, number):
    os.write(book, f"{what} {number} {os.getpid()} {time.monotonic()}\\n".encode())

def noted(what, number):
    with open(os.environ["BOOK"]) as lines:
        return sum(line.startswith(f"{what} {number} ") for line in lines)

def begun(number):
    return noted("begun", number)

def send(number, plan):
    note("begun", number)
    if begun(number) == 1 and plan == "fail":
        raise OSError("the bank is closed")
    if begun(number) == 1 and plan == "die before":
        os.kill(os.getpid(), signal.SIGKILL)
    if begun(number) == 1 and plan == "hang":
        time.sleep(600)
    if plan.startswith("slow"):
        time.sleep(float(plan.split()[1]))
    if plan == "until it is met":
        give_up = time.monotonic() + 100
        while not noted("met", number) and time.monotonic() < give_up:
            time.sleep(0.1)
        time.sleep(2.5)  # longer than the lease
    note("effect", number)
    if begun(number) == 1 and plan == "die after":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"sent {number}"

@celery.task(bind=True, max_retries=None)
def block(self, number, plan="well"):
    try:
        with idempotence.once("mail", number) as job:
            if job.first:
                job.result = send(number, plan)
    except Running as error:
        note("met", number)
        raise self.retry(exc=error, countdown=min(error.remaining, 0.5))
    except OSError as error:
        raise self.retry(exc=error, countdown=0.1)
    note("done", number)
    return job.result

@celery.task(autoretry_for=(Running, OSError), max_retries=None, default_retry_delay=0.5)
@idempotence.once("mail", key=lambda number, plan="well": number)
def decorated(number, plan="well"):
    return send(number, plan)

@celery.task
def impatient(number, plan="well"):
    with idempotence.once("mail", number):
        send(number, plan)
"""


class Worker(ServerProcess):
    """A Celery worker with two child processes."""

    def __init__(self, queue):
        self._queue = queue

    def start(self):
        """Start it, and wait until it takes messages."""
        command = [sys.executable, "-m", "celery", "--app", "post.celery", "worker"]
        command += ["--pool", "prefork", "--concurrency", "2", "--loglevel", "INFO"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        command += ["--hostname", f"{self.directory.name}@test"]
        self._launch(command, lambda: " ready." in self.log, 60, **self._queue.surroundings)

    def shut_down(self):
        """End it warmly, and return its exit code: what it has begun, it finishes."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)


class CeleryQueue:
    """A broker, a store, and a book of what was done."""

    def __init__(self, directory, server, *, lease=1.0, visibility=60.0):
        self.lease = lease
        self.book = directory / "book"
        self.book.touch()
        (directory / "post.py").write_text(APP)
        database = server.url.removesuffix("/0")
        environment = {
            "BROKER": f"{database}/1",
            "STORE": f"{database}/2",
            "BOOK": str(self.book),
            "LEASE": str(lease),
            "VISIBILITY": str(visibility),
        }
        self.surroundings = {"cwd": directory, "env": {**os.environ, **environment}}

        self._client = Celery(
            "client", broker=environment["BROKER"], backend=environment["BROKER"]
        )
        self._client.conf.redis_socket_timeout = 60

    def close(self):
        """Close what the sender has open."""
        self._client.backend.result_consumer.stop()
        self._client.backend.client.close()
        self._client.close()

    def worker(self):
        return Worker(self)

    def post(self, *messages):
        """Publish messages, each a task, a number and a plan; return where their results come."""
        return [
            self._client.send_task(f"post.{task}", [number, plan])
            for task, number, plan in messages
        ]

    def entries(self, what, *numbers):
        """Return what is in the book of one kind about messages: number, process and time."""
        lines = [line.split() for line in self.book.read_text().splitlines()]
        return [
            (int(number), int(process), float(at))
            for kind, number, process, at in lines
            if kind == what and int(number) in numbers
        ]

    def count(self, what, *numbers):
        """Count what is in the book of one kind, by the number of the message."""
        return Counter(number for number, *_ in self.entries(what, *numbers))
