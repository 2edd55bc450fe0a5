"""Processes that each send one request, and are killed at one step of it."""

import contextlib
import os
import signal
from multiprocessing import get_context

import psycopg  # noqa: F401 - so that the children have it
import pymysql  # noqa: F401 - the same
from helpers.payment_database import PaymentApp
from helpers.servers.processes import environment

LEASE = 2.0


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dying(thing, name, *, after):
    real = getattr(thing, name)

    def act(*args, **kwargs):
        if after:
            real(*args, **kwargs)
        die()

    setattr(thing, name, act)


STEPS = {
    "before the claim": lambda site: dying(site.store, "claim", after=False),
    "after the claim": lambda site: dying(site.store, "claim", after=True),
    "in the view": lambda site: setattr(site, "in_view", die),
    "before the commit": lambda site: dying(site.session(), "commit", after=False),
    "after the commit": lambda site: dying(site.session(), "commit", after=True),
    "before the answer": lambda site: dying(site.app, "full_dispatch_request", after=True),
}
OTHERS = {
    "none": lambda site: None,
    "frozen": lambda site: setattr(site, "in_view", lambda: os.kill(os.getpid(), signal.SIGSTOP)),
}


def send(out, url, step, key, amount):

    def view(session):
        paid = site.pay(session, amount)
        site.in_view()
        return paid

    settings = {"IDEMPOTENCE_LEASE": LEASE}
    site = PaymentApp(url, view, prepare=False, deadline=30, settings=settings)
    site.in_view = lambda: None
    try:
        with site.app.app_context():
            (STEPS | OTHERS)[step](site)
            found = site.post(key=key)
        replayed = "Idempotent-Replayed" in found.headers
        out.send({"status": found.status_code, "json": found.json, "replayed": replayed})
    except BaseException as error:  # whatever it is, the test shall see it
        out.send({"error": repr(error)})
    os._exit(0)


class Children:
    """Forks of a process that is warm, and has no threads."""

    def __init__(self, url):
        self._url, self._processes = url, get_context("forkserver")
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
        self._processes.set_forkserver_preload([__name__])

    def send(self, step, key, amount=1):
        source, out = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=send, args=(out, self._url, step, key, amount))
        process.start()
        out.close()
        return process, source

    def answer(self, sent):
        process, source = sent
        answer = {}
        with source, contextlib.suppress(EOFError):
            assert source.poll(60)
            answer = source.recv()
        process.join(10)
        return answer

    def answers(self, step, amounts):
        found = []
        for first in range(0, len(amounts), 5):
            some = amounts[first : first + 5]
            sent = [self.send(step, f"key-{amount}", amount) for amount in some]
            found += map(self.answer, sent)
        return found
