"""The scenarios, run on the package that is first on the path: a line of JSON for each."""

import io
import json
import logging
import random
import re
import sys
import uuid
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from itertools import combinations, product
from types import SimpleNamespace

import flask
import httpx
import requests
from apispec import APISpec
from werkzeug.exceptions import HTTPException

import flask_idempotence
from flask_idempotence import MemoryStore, StoreError
from flask_idempotence.client import Retries
from flask_idempotence.client import httpx as by_httpx
from flask_idempotence.client import requests as by_requests
from flask_idempotence.openapi import IdempotencePlugin
from flask_idempotence.testing import FakeClock

from . import tables
from .tables import BLOCKS, BODIES, ENDS, FEW, GUARDS, HOOKS, PLACES, SENDERS, STORIES, VIEWS

NORMAL = [
    (re.compile(r"Date: .*"), "Date: D"),
    (re.compile(r"\d+\.\d ms|(?<=held\t)\d\.\d|(?<=\"age\": )\d\.\d"), "T"),
    (re.compile(r"Set-Cookie: session=[^;]*"), "Set-Cookie: session=S"),
    (re.compile(r"(?<![\w-])(?:[\w-]+\.[\w-]+\.[\w-]{20,}|[\w-]{40,})"), "TOKEN"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}|(?<!\w)[0-9a-f]{12,}|0x[0-9a-f]+"), "HEX"),
    (re.compile(r"/[\w./-]*/(flask_idempotence|site-packages|scenarios\.py)"), r"\1"),
    (re.compile(r", line \d+|\d+ bytes"), ""),
]
F = SimpleNamespace(
    **{name: getattr(flask_idempotence, name) for name in flask_idempotence.__all__}
)
vars(F).update(flask=flask, io=io, sys=sys, UUID=uuid.UUID, timedelta=timedelta, date=date)
vars(F).update(Decimal=Decimal, HTTPException=HTTPException, Retries=Retries, runs=0)
F.Thing = type("Thing", (), {"id": 7, "__repr__": lambda self: "<Thing>"})
F.Lazy = type("Lazy", (), {"__str__": lambda self: "Lazy.", "__repr__": lambda self: "<Lazy>"})


async def _later(*_):
    return "k"


def _throw(error):
    raise error


def _stream(n, fails):
    yield f"part {n}"
    if fails:
        raise KeyError("stream")


def _listen(signal, app):
    F.listener = lambda *_, **__: _throw(KeyError("listener"))  # a signal keeps no reference
    signal.connect(F.listener, app)


def _parts(name):
    head = f'Content-Disposition: form-data; name="f"; filename="{name}"'
    return f"--x\r\n{head}\r\n\r\ncontent\r\n--x--\r\n"


F.answer_later, F.throw, F.stream, F.listen, F.parts = _later, _throw, _stream, _listen, _parts
F.issue, F.redeem, F.forget, F.keep = (
    lambda **given: lambda extension: extension.issue_token(**given),
    lambda **given: lambda extension: extension.redeem_token(**{"token": "x.y", **given}),
    lambda **given: lambda extension: extension.forget(**{"scope": "job", "id": 1, **given}),
    lambda **given: lambda extension: F.current_guard.keep(**given),
)


def _made(text, **names):
    return eval(text, {"F": F, **names})


def _block(name, **given):
    needed = {"once": {"scope": "job"}, "step": {"name": "s"}, "lock": {"name": "s"}}[name]

    def run(extension):
        with getattr(extension, name)(**{**needed, **given}) as block:
            return getattr(block, "first", None)

    return run


for each in ("once", "step", "lock"):
    setattr(F, f"block_of_{each}", lambda each=each, **given: _block(each, **given))


