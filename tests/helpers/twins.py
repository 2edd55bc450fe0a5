"""Twin applications: the same view, bare and behind guards, which get the same drawn requests.

A case says what the server passes on of a body, what hooks do to it before the guards, which
guards there are, and how the view reads. `draw(n)` makes case n, always the same one.
"""

import contextlib
import gzip
import io
import random
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from flask import Response, request
from werkzeug.test import EnvironBuilder, run_wsgi_app

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    idempotent,
    no_repeat_submit,
    observed,
    one_time_token,
)
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.input import PIECE
from helpers.apps import bare_app, make_app
from helpers.request_bodies import BYTES, FORM, JSON, PARTS, part

FILE = '; filename="f.txt"'
FIELDS = part("a", "1") + part("b", "22")

BODIES = {
    "JSON": (JSON, b'{"a": 1, "b": [2.50, null], "success": false}'),
    "JSON as UTF-16": (JSON, '{"a": "é"}'.encode("utf-16")),
    "no JSON": (JSON, b'{"a": '),
    "a form": (FORM, b"a=1&b=2&a=3&csrf_token=x"),
    "a form of another encoding": (FORM + "; charset=latin-1", b"a=\xe9&b=%E9&c=%C3%A9"),
    "a form of control characters": (FORM, b"a=\0&\r\n=\n&&=&%zz"),
    "JSON that says it is a form": (FORM, b'{"a": 1}'),
    "fields": (PARTS, FIELDS + b"--x--\r\n"),
    "a file": (PARTS, FIELDS + part("f", "content\0", FILE) + b"--x--\r\n"),
    "no fields": (PARTS, b"--x--\r\n"),
    "parts without an end": (PARTS, FIELDS),
    "parts without a boundary": ("multipart/form-data", FIELDS + b"--x--\r\n"),
    "parts of another charset": (
        PARTS,
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n'
        b"Content-Type: text/plain; charset=no-such\r\n\r\n\xe9\r\n--x--\r\n",
    ),
    "garbage": (BYTES, bytes(range(256))),
    "garbage of fields": (PARTS, b"--x\r\n\xff: \0\r\n\r\n--x\n\n--"),
    "lines": ("text/plain; charset=utf-16", b"a\nbb\r\n\n\0\nccc"),
    "NUL": (JSON, b"\0" * 100),
    "nothing": (BYTES, b""),
    "nothing of a form": (FORM, b""),
    "no type": ("", b"a=1"),
}

