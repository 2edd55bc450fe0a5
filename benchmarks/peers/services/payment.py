"""The payment that every service offers, and a ledger outside of the store to count it in.

Runs in the environment of each peer: it needs nothing but the standard library.
"""

import asyncio
import fcntl
import itertools
import json
import os
import time
from pathlib import Path

LEDGER = os.environ.get("PEERS_LEDGER")
"""The directory of the ledger; without one nothing is written, for timing."""

_numbers = itertools.count(100_001)
_NOTE = "thank you for your order, please come again"


class Refused(Exception):
    """What a service turns into its framework's `abort`."""

    def __init__(self, status):
        super().__init__(f"refused with {status}")
        self.status = status


class Run:
    """One run of the view: it is entered in the ledger when it begins, and again when it pays."""

    def __init__(self, user, amount):
        self.user, self.amount = user, amount
        self.act, self.seconds = "pay", 0
        if LEDGER:
            self.number = _enter("runs", user)
            plan = json.loads(Path(LEDGER, "plan.json").read_text())
            self.act, self.seconds = plan[min(self.number, len(plan)) - 1]
        else:
            self.number = next(_numbers)

    def finish(self):
        """Do what the plan says; return the answer."""
        if isinstance(self.act, int):
            raise Refused(self.act)
        if self.act == "raise":
            raise RuntimeError("this run was to fail")
        if LEDGER:
            _enter("effects", self.user)
        answer = {"user": self.user, "amount": self.amount, "run": self.number}
        answer["note"] = _NOTE if self.act == "pay" else self.act
        return answer


def pay(user, amount):
    run = Run(user, amount)
    if run.seconds:
        time.sleep(run.seconds)
    return run.finish()


async def pay_async(user, amount):
    run = Run(user, amount)
    if run.seconds:
        await asyncio.sleep(run.seconds)
    return run.finish()


def user_of(authorization):
    """Return who asks: a bearer's token is a name here."""
    return (authorization or "Bearer nobody").split(" ", 1)[1]


def cookie_of(answer):
    """Return the session cookie to set with an answer, or None."""
    return f"session-of-{answer['user']}" if answer["note"] == "cookie" else None


def _enter(book, user):
    """Append a line; return its number. The lock makes that right over processes."""
    with Path(LEDGER, book).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = len(file.readlines()) + 1
        file.write(f"{user}\n")
    return number