class Log(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []
        for name in ("flask_idempotence", "client", "shop"):
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = [self], False
            logging.getLogger(name).setLevel(logging.INFO)

    def emit(self, record):
        cause = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self.lines.append(f"log {record.levelname} {record.getMessage()}{cause}")


class Faulty(MemoryStore):
    """A store that fails at one of its verbs: before or after the effect, so often."""

    fails, when, times = "", "before", 0


def _fails(verb):
    def call(self, *given, **more):
        fails = verb == self.fails and self.times > 0
        self.times -= verb == self.fails
        if fails and self.when == "before":
            raise StoreError("no answer")
        found = getattr(super(Faulty, self), verb)(*given, **more)
        if fails:
            raise StoreError("no answer")
        return found

    return call


for each in tables.VERBS:
    setattr(Faulty, each, _fails(each))


class Shop:
    """An application on a clock that stands still, with one view; its lines tell all it did."""

    def __init__(self, view="text", guards=(), *, hook="None", blueprint=(), **settings):
        log = Log()
        self.lines, F.runs, self.clock = log.lines, 0, FakeClock()
        self.app = app = flask.Flask("shop")
        app.config["SECRET_KEY"] = "a secret for the scenarios"
        app.config.update({f"IDEMPOTENCE_{name}": value for name, value in settings.items()})
        self.extension = flask_idempotence.Idempotence()
        self.store = None if "STORAGE_URI" in settings else Faulty(clock=self.clock)
        self.extension.init_app(app, store=self.store)
        self.clock.rule(app)
        keeper = app.extensions["idempotence"].engine.keeper
        keeper._schedule, self.tick = lambda at: None, keeper.tick
        _made(hook, app=app, extension=self.extension)
        code = VIEWS.get(view, view)

        def function():
            F.runs += 1
            return code() if callable(code) else _made(code, n=F.runs)

        for guard in reversed(guards):
            function = (_made(GUARDS[guard]) if isinstance(guard, str) else guard)(function)
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "QUERY"]
        target = flask.Blueprint("b", "b") if blueprint else app
        for guard in blueprint:
            _made(GUARDS[guard])(target)
        target.add_url_rule("/", "view", function, methods=methods)
        if blueprint:
            app.register_blueprint(target)
        for signal in vars(flask_idempotence.signals).values():
            if hasattr(signal, "connect") and hasattr(signal, "name"):
                signal.connect(self._note, app)
                signal.note = self._note

    def _note(self, app, signal=None, **given):
        shown = {name: given[name] for name in ("mode", "reason", "outcome") if name in given}
        self.lines.append(f"signal {shown}")

    def send(self, story):
        token = None
        with suppress(Exception):
            token = self.app.test_client().get("/token").json["token"]
        for number, given in enumerate(story, 1):
            step = {"json": {"a": 1}, "key": "k", "token": token, "method": "POST", **given}
            if "data" in step:
                del step["json"]
            self.clock.advance(step.pop("later", 0))
            for name in ("ENABLED", "KEY_ENABLED"):
                if name in step:
                    self.app.config[f"IDEMPOTENCE_{name}"] = step.pop(name)
            client = self.app.test_client()
            if session := step.pop("session", None):
                with client.session_transaction(base_url=step.get("base")) as opened:
                    opened.update(session)
            named = {"Idempotency-Key": step.pop("key"), "Idempotence-Token": step.pop("token")}
            named = {name: value for name, value in named.items() if value is not None}
            step["headers"] = {**named, **step.get("headers", {})}
            step["environ_base"] = {"REMOTE_ADDR": step.pop("ip", "127.0.0.1")}
            step["base_url"] = step.pop("base", None)
            try:
                answer = client.open(step.pop("path", "/"), buffered=True, **step)
                body = answer.get_data(as_text=False)
                told = body.decode("latin") if len(body) < 3000 else f"{len(body)} long"
                head = sorted(f"{name}: {value}" for name, value in answer.headers)
                self.lines += [f"{number} {x}" for x in (answer.status_code, *head, told)]
            except BaseException as error:
                self.lines.append(f"{number} {error!r}")
        self.tick()
        self.lines.append(f"runs {F.runs}")
        return self.lines


def _tried(make, *given):
    """Return what came of it; of an error, its kind and text."""
    try:
        return make(*given)
    except BaseException as error:
        return [f"error {type(error).__name__}: {error}"]