LONG = {
    "longer than a piece": (JSON, b'{"a": "' + b"x" * PIECE + b'"}'),
    "a long form": (FORM, b"a=" + b"x" * (IN_MEMORY // 2 + 10) + b"&b=" + b"y" * IN_MEMORY),
    "a long file": (PARTS, FIELDS + part("f", "x" * (IN_MEMORY + 9), FILE) + b"--x--\r\n"),
    "many bytes": (BYTES, b"\0\n" * (IN_MEMORY // 2 + 10)),
    "just as much as is kept": (BYTES, b"x" * IN_MEMORY),
    "one more": (BYTES, b"x" * (IN_MEMORY + 1)),
}


class Waiting(BaseException):
    """A server that would wait for more than the client has to send: a worker would hang."""


class ServerInput:
    """An input of which only the methods of PEP 3333 are there.

    At its end it waits for more, is empty or raises. One that waits does so behind the declared
    length too, where the next request begins.
    """

    def __init__(self, data, end, length):
        self._buffer, self._end, self._left = io.BytesIO(data), end, min(len(data), length)

    def read(self, size=-1):
        size = -1 if size is None else size
        is_beyond = not 0 <= size <= self._left
        if self._end == "waits" and is_beyond:
            raise Waiting
        if self._end == "raises" and is_beyond and (size < 0 or self._left == 0):
            self._left = 0
            raise ConnectionResetError("the client went away")
        return self._take(self._buffer.read(size))

    def readline(self, size=-1):
        line = self._buffer.readline(-1 if size is None else size)
        if not line and size != 0 and self._end != "is empty":
            raise Waiting if self._end == "waits" else ConnectionResetError("the client went away")
        return self._take(line)

    def readlines(self, _=-1):
        return list(self)

    def __iter__(self):
        return iter(self.readline, b"")

    def _take(self, data):
        self._left -= len(data)
        return data


# The readers of a view


def read_raw():
    environ = request.environ
    most = -1 if "wsgi.input_terminated" in environ else request.content_length or 0
    return environ["wsgi.input"].read(most)


def in_pieces():
    pieces = []
    while piece := request.stream.read(7000):
        pieces.append(piece)
    return b"".join(pieces)


def files():
    return [(name, file.filename, file.read()) for name, file in request.files.items(multi=True)]


READERS = {
    "data": lambda: request.get_data(),  # noqa: PLW0108 - of each request
    "form": lambda: list(request.form.items(multi=True)),
    "JSON": lambda: request.get_json(force=True),
    "stream": lambda: request.stream.read(),  # noqa: PLW0108 - of each request
    "lines": lambda: request.stream.readlines(),  # noqa: PLW0108 - of each request
    "pieces": in_pieces,
    "values": lambda: list(request.values.items(multi=True)),
    "files": files,
    "wsgi.input": read_raw,
    "none": lambda: None,
}

# What functions given to a guard do


def faulty():
    raise LookupError("faulty")


def swallowing():
    try:
        return request.get_json(force=True)
    except Exception:
        return "none"


FUNCTIONS = {
    "form": lambda: request.form.get("a"),
    "values": lambda: dict(request.values),
    "files": lambda: [name for name, *_ in files()],
    "JSON": lambda: request.get_json(silent=True),
    "JSON or an error": lambda: request.get_json(),  # noqa: PLW0108 - of each request
    "swallowing": swallowing,
    "data": lambda: request.get_data().hex()[:50],
    "data, uncached": lambda: request.get_data(cache=False).hex()[:50],
    "stream": lambda: request.stream.read(3).hex(),
    "all of the stream": lambda: request.stream.read().hex()[:50],
    "wsgi.input": lambda: read_raw().hex()[:50],
    "nothing": lambda: None,
    "constant": lambda: "k",
    "faulty": faulty,
}

HARMLESS = ["nothing", "constant", "faulty"]
"""Functions that read no body."""

# Hooks before the guards


class Upper:
    def __init__(self, stream):
        self._stream = stream

    def read(self, size=-1):
        return self._stream.read(size).upper()

    def readline(self, size=-1):
        return self._stream.readline(size).upper()

    def readlines(self, _=-1):
        return list(self)

    def __iter__(self):
        return iter(self.readline, b"")


def replace():
    data = read_raw()
    request.environ["wsgi.input"] = io.BytesIO(data[::-1])


def wrap():
    request.environ["wsgi.input"] = Upper(request.environ["wsgi.input"])


def decompress():
    environ = request.environ
    environ["wsgi.input"] = gzip.GzipFile(fileobj=environ["wsgi.input"])
    environ["wsgi.input_terminated"] = True


def decompress_stream():
    request.stream = gzip.GzipFile(fileobj=request.stream)


HOOKS = {
    "none": lambda: None,
    "reads a part": lambda: request.stream.read(3),
    "reads a part of the input": lambda: request.environ["wsgi.input"].read(2),
    "reads a line": lambda: request.stream.readline(),  # noqa: PLW0108 - of each request
    "reads all": lambda: request.stream.read(),  # noqa: PLW0108 - of each request
    "keeps the data": lambda: request.get_data(),  # noqa: PLW0108 - of each request
    "parses the form": lambda: request.form.get("a"),
    "parses the JSON": lambda: request.get_json(silent=True),
    "looks at the stream": lambda: request.stream,
    "replaces": replace,
    "wraps": wrap,
    "decompresses": decompress,
    "decompresses the stream": decompress_stream,
    "raises the limit": lambda: setattr(request, "max_content_length", 10**8),
}

MAKING = {"looks at the stream", "parses the form"}
"""Hooks that leave Werkzeug's stream behind, and the body in it."""

BESIDE = "decompresses the stream"
"""The hook that leaves the server's input in its place, coded, beside a stream of its own."""

CONSUMING = {"reads a part", "reads a part of the input", "reads a line", "reads all", "replaces"}
"""Hooks after which an enforced guard refuses to compare half a body, with an error of ours."""


def inflating(app, *, keeps_header):
    """Return a WSGI middleware that decompresses, and leaves the length as it is."""

    def middleware(environ, start_response):
        environ["wsgi.input"] = gzip.GzipFile(fileobj=environ["wsgi.input"])
        environ["wsgi.input_terminated"] = True
        if not keeps_header:
            del environ["HTTP_CONTENT_ENCODING"]
        return app(environ, start_response)

    return middleware


MIDDLEWARES = {"none": lambda app: app, "inflates": lambda app: inflating(app, keeps_header=True)}

# Guards


@cache
def guards():
    """Return the stacks of guards by name: each a list of decorators, the innermost first."""
    plain = {"lock": no_repeat_submit, "token": one_time_token, "key": idempotent}
    stacks = {name: [(decorate, {})] for name, decorate in plain.items()}
    stacks["key, required"] = [(idempotent, {"required": True})]
    stacks["key, not compared"] = [(idempotent, {"compare": False})]
    stacks["key, at most once"] = [(idempotent, {"guarantee": "at-most-once"})]
    stacks["lock with a choice"] = [(no_repeat_submit, {"only": ("a",)})]
    for what, function in FUNCTIONS.items():
        stacks[f"lock, key={what}"] = [(no_repeat_submit, {"key": function})]
        stacks[f"key, key={what}"] = [(idempotent, {"key": function})]
        stacks[f"key, compare={what}"] = [(idempotent, {"compare": function})]
        for name, decorate in plain.items():
            stacks[f"{name}, unless={what}"] = [(decorate, {"unless": function})]
    stacks["all three"] = [(idempotent, {}), (no_repeat_submit, {}), (one_time_token, {})]
    stacks["twice"] = [(idempotent, {}), (idempotent, {"compare": FUNCTIONS["stream"]})]
    for what in ("stream", "form", "data", "wsgi.input", "JSON"):
        compared = (idempotent, {"compare": FUNCTIONS[what]})
        locked = (no_repeat_submit, {"key": FUNCTIONS[what]})
        stacks[f"compare={what} in a lock"] = [compared, (no_repeat_submit, {})]
        stacks[f"a lock in compare={what}"] = [(no_repeat_submit, {}), compared]
        stacks[f"key={what} outside a key"] = [(idempotent, {}), locked]
        stacks[f"a token in key={what}"] = [(one_time_token, {}), locked]
    return stacks


def reads_itself(stack):
    """Whether a function that is given to a guard reads the body."""
    options = [each for _, options in guards()[stack] for each in options.values()]
    harmless = [FUNCTIONS[name] for name in HARMLESS]
    return any(callable(each) and each not in harmless for each in options)


@dataclass
class Case:
    """What is sent, through what, and how it is read."""

    number: int
    body: str
    content_type: str
    data: bytes = field(repr=False)
    environ: dict
    server: tuple
    cut: int | None
    hook: str
    swallows: bool
    middleware: str
    guards: str
    enforced: tuple
    readers: tuple
    limits: dict
    max_length: int | None
    loader: str
    catches: bool

    @property
    def is_whole(self):
        declared = self.environ.get("CONTENT_LENGTH", "")
        is_short = declared.isdecimal() and int(declared) > len(self.data)
        return self.cut is None and not is_short

    @property
    def length(self):
        """How many bytes the server may pass on, unless it ends the input itself."""
        declared = self.environ.get("CONTENT_LENGTH", "")
        is_told = declared.isdecimal() and "wsgi.input_terminated" not in self.environ
        return int(declared) if is_told else len(self.data)

    def may_differ(self, expected, status):
        """Whether an enforced guard may answer otherwise: by its own error, or by a function's.

        It has an error of its own for a body that was read before, and takes a decoded body that
        is empty for one that broke off. A stream that a hook has made answers 413, when it is read
        again at its end, to a body just as long as the limit; the kept one is empty there.
        """
        is_coded = "HTTP_CONTENT_ENCODING" in self.environ
        is_just_allowed = self.max_length == len(self.data) and not is_coded
        if is_just_allowed and self.hook in MAKING and "TooLarge" in f"{expected.seen}":
            return True
        # A stream of Werkzeug's that such a hook decodes is empty, unless the body has a length.
        is_unknown = self.environ.keys() == {"HTTP_CONTENT_ENCODING"} and self.hook == BESIDE
        is_empty = (self.body.startswith("nothing") or is_unknown) and is_coded
        is_bypassed = self.hook == BESIDE and "wsgi.input" in self.readers
        if is_empty or is_bypassed:
            return True
        is_told = self.hook in CONSUMING and "was read before its guard" in status
        is_faulty = self.loader == "faulty" or "faulty" in self.guards
        return is_told or (is_faulty and "LookupError" in status)


def draw(number, *, long=False, reading=True):
    """Return the case of a number, in which functions may read the body, unless not `reading`."""
    drawn = random.Random(number)
    choose = drawn.choice
    bodies = LONG if long else BODIES
    name = choose(list(bodies))
    content_type, data = bodies[name]
    middleware = "inflates" if drawn.random() < 0.06 else "none"
    # Werkzeug reads lines byte by byte.
    readers = [name for name in READERS if name != "lines" or not long]
    hooks = [name for name in HOOKS if name != "reads a line" or not long]
    hook = choose(hooks) if drawn.random() < 0.6 else "none"
    environ = {}
    if hook.startswith("decompress") or middleware != "none":
        data = gzip.compress(data, mtime=0)
        environ["HTTP_CONTENT_ENCODING"] = "gzip"
    is_terminated = drawn.random() < 0.5
    lengths = ["right"] * 8 + ["missing", "longer", "chunked", "chunked"]
    # Some hooks read on behind a length that is wrong.
    is_read_on = "HTTP_CONTENT_ENCODING" in environ or hook == "reads a part of the input"
    length = choose(lengths if is_read_on else [*lengths, "shorter", "odd"])
    if length == "chunked":
        environ["HTTP_TRANSFER_ENCODING"] = "chunked"
    elif length != "missing":
        declared = len(data)
        declared += {"longer": 7, "shorter": -2}.get(length, 0)
        environ["CONTENT_LENGTH"] = "1e3" if length == "odd" else str(max(0, declared))
    if is_terminated:
        environ["wsgi.input_terminated"] = True
    cut = None
    if drawn.random() < 0.3 and data:
        cut = drawn.randrange(len(data))
        if length == "shorter":
            cut = min(cut, int(environ["CONTENT_LENGTH"]))  # behind it is another request
    ends_early = cut is not None or length == "longer"
    end = (
        choose(["is empty", "raises"]) if ends_early else "is empty" if is_terminated else "waits"
    )
    if environ.get("HTTP_TRANSFER_ENCODING") and not is_terminated:
        end = "waits"
    if end == "waits" and "HTTP_CONTENT_ENCODING" in environ:
        end = "is empty"  # what decompresses reads on behind the end
    kind = "bytes" if end == "is empty" and drawn.random() < 0.3 else "server"
    stack = choose([name for name in guards() if reading or not reads_itself(name)])
    limit = len(data) + choose([-1, 0, 1, 5]) if drawn.random() < 0.2 else None
    limits = choose([
        *[{}] * 8,
        {"max_content_length": max(0, len(data) + choose([-1, 0, 1]))},
        {"max_form_memory_size": 2},
        {"max_form_parts": 1},
    ])  # fmt: skip
    return Case(
        number, name, content_type, data, environ, (kind, end), cut, hook,
        swallows=drawn.random() < 0.7,
        middleware=middleware,
        guards=stack,
        enforced=tuple(drawn.random() < 0.3 for _ in guards()[stack]),
        readers=tuple(choose(readers) for _ in range(choose([1, 1, 2]))),
        limits=limits,
        max_length=None if limit is None else max(0, limit),
        loader=choose(["none"] * 4 + list(FUNCTIONS if reading else HARMLESS)),
        catches=drawn.random() < 0.7,
    )  # fmt: skip


class Twin:
    """An application with one view, which each case puts behind guards of its own, or behind none.

    `flags` are the values of `observe` for a stack of guards, the innermost first; None for one
    that is left out.
    """

    def __init__(self, *, is_bare=False):
        self.case = self.seen = self.flags = None
        self._wrapped = {}
        idempotence = Idempotence()
        idempotence.identity_loader(self._load)
        self.store = MemoryStore()
        self.reasons = []
        self.app = bare_app() if is_bare else make_app(idempotence=idempotence, store=self.store)
        observed.connect(self._note, self.app)
        self.app.before_request(self._hook)
        self.app.add_url_rule("/view", "view", self._enter, methods=["POST"])
        self._token = None if is_bare else idempotence.issue_token

    def send(self, case, flags, times=2):
        """Send a case's request twice; return what came of it: the answers and what was read."""
        self.case, self.flags = case, flags
        self.store.clear("")
        self.reasons.clear()
        self.app.config["MAX_CONTENT_LENGTH"] = case.max_length
        headers = {"Idempotency-Key": f"k{case.number}"}
        if self._token is not None:
            with self.app.app_context():
                headers["Idempotence-Token"] = self._token()
        return [self._send(case, headers) for _ in range(times)]

    def _send(self, case, headers):
        self.seen = None
        environ = EnvironBuilder("/view", method="POST", headers=headers).get_environ()
        environ.pop("CONTENT_LENGTH", None)
        environ.update(case.environ, CONTENT_TYPE=case.content_type)
        kind, end = case.server
        data = case.data[: case.cut]
        environ["wsgi.input"] = (
            io.BytesIO(data) if kind == "bytes" else ServerInput(data, end, case.length)
        )
        app = MIDDLEWARES[case.middleware](self.app)
        try:
            body, status, told = run_wsgi_app(app, environ, buffered=True)
            return Outcome(status, list(told), b"".join(body), self.seen)
        except (Exception, Waiting) as error:
            return Outcome(repr(error), [], b"", self.seen)

    def _note(self, _, reason, **__):
        self.reasons.append(reason)

    def _load(self):
        function = FUNCTIONS.get(self.case.loader) if request else None
        return None if function is None else repr(function())

    def _hook(self):
        with contextlib.suppress(Exception) if self.case.swallows else contextlib.nullcontext():
            HOOKS[self.case.hook]()

    def _enter(self):
        at = self.case.guards, self.flags
        if at not in self._wrapped:
            view = self._view
            for (decorate, options), observe in zip(guards()[at[0]], self.flags, strict=True):
                if observe is not None:
                    view = decorate(**options, observe=observe)(view)
            self._wrapped[at] = view
        return self._wrapped[at]()

    def _view(self):
        case, self.seen = self.case, []
        for name, limit in case.limits.items():
            setattr(request, name, limit)
        for reader in case.readers:
            try:
                self.seen.append(READERS[reader]())
            except Exception as error:
                self.seen.append(repr(error))
                if not case.catches:
                    raise
        answer = Response(repr(self.seen)[:500], headers={"X-Own": "1"})
        answer.set_cookie("seen", case.body.replace(" ", "-"))
        return answer


class Outcome(NamedTuple):
    status: str
    headers: list
    body: bytes
    seen: list | None


class Difference(NamedTuple):
    case: Case
    expected: list
    found: list

    def __repr__(self):
        return f"{self.case}\n  expected {self.expected}\n  found    {self.found}"


def differences_of_observing(numbers, *, long=False):
    """Yield the cases in which guards that only observe change what comes of a request.

    All guards observe at first, beside a bare application. Then a part of them is enforced, beside
    one that has these alone.
    """
    bare, partly, observing, mixed = Twin(is_bare=True), Twin(), Twin(), Twin()
    for case in (draw(number, long=long) for number in numbers):
        flags = case.enforced
        pairs = [(bare, [None] * len(flags), observing, [True] * len(flags))]
        if any(flags) and not all(flags):
            kept = [False if each else None for each in flags]
            pairs.append((partly, kept, mixed, [not each for each in flags]))
        for twin, left, other, right in pairs:
            expected, found = twin.send(case, tuple(left)), other.send(case, tuple(right))
            # A bare application for which the server waits is none to compare with. An enforced
            # guard may notice earlier that a body has broken off.
            is_waiting = any("Waiting" in each.status for each in expected)
            is_refused = twin is partly and not case.is_whole and found[0].status[:3] == "400"
            # Where its input ends early, a GzipFile that was asked for more than it has drops what
            # it has decoded: how much a view gets depends on how much each reader asks for.
            is_coded = "HTTP_CONTENT_ENCODING" in case.environ
            is_dropped = is_coded and not case.is_whole and "EOFError" in f"{found[0].seen}"
            if found != expected and not (is_waiting or is_refused or is_dropped):
                yield Difference(case, expected, found)


def differences_of_enforcing(numbers, *, long=False):
    """Yield the cases in which a view behind guards gets another body, or a client a 500 of ours.

    Of a body that broke off, a view behind a guard gets an error in place of its half. Functions
    that read a body themselves are left out: the view finds what they leave.
    """
    bare, guarded = Twin(is_bare=True), Twin()
    for case in (draw(number, long=long, reading=False) for number in numbers):
        flags = case.enforced
        [expected] = bare.send(case, (None,) * len(flags), times=1)
        [found] = guarded.send(case, (False,) * len(flags), times=1)
        if "Waiting" in expected.status:
            continue
        is_entered = found.seen is not None
        is_same = found == expected._replace(headers=found.headers)
        is_cut_off = not case.is_whole and "ClientDisconnected" in f"{found.status}{found.seen}"
        is_refused = not is_entered and found.status[:1] in ("4", expected.status[:1])
        if not (is_same or is_cut_off or is_refused or case.may_differ(expected, found.status)):
            yield Difference(case, [expected], [found])
