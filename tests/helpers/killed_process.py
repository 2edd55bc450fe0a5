"""A warm process whose children each send one request, and are killed at one step of it.

Run as `python -m helpers.killed_process` with the URL of a database. A line on its input, a JSON
object with `step`, `key` and `amount`, makes one child; for each child a line comes back, with
what it was answered, or without.
"""

import json
import os
import signal
import sys
import threading

import psycopg  # noqa: F401 - so that the children have it
import pymysql  # noqa: F401 - the same

from helpers.payment_database import PaymentApp

STEPS = (
    "before the claim",
    "after the claim",
    "in the view",
    "before the commit",
    "after the commit",
    "before the answer",
)
LEASE = 2.0


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def before(thing, name, act):
    real = getattr(thing, name)

    def acting(*args, **kwargs):
        act()
        return real(*args, **kwargs)

    setattr(thing, name, acting)


def after(thing, name, act):
    real = getattr(thing, name)

    def acting(*args, **kwargs):
        result = real(*args, **kwargs)
        act()
        return result

    setattr(thing, name, acting)


def die_at(step, site):
    session = site.session()
    if step == "before the claim":
        before(site.store, "claim", die)
    elif step == "after the claim":
        after(site.store, "claim", die)
    elif step == "before the commit":
        before(session, "commit", die)
    elif step == "after the commit":
        after(session, "commit", die)
    elif step == "before the answer":
        after(site.app, "full_dispatch_request", die)


def answer(url, step, key, amount):
    """Send the request, in a process of its own."""

    def view(session):
        paid = site.pay(session, amount)
        if step == "in the view":
            die()
        if step == "frozen":
            stop()
        return paid

    site = PaymentApp(url, view, prepare=False, deadline=30, settings={"IDEMPOTENCE_LEASE": LEASE})
    with site.app.app_context():
        die_at(step, site)
        found = site.post(key=key)
    return {
        "status": found.status_code,
        "json": found.json,
        "replayed": "Idempotent-Replayed" in found.headers,
    }


def child(url, order, out):
    try:
        told = answer(url, **order)
    except BaseException as error:  # whatever it is, the test shall see it
        told = {"error": repr(error)}
    os.write(out, json.dumps(told).encode())
    os._exit(0)


def tell(number, **what):
    sys.stdout.write(json.dumps({"number": number, **what}) + "\n")
    sys.stdout.flush()


def serve(url):
    told = threading.Lock()

    def wait(pid, source, number):
        with os.fdopen(source, "rb") as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        with told:
            tell(number, **json.loads(said or b"{}"))

    for number, line in enumerate(sys.stdin):
        source, out = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(source)
            child(url, json.loads(line), out)
        os.close(out)
        with told:
            tell(number, pid=pid)
        threading.Thread(target=wait, args=(pid, source, number)).start()


if __name__ == "__main__":
    serve(sys.argv[1])
