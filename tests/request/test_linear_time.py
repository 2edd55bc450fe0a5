"""What a client or a server sends is read in time that grows with its length, not its square."""

import json
import subprocess
import time
from contextlib import suppress
from functools import partial

import pytest
from flask import request
from helpers.apps import make_app
from helpers.callers.node import DECIDE, MUST_RUN, NODE

from flask_idempotence import RepeatSubmit
from flask_idempotence.client.retries import retry_after
from flask_idempotence.request.key_header import is_unguessable, parse_key
from flask_idempotence.response.refusals import PROBLEM_TYPE, Refusal

SHAPES = {
    "blanks": "a{}b",
    "blanks around": "{0}a{0}",
    "blanks in quotes": '"{}',
    "a list": "{}",
    "parameters": "application/json{}x",
    "words": "{}!",
}
FILLINGS = {"a list": ",", "parameters": "; ", "words": "a-"}
SIZE = 40_000
"""More than any server takes in a header."""


def text_of(shape, size):
    filling = FILLINGS.get(shape, " ")
    return SHAPES[shape].format(filling * (size // len(filling)))


def prefers_html(text):
    return RepeatSubmit().get_headers({"HTTP_ACCEPT": text})


app = make_app()
services = app.extensions["idempotence"].engine.services


def read_token(text):
    services.tokens.verify(app, text)


def who_asks(text, *, header="Authorization", scheme=""):
    with app.test_request_context(headers={header: f"{scheme}{text}"}):
        services.identities.of(app, request)


SCHEMES = ("Bearer", "Digest", "Signature", "OAuth", "AWS4-HMAC-SHA256", "SharedKey")


READERS = {
    "the key": parse_key,
    "Accept": prefers_html,
    "the token": read_token,
    **{f"{scheme} credentials": partial(who_asks, scheme=f"{scheme} ") for scheme in SCHEMES},
    "bare credentials": who_asks,
    "the cookies": partial(who_asks, header="Cookie"),
    "an unguessable key": is_unguessable,
    "Retry-After": lambda text: retry_after({"Retry-After": text}, 0),
    "Date": lambda text: retry_after({"Retry-After": "soon", "Date": text}, 0),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_header_is_read_in_linear_time(reader):
    def seconds_for(size, shape):
        text, begin = text_of(shape, size), time.process_time()
        for _ in range(10):
            with suppress(Refusal):
                READERS[reader](text)
        return time.process_time() - begin

    def is_linear(shape):
        return seconds_for(SIZE, shape) <= 6 * seconds_for(SIZE // 4, shape) + 0.3

    # The collector of garbage may take its time in one of them.
    assert [shape for shape in SHAPES if not any(is_linear(shape) for _ in range(3))] == []


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_script_reads_an_answer_in_linear_time(shape):
    text = text_of(shape, 400_000)
    answers = [
        [409, {"Content-Type": PROBLEM_TYPE}, json.dumps({"type": text})],
        [409, {"Content-Type": text[:SIZE]}, "{}"],
        [409, {"Content-Type": f"{PROBLEM_TYPE}{text[:SIZE]}"}, "{}"],
        [503, {"Retry-After": text[:SIZE]}, ""],
        [409, {"Idempotence-Refusal": text[:SIZE] or "x"}, ""],
    ]
    told = subprocess.check_output(
        [NODE, DECIDE], input=json.dumps(answers), text=True, timeout=60
    )
    assert json.loads(told) == [False] * len(answers)
