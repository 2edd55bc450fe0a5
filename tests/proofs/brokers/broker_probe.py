"""A consumer of docs/how-to/consume-messages.md as it is, but for its effect, which is counted.

Run as `python -m proofs.brokers.broker_probe MODULE [ARGUMENT...]` where the page's files are: it
calls `main()` of the module, or the console script that the arguments name. The environment says
where the book is (BOOK), which function is the effect (EFFECT), what happens to which order
(PLANS), and which constants differ (CONSTANTS).
"""

import contextlib
import functools
import importlib
import json
import os
import signal
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

import shop

from flask_idempotence.guards.once import Once

BOOK = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
HOLD = Path("hold")
"""While there is such a file, messages wait before their blocks."""
PLANS = json.loads(os.environ["PLANS"])


def note(event, order):
    os.write(BOOK, f"{event} {order} {os.getpid()} {time.monotonic()}\n".encode())


def noted(event, order):
    with open(os.environ["BOOK"]) as lines:  # noqa: PTH123 - a descriptor of its own
        return sum(line.startswith(f"{event} {order} ") for line in lines)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def acting(real):

    def effect(what):
        order = int(str(what).split()[-1])  # or a text that ends with it
        note("begun", order)
        first = noted("begun", order) == 1
        plan, _, seconds = PLANS.get(str(order), "").partition(" ")
        if first and plan == "die-before":
            die()
        if first and plan == "hang":
            time.sleep(600)
        if plan == "slow":
            time.sleep(float(seconds))
        if plan == "fail":
            raise OSError("the bank is closed")
        real(what)
        note("effect", order)

    return effect


def watch_blocks():
    """Count the blocks of once(), and have processes die at their end as the plans say."""
    idempotence, once = type(shop.idempotence), type(shop.idempotence).once
    enter, leave = Once.__enter__, Once.__exit__

    def counting(self, scope, *id_, **more):
        block = once(self, scope, *id_, **more)
        for block.order in id_:  # a decorated function has none
            note("delivered", block.order)
        return block

    def leaving(self, *error):
        order = getattr(self, "order", None)
        plan = PLANS.get(str(order)) if self.first and noted("begun", order) == 1 else None
        if plan == "die-after":
            die()
        leave(self, *error)
        if plan == "die-done":
            die()

    def entering(self):
        if HOLD.exists():
            note("held", 0)
        while HOLD.exists():
            time.sleep(0.05)
        return enter(self)

    idempotence.once, Once.__enter__, Once.__exit__ = counting, entering, leaving


def main(name, *command):
    watch_blocks()
    module = importlib.import_module(name)
    effect = os.environ["EFFECT"]
    setattr(module, effect, acting(getattr(module, effect)))
    for constant, value in json.loads(os.environ["CONSTANTS"]).items():
        *path, last = constant.split(".")
        setattr(functools.reduce(getattr, path, module), last, value)
    if not command:
        with contextlib.suppress(KeyboardInterrupt):
            module.main()
    else:
        sys.argv = list(command)
        [script] = entry_points(group="console_scripts", name=command[0])
        sys.exit(script.load()())


if __name__ == "__main__":
    main(*sys.argv[1:])
