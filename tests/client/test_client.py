"""The caller's side, over real connections: one key for all attempts, and each effect once."""

import importlib
import sys
import time

import pytest
from helpers.callers.http_callers import (
    DONE,
    DOWN,
    HALF,
    RUNNING,
    ByHttpx,
    ByRequests,
    Script,
    serving,
)
from helpers.servers.faults import SilentServer
from helpers.servers.processes import HOST, free_port
from helpers.servers.topologies import make_certificate

from flask_idempotence.client import Retries
from flask_idempotence.client.retries import Attempts


def test_an_operation_has_one_key_for_all_attempts_and_the_next_one_has_another(call, pauses):
    script = Script([b"", HALF, DOWN, RUNNING, DONE])
    with serving(script) as url:
        assert call("POST", url).status_code == 201
        assert call("POST", url).status_code == 201
    first, second = script.keys[:5], script.keys[5:]
    assert len(set(first)) == 1
    assert len(second) == 1
    assert None not in script.keys
    assert first[0] != second[0]
    assert pauses == [0.5, 1, 2, 4]


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "QUERY"]
)
def test_every_method_that_changes_something_is_sent_again_with_its_key(call, pauses, method):
    """A safe request is left alone."""
    script = Script([DOWN, DONE])
    with serving(script) as url:
        status = call(method, url).status_code
    if method in {"GET", "HEAD", "OPTIONS", "QUERY"}:
        assert (status, script.keys, pauses) == (503, [None], [])
    else:
        assert (status, script.methods) == (201, [method] * 2)
        assert len(set(script.keys)) == 1
        assert script.keys[0]


@pytest.mark.parametrize(
    "rules",
    [{"attempts": 4}, {"attempts": 1000, "seconds": 7}],  # the next would be 4, at 3.5
)
def test_a_refused_connection_is_tried_until_the_attempts_or_the_seconds_are_used_up(
    make_caller, pauses, rules
):
    call = make_caller(rules=rules)
    with pytest.raises(call.NO_ANSWER) as caught:
        call("POST", f"http://{HOST}:{free_port()}")
    assert pauses == [0.5, 1, 2]
    assert caught.value.request.headers["Idempotency-Key"]
    assert caught.value.__notes__ == ["Attempts, all with the same key: 4, in 3.5 s."]


def test_a_server_that_says_nothing_is_asked_again(make_caller, pauses):
    call = make_caller(rules={"attempts": 2})
    with SilentServer() as server, pytest.raises(call.NO_ANSWER):
        call("POST", f"http://{server.address}", timeout=0.05)
    assert pauses == [0.5]


@pytest.mark.parametrize(
    ("caller", "timeout"), [(ByRequests, None), (ByRequests, (None, 10)), (ByHttpx, None)]
)
def test_no_attempt_lasts_longer_than_all_of_them_may(pauses, caller, timeout):
    call = caller(Retries(seconds=0.2, attempts=1), pauses)
    begin = time.monotonic()
    with SilentServer() as server, pytest.raises(call.NO_ANSWER):
        call("POST", f"http://{server.address}", timeout=timeout)
    call.close()
    assert time.monotonic() - begin < 2.5


@pytest.mark.parametrize(
    "answer",
    [
        (409, {"Retry-After": "1"}, b"another booking is there"),
        (503, {"Retry-After": "3600"}, b"more patience than there is"),
        (503, {"Idempotent-Replayed": "true", "Retry-After": "1"}, b""),
        (429, {"Idempotence-Refusal": "repeat-submit", "Retry-After": "5"}, b"{}"),
    ],
)
def test_a_final_answer_comes_back_at_once(call, pauses, answer):
    script = Script([answer, DONE])
    with serving(script) as url:
        assert call("POST", url).status_code == answer[0]
    assert len(script.keys) == 1
    assert pauses == []


@pytest.mark.parametrize(
    ("options", "sent"),
    [({}, "order 17"), ({"header": "X-Request-Token", "quoted": True}, '"order 17"')],
)
def test_the_caller_may_name_the_key_and_a_server_want_another_header_and_quotes(
    make_caller, options, sent
):
    header = options.get("header", "idempotency-key")
    script = Script([DOWN, DONE], header=f"HTTP_{header.upper().replace('-', '_')}")
    call = make_caller(**options)
    with serving(script) as url:
        call("POST", url, headers={header: "order 17"})
    assert script.keys == [sent] * 2


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirected_operation_keeps_its_key_and_its_body(call, status):
    script = Script([DOWN, (status, {"Location": "/there"}, b""), b"", DONE])
    with serving(script) as url:
        assert call("POST", url, content=b"7 mugs").status_code == 201
    assert len(set(script.keys)) == 1
    assert script.bodies == [b"7 mugs"] * 4


def test_a_certificate_that_is_not_trusted_is_not_tried_again(make_caller, pauses, tmp_path):
    call = make_caller()
    with (
        serving(Script([DONE]), ssl_context=make_certificate(tmp_path)) as url,
        pytest.raises(call.NO_ANSWER, match=r"(?i)certificate"),
    ):
        call("POST", url)
    assert pauses == []


def test_waits_and_their_reasons_are_logged_and_keys_are_not(call, caplog):
    caplog.set_level("INFO", "flask_idempotence.client")
    replay = (201, {"Idempotent-Replayed": "true"}, b"")
    with serving(Script([DOWN, b"", replay])) as url:
        call("POST", f"{url}/orders", headers={"Idempotency-Key": "order-17"})
    first, second, third = [record.getMessage() for record in caplog.records]
    assert first == f"Attempt 1 of 8 at POST {url}/orders: status 503. Again in 0.5 s."
    assert second.startswith(f"Attempt 2 of 8 at POST {url}/orders: ")
    assert third == f"Attempt 3 of 8 at POST {url}/orders: status 201, a replay."
    assert "order-17" not in caplog.text


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://[::1]:8443/a%20b", "POST https://[::1]:8443/a%20b"),
        ("https://api.example.com", "POST https://api.example.com"),
        ("https://u:p@api.example.com/;p?q#f", "POST https://api.example.com/;p"),
        ("https://[broken/path?secret", "POST https://[broken/path"),
        ("custom:user:secret@shop.example/x", "POST"),  # by an adapter of the caller's own
    ],
)
def test_an_address_in_the_log_is_scheme_host_and_path(url, name, caplog):
    caplog.set_level("INFO", "flask_idempotence.client")
    attempts = Attempts(Retries(attempts=1), repeatable=True, method="POST", url=url)
    with pytest.raises(TimeoutError), attempts.one((TimeoutError,)):
        raise TimeoutError
    [record] = caplog.records
    assert record.getMessage() == f"Attempt 1 of 1 at {name}: TimeoutError. Gave up."


@pytest.mark.parametrize("library", ["requests", "httpx"])
def test_a_library_that_is_not_there_is_named_with_the_remedy(library, monkeypatch):
    module = f"flask_idempotence.client.{library}"
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module)
    remedy = rf'pip install "flask-idempotence\[client\]", or pip install {library}'
    with pytest.raises(ImportError, match=remedy):
        importlib.import_module(module)
