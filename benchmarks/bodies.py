#!/usr/bin/env python3
"""Measure what a guard does with JSON that is made to be slow: at most twice the view's own parse.

Each body is as long as JSON may be that counts by its meaning, or has one byte more. What a guard
adds is the processor's time of the fingerprint and of the view's `request.get_json()` after it,
less that of `get_json()` alone and what the shortest body costs; and as a multiple of the parse.

    uv run python benchmarks/bodies.py
"""

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from flask import Flask
from measuring.command import quiet

from flask_idempotence.config.settings import Config
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.fingerprint import (
    LONGEST_JSON,
    Keyring,
    Selection,
    canonical_request,
)
from flask_idempotence.request.proxies import current_request

AIM = 2.0
KEYRING = Keyring(Config())
Shape = Callable[[int, random.Random], str]
"""Makes an element, from its number."""


def main() -> int:
    quiet()
    app = Flask(__name__)
    app.secret_key = "replace me"
    app.add_url_rule("/", "view", lambda: "", methods=["POST"])
    ignoring = Selection(ignored=frozenset({"clicked_at"}), longest_json=IN_MEMORY)
    for limit, selection, rounds in ((LONGEST_JSON, Selection(), 9), (IN_MEMORY, ignoring, 3)):
        worst: dict[str, tuple[float, str]] = {}
        print(f"\n{limit >> 10} KiB{'':<36} parse, µs   guard adds, µs   times   1 byte more, µs")
        for name in SHAPES:
            parse, guard = _times(app, body_of(name, limit), selection, rounds)
            _, longer = _times(app, body_of(name, limit + 1), selection, rounds)
            worst["times"] = max(worst.get("times", (0, "")), (guard / parse, name))
            beyond = guard - AIM * parse
            worst["beyond"] = max(worst.get("beyond", (0, "")), (beyond, name))
            print(f"  {name:<40} {parse:8.0f} {guard:14.0f} {guard / parse:10.2f} {longer:14.0f}")
        (times, slowest), (most, at) = worst["times"], worst["beyond"]
        print(f"worst: {times:.2f} times ({slowest}); {most:.0f} µs beyond {AIM:.0f} times ({at})")
    return 0


def body_of(name: str, size: int) -> bytes:
    """Return JSON of a shape that has exactly so many bytes; blanks fill it up."""
    opening, closing = "{}" if name.startswith("an object") else "[]"
    parts, left, chance = [], size - 1, random.Random(1)
    while True:
        part = SHAPES[name](len(parts), chance)
        left -= len(part.encode()) + 1
        if left < 0:
            break
        parts.append(part)
    text = (opening + ",".join(parts)).encode()
    return text + b" " * (size - len(text) - 1) + closing.encode()


def _same(text: str) -> Shape:
    return lambda _, __: text


def _bits(count: int, form: str = "{}") -> Shape:
    return lambda _, chance: form.format(chance.getrandbits(count))


LINE = {"item": "espresso machine", "quantity": 2, "price": 129.5, "tags": ["kitchen", "gift"]}
SHAPES: dict[str, Shape] = {
    "lines of an order": _same(json.dumps(LINE)),
    "small integers": _same("1"),
    "nulls": _same("null"),
    "empty objects": _same("{}"),
    "empty arrays": _same("[]"),
    "objects of a name": _same('{"a":1}'),
    "objects of an escaped colon": _same(r'{"\u003a":1}'),
    "objects of two names": _same('{"b":1,"a":2}'),
    "objects of a name twice": _same('{"a":1,"a":1}'),
    "empty texts": _same('""'),
    "short texts": _same('"a"'),
    "ASCII texts": _same(f'"{"a" * 1000}"'),
    "Latin texts": _same(f'"{"é" * 100}"'),
    "Chinese texts": _same(f'"{"中" * 100}"'),
    "emojis": _same(f'"{"😀" * 100}"'),
    "escaped texts": _same(json.dumps('\n\t\\"' * 50)),
    "escaped backslashes": _same(json.dumps("\\" * 500)),
    "escaped letters": _same('"' + r"\u0061" * 100 + '"'),
    "escaped control characters": _same('"' + r"\u0000" * 100 + '"'),
    "escaped emojis": _same('"' + r"\ud83d\ude00" * 100 + '"'),
    "short fractions": _same("1.5"),
    "a fraction written otherwise at last": lambda n, _: "1.5" if n < 250 else "1.50",
    "fractions written otherwise": _same("1.50"),
    "exponents": _same("1e5"),
    "exponents, as Python writes them": _same("1e+16"),
    "large exponents": _same("1e308"),
    "fractions of 17 digits": lambda _, chance: repr(chance.random()),
    "very small fractions": lambda _, chance: repr(chance.random() * 1e-300),
    "fractions of 300 digits": _bits(1000, "0.{}"),
    "NaN": _same("NaN"),
    "integers of 18 digits": _bits(60),
    "integers of 30 digits": _bits(100),
    "integers of 4,000 digits": _bits(13_200),
    "arrays, 5 deep": _same("[" * 5 + "]" * 5),
    "arrays, 500 deep": _same("[" * 500 + "]" * 500),
    "arrays, too deep": _same("[" * 5000 + "]" * 5000),
    "objects, 5 deep": _same('{"a":' * 5 + "1" + "}" * 5),
    "objects, 300 deep": _same('{"a":' * 300 + "1" + "}" * 300),
    "an object of numbered names": lambda n, _: f'"{n}":1',
    "an object of names backwards": lambda n, _: f'"{1_000_000 - n:07d}":1',
    "an object of random names": _bits(40, '"{:x}":1'),
    "an object of random names to objects": _bits(40, '"{:x}":{{}}'),
    "an object of long random names": _bits(40, f'"{"a" * 60}{{:x}}":1'),
    "an object of Chinese random names": _bits(40, '"中{:x}":1'),
    "an object of one name again and again": _same('"a":1'),
}


def _times(app: Flask, body: bytes, selection: Selection, rounds: int) -> tuple[float, float]:
    """Return the microseconds of the view's parse, and what a guard adds to them."""
    bare, guarded = (
        min(_time(app, body, chosen) for _ in range(rounds)) for chosen in (None, selection)
    )
    least = min(_time(app, b"[]", selection) - _time(app, b"[]", None) for _ in range(rounds))
    return bare / 1000, (guarded - bare - least) / 1000


def _time(app: Flask, body: bytes, selection: Selection | None) -> int:
    with app.test_request_context("/", method="POST", data=body, content_type="application/json"):
        actual = current_request()
        start = time.process_time_ns()
        if selection is not None:
            KEYRING.digest(app, canonical_request(actual, selection))
        with suppress(RecursionError):
            actual.get_json(silent=True)
        return time.process_time_ns() - start


if __name__ == "__main__":
    sys.exit(main())