def normal(line):
    for pattern, text in NORMAL:
        line = pattern.sub(text, line)
    return line[:400]


def _argument(place, given):
    made = _made(f"{place}({given})")
    if place in tables.PAIRED or place == "F.one_time_token":
        return Shop("text", [made]).send([{}, {}, {"json": {"a": 2}}, {"json": {"a": 2, "b": 1}}])
    if not callable(made) or isinstance(made, F.Idempotence):
        return [str(made)] if place == "F.Retries" else []
    shop = Shop(lambda: str(made(shop.extension)), ["key"])
    return shop.send([{"key": "1"}, {"key": "2"}])


def _setting(name, value):
    given = {name.removeprefix("IDEMPOTENCE_"): _made(value)}
    shop = Shop("text", ["token", "lock", "key"], **given)
    return shop.send([{}, {"later": 0.5}, {"key": None}, {"later": 400}])


def _nesting(outer, inner, view, form):
    if form == "stacked":
        return Shop(view, [outer, inner]).send([{}] * 3)
    if form == "on a Blueprint":
        return Shop(view, [inner], blueprint=[outer]).send([{}] * 3)
    return Shop(view, [inner], KEY_ALL_ROUTES=True, KEY_METHODS=["POST", "PUT"]).send([{}] * 3)


def _outage(verb, when, times, guard, view, policy):
    shop = Shop(view, [guard], ON_STORE_ERROR=policy)
    vars(shop.store).update(fails=verb, when=when, times=times)
    return shop.send([{}, {"later": 3}, {"later": 11}, {"later": 40}])


def _block_in(outer, inner, end, place):
    def run():
        names = {"extension": shop.extension, "lines": shop.lines, "n": F.runs}
        with _made(BLOCKS[outer], **names) as block:
            shop.lines.append(
                f"outer {getattr(block, 'first', '')} {getattr(block, 'result', '')}"
            )
            if inner != "none":
                with _made(BLOCKS[inner], **names) as within:
                    shop.lines.append(f"inner {getattr(within, 'first', '')}")
            _made(ENDS[end], block=block, **names)
        return "done"

    shop = Shop(run, [] if place in {"task", "text"} else [place])
    if place != "task":
        return shop.send([{}, {}, {"key": "other", "later": 11}])
    with shop.app.app_context():
        for later in (0, 0, 11):
            shop.clock.advance(later)
            shop.lines += [*_tried(lambda: [run()])]
    return shop.lines


def _command(guard, command, stored):
    shop = Shop("text", [guard])
    shop.send([{"key": f"k{n}"} for n in range(stored)])
    with shop.app.app_context(), shop.extension.once("job", 1):
        pass
    words = command.replace("--for 0", "--for 0.01").split()
    done = shop.app.test_cli_runner().invoke(args=["idempotence", *words], input="n\n")
    return [f"exit {done.exit_code} {done.exception!r}", *done.output.splitlines()]


def _client(library, method, *answers):
    lines, left = Log().lines, list(answers)
    rules = Retries(attempts=4, seconds=60, chance=lambda: 0.5)

    def answer(sent, **_):
        lines.append(f"sent a key of {len(sent.headers.get('Idempotency-Key', ''))}")
        told = tables.ANSWERS[left.pop(0) if left else "down"]
        if told is None:
            raise httpx.ReadError("") if library == "httpx" else requests.ConnectionError
        if library == "httpx":
            return httpx.Response(told[0], headers=told[1])
        response = requests.Response()
        response.status_code, response.raw = told[0], io.BytesIO()
        response.headers.update(told[1])
        return response

    def sleep(seconds):
        lines.append(f"slept {seconds:.2f}")

    if library == "httpx":
        transport = httpx.MockTransport(answer)
        mounted = by_httpx.IdempotentTransport(transport, retries=rules, sleep=sleep)
        caller = httpx.Client(transport=mounted)
    else:
        caller, adapter = requests.Session(), requests.adapters.BaseAdapter()
        adapter.send, adapter.close = answer, lambda: None
        caller.mount("http://", by_requests.IdempotentAdapter(rules, adapter=adapter, sleep=sleep))
    lines += _tried(lambda: [caller.request(method, "http://shop.test/").status_code])
    return lines


