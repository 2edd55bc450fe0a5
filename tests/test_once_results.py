"""Results of `once`: what is remembered of them, and what a repeat reads."""

import json
import struct
import time
import zlib

import pytest
from cryptography.fernet import Fernet
from flask import Response
from jobs import Shift, shift_on

from flask_idempotence import ResponseNotStored, current_guard
from flask_idempotence.config.settings import Config
from flask_idempotence.response.records import RecordContext, Records, UnreadableRecord


@pytest.fixture(params=["memory", "redis"])
def shift(request):
    return shift_on(request.param, request)


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
def test_a_result_comes_back_as_it_was(shift, result):
    assert shift.work(result=result) == (True, result)
    again = shift.work(result="another")
    assert again == (False, result)
    assert type(again[1]) is type(result)


def test_a_result_comes_back_as_json_makes_it():
    shift = Shift()
    assert shift.work(result={"pair": (1, 2), 3: "three"})[1] == {"pair": (1, 2), 3: "three"}
    assert shift.work()[1] == {"pair": [1, 2], "3": "three"}


def test_the_result_is_what_it_is_when_the_block_ends():
    shift, result = Shift(), ["begun"]
    with shift.app.app_context(), shift.once() as job:
        assert job.result is None
        job.result = result
        assert job.result is result
        result.append("ended")
    assert shift.work() == (False, ["begun", "ended"])


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
def test_what_is_no_json_is_an_error_and_the_work_counts_as_done(shift, result):
    with pytest.raises(TypeError):
        shift.work(result=result)
    assert shift.runs == 1
    with pytest.raises(ResponseNotStored):
        shift.work()
    shift.end(None)  # who reads no result needs none
    assert shift.runs == 1


def test_an_error_of_the_block_is_not_replaced_by_one_about_its_result():
    shift = Shift()
    with pytest.raises(ValueError, match="the bank"):
        shift.end(ValueError("the bank"), result={1})
    assert shift.word() == "first"


def test_a_result_that_is_too_large_is_not_kept_and_the_work_counts_as_done(shift):
    largest = "x" * (1_048_576 - 2)
    assert shift.work("fits", result=largest)[0]
    assert shift.work("fits") == (False, largest)
    assert shift.work("too large", result=largest + "x")[0]
    with shift.app.app_context(), shift.once("too large") as job:
        assert not job.first
        with pytest.raises(ResponseNotStored, match="result is not known"):
            job.result  # noqa: B018 - reading it is what fails


def test_the_largest_result_is_a_setting_and_counts_bytes():
    shift = Shift(IDEMPOTENCE_KEY_MAX_BODY=6)
    shift.work("fits", result="éé")
    assert shift.work("fits") == (False, "éé")
    shift.work("too large", result="ééé")
    with pytest.raises(ResponseNotStored):
        shift.work("too large")


def test_done_by_hand_is_done_even_where_the_block_raised(shift):
    with pytest.raises(OSError, match="late"):
        shift.end(OSError("late"), result="the money has moved", by_hand=current_guard.keep)
    assert shift.work() == (False, "the money has moved")


def test_released_by_hand_is_free_even_where_the_block_ended_well(shift):
    shift.end(None, result="nothing was there yet", by_hand=current_guard.release)
    assert shift.word() == "first"


def test_who_reads_no_result_needs_none():
    shift = Shift()
    for _ in range(2):
        with shift.app.app_context(), shift.once() as job:
            shift.runs += job.first
    assert shift.runs == 1
    assert shift.work() == (False, None)


KEY, OTHER = Fernet.generate_key(), Fernet.generate_key()


def encrypting(store, *keys):
    return Shift(store=store, IDEMPOTENCE_KEY_ENCRYPTION_KEYS=keys)


def test_with_keys_a_result_is_encrypted_and_old_keys_go_on_reading():
    first = encrypting(None, OTHER)
    first.work(result="iban 42")
    [stored] = first.store._entries.values()
    assert b"iban" not in repr(stored).encode()
    assert encrypting(first.store, KEY, OTHER).work() == (False, "iban 42")


def test_without_keys_a_result_stands_there_for_all_to_read():
    shift = Shift()
    shift.work(result="iban 42")
    assert "iban 42" in str(list(shift.store._entries.values()))


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


def test_a_result_is_good_for_no_other_operation():
    shift = encrypting(None, KEY)
    key, other = shift.key_of("1"), shift.key_of("2")
    entries = shift.store._entries
    entries[key], entries[other] = entries[other], entries[key]
    for id_ in "12":
        with pytest.raises(ResponseNotStored):
            shift.work(id_)


def test_a_result_that_was_brought_back_after_its_time_is_refused(caplog):
    shift = encrypting(None, KEY)
    shift.work(result="iban 42")
    records = shift.app.extensions["idempotence"].engine.records
    records.clock = lambda: time.time() + 86400 + 31
    with pytest.raises(ResponseNotStored):
        shift.work()
    assert shift.runs == 1
    assert "expired" in caplog.text


PLAIN = Records(Config())
K, TTL = RecordContext("k"), 60


def sealed(content):
    return b"\x01" + struct.pack(">I", zlib.crc32(content)) + content


DAMAGED = {
    "nothing": b"",
    "another version": b"\x04" + PLAIN.remember_result(K, 1, TTL)[1:],
    "cut short": PLAIN.remember_result(K, "result", TTL)[:-1],
    "a bit flipped": PLAIN.remember_result(K, "result", TTL)[:-2] + b'x"',
    "no content": sealed(b""),
    "a status": PLAIN.remember_status(K, 200, TTL),
    "an unknown kind": sealed(b"Q1"),
    "no JSON": sealed(b"J{"),
    "no text": sealed(b"J\xff\xff"),
    "JSON and more": sealed(b"J1 2"),
    "an endless list": sealed(b"J" + b"[" * 100_000),
    "a number too long to be read": sealed(b"J" + b"9" * 5000),
}


@pytest.mark.parametrize("record", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_an_error_of_ours(record):
    with pytest.raises(UnreadableRecord):
        PLAIN.result(K, record)


def test_what_is_damaged_in_the_store_is_said_to_whoever_reads_it(redis_url, redis_server, caplog):
    shift = Shift(IDEMPOTENCE_STORAGE_URI=redis_url)
    key, client = shift.key_of(), redis_server.client()
    client.set(key, client.get(key)[:-1] + b"?")
    with pytest.raises(ResponseNotStored):
        shift.work()
    assert shift.runs == 1
    assert "the checksum does not fit" in caplog.text


def test_the_bytes_of_a_result_are_these():
    content = b'J{"paid":5,"to":"\xc3\xa4"}'
    assert PLAIN.remember_result(K, {"paid": 5, "to": "ä"}, TTL) == sealed(content)
    assert PLAIN.result(K, sealed(content)) == json.loads(content[1:])


def test_a_result_is_no_response_and_a_response_no_result():
    with pytest.raises(UnreadableRecord):
        PLAIN.replay(K, PLAIN.remember_result(K, 1, TTL), Response())
    with pytest.raises(UnreadableRecord, match="without a result"):
        PLAIN.result(K, PLAIN.remember(K, Response("done"), TTL))
