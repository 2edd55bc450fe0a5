"""What a request can cost a worker of nginx grows with its length, and with no power of it."""

import functools
import itertools

import pytest
from helpers.servers.nginx_gateway import JSON, PAY
from helpers.servers.processes import send

pytestmark = pytest.mark.gateway

REQUESTS = 100
NOISE = 0.2  # seconds of processor time


def costs_of(gateway, ask, *sizes):
    for size in sizes:
        before = gateway.nginx.cpu_seconds()
        for _ in range(REQUESTS):
            ask(size)
        yield gateway.nginx.cpu_seconds() - before


def check_linear(gateway, ask, size):
    """Four times the length takes about four times as long; the square of it would be sixteen."""
    quarter, whole = costs_of(gateway, ask, size // 4, size)
    assert whole <= 6 * quarter + NOISE


BLANKS = {
    "Authorization": "Bearer a{}b",
    "Idempotency-Key": "a{}b",
    "Content-Type": "application/json{}x; charset=utf-8",
    "Accept": "application/json, a{}b",
}


@pytest.mark.parametrize("header", BLANKS)
def test_a_header_of_blanks_costs_its_length_and_no_more(gateway, header):
    key = gateway.new_key()
    with gateway.running(key):
        given = {"Authorization": "Bearer alice", "Content-Type": JSON, "Idempotency-Key": key}

        def ask(size):
            sent = given | {header: BLANKS[header].format(" " * size)}
            if header == "Authorization":
                sent["Idempotency-Key"] = "a,b"  # or the view would wait for its bank
            answer = send(gateway.nginx.port, PAY, "POST", sent, b'{"amount": 7}')
            assert answer.status in {400, 409, 422}

        check_linear(gateway, ask, 7600)


def test_names_in_any_order_are_sorted_in_about_their_number(gateway):
    @functools.cache
    def body(count):
        members = (f'"{ALPHABET[rank]}":1' for rank in killing(count))
        return f"{{{','.join(members)}}}".encode()

    def ask(count):
        answer = send(gateway.nginx.plain, "/gateway/canonical", "POST", {}, body(count))
        assert answer.body.startswith(b'{"000":1,"001":1,')

    assert len(body(2000)) < 16 * 1024
    check_linear(gateway, ask, 2000)


BODIES = {
    "blanks": lambda size: "[1" + " " * size,
    "digits": lambda size: "9" * size,
    "zeros": lambda size: "0." + "0" * size + "x",
    "a text without an end": lambda size: '"' + "a" * size,
    "escapes": lambda size: '"' + "\\n" * (size // 2) + '"',
    "nesting": lambda size: "[" * 50 + "[]," * (size // 3) + "[]" + "]" * 50,
    "one name": lambda size: "{" + '"a":1,' * (size // 6) + '"a":1}',
}


@pytest.mark.parametrize("shape", BODIES)
def test_a_body_of_any_shape_costs_its_length_and_no_more(gateway, shape):
    def ask(size):
        body = BODIES[shape](size).encode()
        assert send(gateway.nginx.plain, "/gateway/canonical", "POST", {}, body).status == 200

    check_linear(gateway, ask, 16_000)


DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ALPHABET = ["".join(name) for name in itertools.product(DIGITS[:20], repeat=3)]


def killing(count):
    """Return the order of so many ranks that Lua's own quicksort takes the square of them for.

    Built from its end: each range begins with its least, and has the second of it in its middle.
    The partition takes off those two, and leaves the order that was there before.
    """
    ranks, last = list(range(count)), count - 1
    for first in range(count - 4, -1, -2):
        middle = (first + last) // 2
        ranks[first + 1] = ranks[last - 1]
        ranks[last - 1] = ranks[middle]
        ranks[first], ranks[middle] = first, first + 1
    return ranks
