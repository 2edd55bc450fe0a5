"""A consumer of docs/how-to/brokers.md as it is, but for its effect, which is counted.

Run as `python -m helpers.broker_probe MODULE [ARGUMENT...]` where the page's files are: it calls
`main()` of the module, or the console script that the arguments name. The environment says where
the book is (BOOK), which function is the effect (EFFECT), what happens to which order (PLANS), and
which constants differ (CONSTANTS).
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from importlib.metadata import entry_points

sys.path.insert(0, os.getcwd())

import shop

BOOK = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
PLANS = json.loads(os.environ["PLANS"])


def note(event, order):
    os.write(BOOK, f"{event} {order} {os.getpid()} {time.monotonic()}\n".encode())


def noted(event, order):
    with open(os.environ["BOOK"]) as lines:  # noqa: PTH123 - a descriptor of its own
        return sum(line.startswith(f"{event} {order} ") for line in lines)


def acting(real):
    """Return the effect that does as the order's plan says: in its first run, or in all."""

    def effect(what):
        order = int(str(what).split()[-1])  # or a text that ends with it
        note("begun", order)
        first = noted("begun", order) == 1
        plan, _, seconds = PLANS.get(str(order), "").partition(" ")
        if first and plan == "die-before":
            os.kill(os.getpid(), signal.SIGKILL)
        if first and plan == "hang":
            time.sleep(600)
        if plan == "slow":
            time.sleep(float(seconds))
        if plan == "fail":
            raise OSError("the bank is closed")
        real(what)
        note("effect", order)
        if first and plan == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)

    return effect


def main(name, *command):
    """Replace the effect of a module, and run it."""
    once = type(shop.idempotence).once

    def counting_once(self, scope, id_, **more):
        note("delivered", id_)
        return once(self, scope, id_, **more)

    type(shop.idempotence).once = counting_once
    module = importlib.import_module(name)
    effect = os.environ["EFFECT"]
    setattr(module, effect, acting(getattr(module, effect)))
    for constant, value in json.loads(os.environ["CONSTANTS"]).items():
        setattr(module, constant, value)
    if not command:
        with contextlib.suppress(KeyboardInterrupt):
            module.main()
    else:
        sys.argv = list(command)
        [script] = entry_points(group="console_scripts", name=command[0])
        sys.exit(script.load()())


if __name__ == "__main__":
    main(*sys.argv[1:])