def _description(one, other, version):
    shop = Shop("text", [one] if other == "none" else [one, other])
    spec = APISpec("Shop", "1", version, plugins=[IdempotencePlugin(shop.app)])
    operations = {method: {"responses": {}} for method in ("get", "post", "put")}
    spec.path("/", operations=operations, view=shop.app.view_functions["view"])
    return json.dumps(spec.to_dict(), indent=0, sort_keys=True).splitlines()


OTHERS = [guard for guard in GUARDS if guard not in FEW]
NUMBERS = range(len(SENDERS))
FAMILIES = {
    "arguments": [
        (_argument, [(place, f"{name}={value}") for place, names in tables.ARGUMENTS.items()
                     for name, value in product(names.split(), tables.VALUES)]),
        (_argument, [(place, ", ".join(pair)) for place, options in tables.PAIRED.items()
                     for pair in combinations(tables.listed(options), 2)]),
    ],
    "settings": [(_setting, product(sys.argv[2].split(), tables.VALUES))],
    "requests": [
        (lambda g, v, s: Shop(v, [g]).send(STORIES[s]), product(FEW, VIEWS, STORIES)),
        (lambda g, v, s: Shop(v, [g]).send(STORIES[s]), product(OTHERS, VIEWS, ["thrice"])),
    ],
    "nestings": [
        (_nesting, product(GUARDS, GUARDS, ("text", "503"), ["stacked"])),
        (_nesting, product(GUARDS, GUARDS, ["text"], ["on a Blueprint"])),
        (_nesting, product(["none"], GUARDS, VIEWS, ["whole app"])),
    ],
    "hooks": [(
        lambda h, g, v: Shop(v, [g], hook=HOOKS[h]).send([{}, {"later": 5}, {"later": 11}]),
        product(HOOKS, FEW, ("text", "503", "raises", "stream")),
    )],
    "bodies": [(
        lambda a, b, g: Shop("reads", [g]).send([_made(BODIES[a]), _made(BODIES[b])]),
        product(BODIES, BODIES, ("lock only", "key")),
    )],
    "senders": [(
        lambda a, b, g: Shop("text", [g]).send([dict(SENDERS[n]) for n in (a, b, a)]),
        ((a, b, ("lock", "key")[(a + b) % 2]) for a, b in product(NUMBERS, NUMBERS)),
    )],
    "outages": [(_outage, product(
        tables.VERBS, ("before", "after"), (1, 2, 99), FEW, ("text", "503", "raises", "stream"),
        ("reject", "allow"),
    ))],
    "blocks": [(_block_in, product(BLOCKS, ["none", *BLOCKS], ENDS, PLACES))],
    "commands": [(_command, product(FEW, tables.COMMANDS, (0, 2)))],
    "clients": [
        (_client, product(["httpx"], ["POST"], *[tables.ANSWERS] * 3)),
        (_client, product(["requests"], ["POST", "DELETE", "GET"], *[tables.ANSWERS] * 2)),
    ],
    "descriptions": [(_description, product(GUARDS, ["none", *GUARDS], ("2.0", "3.1.0")))],
}  # fmt: skip


def main():
    """Run all scenarios of the families, or those that the input names."""
    assert flask_idempotence.__file__.startswith(sys.argv[1]), "another tree comes first"
    only = {tuple(each) for each in json.loads(sys.stdin.read() or "[]")}
    for family in sys.argv[3:] or FAMILIES:
        for run, cases in FAMILIES[family]:
            for each in cases:
                name = ", ".join(map(str, each))
                if only and (family, name) not in only:
                    continue
                random.seed(1)
                lines = [normal(str(line)) for line in _tried(run, *each)]
                sys.stdout.write(json.dumps([family, name, lines]) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
