"""Results of `once`: what is remembered of them, and what a repeat reads."""

import json
import zlib
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import pytest
from cryptography.fernet import Fernet
from flask import Flask, Response
from helpers.once_operations import OnceApp, once_app_on
from helpers.store_assertions import values_of

from flask_idempotence import ResponseNotStored, current_guard
from flask_idempotence.config.settings import Config
from flask_idempotence.response.records import Records, UnreadableRecord

pytestmark = pytest.mark.usefixtures("no_collection")


@pytest.fixture(params=["memory", "redis"])
def once_app(request):
    return once_app_on(request.param, request)


RESULTS = {
    "nothing": None,
    "a truth": True,
    "an integer": 7,
    "a big integer": 2**200,
    "a number": 0.1,
    "a text": "paid",
    "an empty text": "",
    "a text beyond ASCII": "bezahlt: 5 €, \U0001f600",
    "half a character": "\ud800 and \udc80",
    "control characters": '\x00\x1f"\\\u2028',
    "a list": [1, "1", None, [2.5, {}]],
    "an object": {"a": 1, "": [], "ä": {"b": None}},
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_comes_back_as_it_was(once_app, result):
    assert once_app.work(result=result) == (True, result)
    again = once_app.work(result="another")
    assert again == (False, result)
    assert type(again[1]) is type(result)


def test_the_result_is_what_json_makes_of_it_when_the_block_ends():
    once_app, result = OnceApp(), {"pair": (1, 2), 3: "three"}
    with once_app.app.app_context(), once_app.once() as job:
        assert job.result is None
        job.result = result
        assert job.result is result
        result["more"] = True
    assert once_app.work() == (False, {"pair": [1, 2], "3": "three", "more": True})


@dataclass
class Receipt:
    number: int


WRITTEN_BY_THE_APPLICATION = {
    "a UUID": (UUID(int=7), str(UUID(int=7))),
    "a number as it is written": (Decimal("9.90"), "9.90"),
    "a date": (date(2026, 1, 31), "Sat, 31 Jan 2026 00:00:00 GMT"),
    "an object of the application's": ([Receipt(7)], [{"number": 7}]),
}


@pytest.mark.parametrize(
    ("result", "read"), WRITTEN_BY_THE_APPLICATION.values(), ids=WRITTEN_BY_THE_APPLICATION
)
def test_what_app_json_can_write_is_read_as_it_has_written_it(once_app, result, read):
    assert once_app.work(result=result) == (True, result)
    assert once_app.work() == (False, read)


class Unwilling(dict):
    def items(self):
        raise OSError("lost")


def endless():
    result = []
    result.append(result)
    return result


NOT_JSON = {
    "a set": {1},
    "bytes": b"1",
    "an object": object(),
    "a key that is none": {(1, 2): 3},
    "no number": float("nan"),
    "infinity": [float("inf")],
    "an integer too long to be written": 10**5000,
    "what never ends": endless(),
    "what cannot be read": Unwilling(a=1),
}


@pytest.mark.parametrize("result", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_json_is_an_error_and_the_work_counts_as_done(once_app, result):
    with pytest.raises(TypeError):
        once_app.work(result=result)
    assert once_app.runs == 1
    with pytest.raises(ResponseNotStored):
        once_app.work()
    once_app.end(None)  # who reads no result needs none
    assert once_app.runs == 1


def test_an_error_of_the_block_is_not_replaced_by_one_about_its_result():
    once_app = OnceApp()
    with pytest.raises(ValueError, match="the bank"):
        once_app.end(ValueError("the bank"), result={1})
    assert once_app.word() == "first"


def test_the_largest_result_is_a_setting_and_counts_bytes():
    once_app = OnceApp(IDEMPOTENCE_KEY_MAX_BODY=6)
    once_app.work("fits", result="éé")
    assert once_app.work("fits") == (False, "éé")
    assert once_app.work("too large", result="ééé")[0]
    with pytest.raises(ResponseNotStored, match="result is not known"):
        once_app.work("too large")


def test_done_by_hand_is_done_even_where_the_block_raised(once_app):
    with pytest.raises(OSError, match="late"):
        once_app.end(OSError("late"), result="the money has moved", by_hand=current_guard.keep)
    assert once_app.work() == (False, "the money has moved")


KEY, OTHER = Fernet.generate_key(), Fernet.generate_key()


def encrypting(store, *keys):
    return OnceApp(store=store, IDEMPOTENCE_KEY_ENCRYPTION_KEYS=keys)


def test_with_keys_a_result_is_encrypted_and_old_keys_go_on_reading():
    first = encrypting(None, OTHER)
    first.work(result="iban 42")
    [stored] = values_of(first.store).values()
    assert b"iban" not in repr(stored).encode()
    assert encrypting(first.store, KEY, OTHER).work() == (False, "iban 42")


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["without keys", "with another key"])
def test_what_cannot_be_read_is_never_guessed_nor_done_again(keys, caplog):
    first = encrypting(None, OTHER)
    first.work(result="iban 42")
    second = encrypting(first.store, *keys)
    with pytest.raises(ResponseNotStored):
        second.work()
    assert second.runs == 0
    assert "A result cannot be read" in caplog.text
    assert "iban" not in caplog.text


JSON = Flask(__name__).json
PLAIN = Records(Config())
K, TTL = SimpleNamespace(key="k", fingerprint=bytes(16)), 60


def sealed(content):
    return b"2 %08x " % zlib.crc32(content) + content


DAMAGED = {
    "a status": PLAIN.remember_status(K, 200, TTL),
    "JSON and more": sealed(b"result 1 2"),
    "an endless list": sealed(b"result " + b"[" * 100_000),
    "a number too long to be read": sealed(b"result " + b"9" * 5000),
}


@pytest.mark.parametrize("record", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_an_error_of_ours(record):
    """Any bytes, and any content under a good checksum, are in test_records."""
    with pytest.raises(UnreadableRecord):
        PLAIN.result(K, record)


def test_the_bytes_of_a_result_are_these():
    content = b'result {"paid":5,"to":"\xc3\xa4"}'
    assert PLAIN.remember_result(K, {"paid": 5, "to": "ä"}, TTL, JSON) == sealed(content)
    assert PLAIN.result(K, sealed(content)) == json.loads(content[7:])


def test_a_result_is_no_response_and_a_response_no_result():
    with pytest.raises(UnreadableRecord):
        PLAIN.replay(K, PLAIN.remember_result(K, 1, TTL, JSON), Response())
    with pytest.raises(UnreadableRecord, match="without a result"):
        PLAIN.result(K, PLAIN.remember(K, Response("done"), TTL)[0])
