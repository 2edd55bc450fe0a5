"""What draft-ietf-httpapi-idempotency-key-header-07 asks for, each requirement in one test.

The table in docs/reports/draft-requirements.md points at these tests.
"""

import re
from io import BytesIO

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, make_app, verdict

from flask_idempotence import Refusal

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
DOCUMENTATION = {"IDEMPOTENCE_PROBLEM_BASE": "https://developer.example.com/idempotency#"}


@pytest.fixture
def keyed():
    """A keyed app whose receipts tell the runs apart."""
    keyed = KeyedApp(lambda: ({"run": keyed.runs}, 201))
    return keyed


def while_running(keyed, send):
    """Send a request whose view sends another one; return what that one was told."""
    told = []

    def view():
        if not told:
            told.append(None)
            told[0] = send()
        return "done"

    keyed.add("/slow", view)
    keyed.send(path="/slow", json={"amount": 5})
    return told[0]


# 1 and 2.1: which requests, and what a key looks like


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_method_that_is_not_idempotent_becomes_so(keyed, method):
    assert keyed.verdicts({}, {}, {}, method=method) == [201, "replay of 201", "replay of 201"]
    assert keyed.runs == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_key_on_a_safe_method_means_nothing(keyed, method):
    expected = 200 if method == "OPTIONS" else 201
    assert keyed.verdicts({}, {}, method=method) == [expected] * 2
    assert list(keyed.store.scan("")) == []


def test_the_quoted_form_is_a_key_and_the_bare_form_is_the_same_one(keyed):
    keys = [f'"{UUID}"', UUID, f' "{UUID}"\t']
    assert keyed.verdicts(*({"key": key} for key in keys)) == [201, *["replay of 201"] * 2]


def test_an_escaped_character_is_the_character(keyed):
    keys = [r'"a\"b\\c"', 'a"b\\c']
    assert keyed.verdicts(*({"key": key} for key in keys)) == [201, "replay of 201"]


@pytest.mark.parametrize(
    "value", ['"open', '"a" b', r'"a\b"', '"a";version=1', '"a", "b"', "a, b", '""', "", "käse"]
)
def test_a_value_that_is_not_one_string_is_refused(keyed, value):
    assert verdict(keyed.send(value)) == "key-invalid"
    assert keyed.runs == 0


def test_two_header_lines_are_refused(keyed):
    lines = [("Idempotency-Key", '"a"'), ("Idempotency-Key", '"a"')]
    answer = keyed.app.test_client().post("/", headers=lines)
    assert (verdict(answer), answer.status_code, keyed.runs) == ("key-invalid", 400, 0)


# 2.2: uniqueness


def test_a_uuid_is_a_key_and_so_is_any_text_up_to_255_characters(keyed):
    keys = [UUID, "1", "order 7 of Ann", "x" * 255, "x" * 256]
    found = keyed.verdicts(*({"key": key} for key in keys))
    assert found == [201, 201, 201, 201, "key-invalid"]


def test_a_key_that_comes_again_with_another_payload_is_refused(keyed):
    found = keyed.verdicts(*({"json": {"amount": amount}} for amount in (5, 6, 5)))
    assert (found, keyed.runs) == ([201, "key-reused", "replay of 201"], 1)


def test_a_key_is_unique_for_one_sender_one_endpoint_and_one_method(keyed):
    keyed.add("/refunds", lambda: ({"run": keyed.runs}, 201))
    ann, bob = ({"Authorization": f"Bearer {name}"} for name in ("ann", "bob"))
    requests = [{"headers": ann}, {"headers": bob}, {"headers": ann, "path": "/refunds"}]
    requests.append({"headers": ann, "method": "PATCH"})
    assert keyed.verdicts(*requests, *requests) == [201] * 4 + ["replay of 201"] * 4
    assert keyed.runs == 4


# 2.3: expiry


@pytest.mark.parametrize(("options", "ttl"), [({}, 86400), ({"ttl": 60}, 60)])
def test_a_key_expires_and_is_then_as_good_as_new(options, ttl):
    keyed = KeyedApp(**options)
    found = keyed.verdicts({})
    keyed.clock.advance(ttl - 1)
    found += keyed.verdicts({})
    keyed.clock.advance(1)
    assert found + keyed.verdicts({}) == [200, "replay of 200", 200]


# 2.4: the fingerprint

PAYLOADS = {
    "an element of the body": ({"json": {"a": 1, "b": 2}}, {"json": {"a": 1, "b": 3}}),
    "the type of an element": ({"json": {"a": 1}}, {"json": {"a": "1"}}),
    "the query": ({"query_string": "a=1"}, {"query_string": "a=2"}),
    "a form": ({"data": {"a": "1"}}, {"data": {"a": "2"}}),
    "a file": ({"data": {"a": (BytesIO(b"1"), "a")}}, {"data": {"a": (BytesIO(b"2"), "a")}}),
    "the bytes": ({"data": b"1"}, {"data": b"2"}),
    "the path": ({"path": "/orders/1"}, {"path": "/orders/2"}),
}


@pytest.mark.parametrize("differing", PAYLOADS)
def test_the_fingerprint_covers_the_whole_payload(keyed, differing):
    keyed.add("/orders/<int:number>", lambda number: ("done", 201))
    assert keyed.verdicts(*PAYLOADS[differing]) == [201, "key-reused"]


def test_the_fingerprint_may_be_of_selected_elements():
    keyed = KeyedApp(ignore=["sent_at"])
    bodies = [{"amount": 5, "sent_at": 1}, {"amount": 5, "sent_at": 2}, {"amount": 6}]
    found = keyed.verdicts(*({"json": body} for body in bodies))
    assert found == [200, "replay of 200", "key-reused"]


def test_the_same_payload_under_another_key_is_another_request(keyed):
    found = keyed.verdicts(*({"key": key, "json": {"amount": 5}} for key in "ab"))
    assert (found, keyed.runs) == ([201, 201], 2)


# 2.5: responsibilities


def test_a_key_that_the_resource_does_not_ask_for_changes_nothing():
    app, runs = make_app(), []
    app.add_url_rule("/", "view", lambda: f"run {runs.append(1) or len(runs)}", methods=["POST"])
    sent = {"headers": {"Idempotency-Key": "not even, a key"}}
    assert [app.test_client().post("/", **sent).text for _ in range(2)] == ["run 1", "run 2"]


# 2.6: enforcement


def test_a_first_request_is_answered_as_if_there_were_no_guard():
    def view():
        return request.get_data(), 201, {"Location": "/payments/1", "X-Seen": "yes"}

    app, keyed = make_app(), KeyedApp(view)
    app.add_url_rule("/", "view", view, methods=["POST"])
    plain, guarded = (
        client.post("/", data="5 euros", headers={"Idempotency-Key": "k"})
        for client in (app.test_client(), keyed.app.test_client())
    )
    assert (
        (guarded.status, guarded.data) == (plain.status, plain.data) == ("201 CREATED", b"5 euros")
    )
    assert guarded.headers.pop("Idempotent-Expires-In") == "86400"
    assert list(guarded.headers) == list(plain.headers)


def test_a_retry_gets_the_first_result_and_is_marked_as_a_replay(keyed):
    first, second = keyed.send(), keyed.send()
    assert (second.status, second.data) == (first.status, first.data)
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert keyed.runs == 1


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_retry_gets_the_first_error(guarantee):
    keyed = KeyedApp(lambda: abort(404), guarantee=guarantee)
    assert keyed.verdicts({}, {}) == [404, "replay of 404"]
    assert keyed.runs == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_transient_error_is_repeated_at_most_once_and_tried_again_at_least_once(status):
    found = {}
    for guarantee in ("at-least-once", "at-most-once"):
        keyed = KeyedApp(lambda: ("no", status), guarantee=guarantee)
        found[guarantee] = keyed.verdicts({}, {})
    replay = f"replay of {status}"
    assert found == {"at-least-once": [status, status], "at-most-once": [status, replay]}


def test_a_concurrent_request_gets_a_conflict(keyed):
    answer = while_running(keyed, lambda: keyed.send(path="/slow", json={"amount": 5}))
    assert (answer.status_code, verdict(answer)) == (409, "key-in-progress")
    assert answer.headers["Retry-After"] == "1"
    assert keyed.runs == 1


def test_a_conflict_needs_no_correction_and_is_not_remembered(keyed):
    assert while_running(keyed, lambda: keyed.send(path="/slow", json={"amount": 5})).is_json
    assert verdict(keyed.send(path="/slow", json={"amount": 5})) == "replay of 200"


# 2.7: errors


def problem(answer):
    assert answer.content_type == "application/problem+json"
    assert answer.json["status"] == answer.status_code
    assert answer.json["title"]
    assert answer.json["detail"]
    return answer.status_code, answer.json["type"]


def test_a_missing_key_is_told_with_a_link_to_the_documentation():
    keyed = KeyedApp(required=True, settings=DOCUMENTATION)
    link = DOCUMENTATION["IDEMPOTENCE_PROBLEM_BASE"] + "key-missing"
    assert problem(keyed.send(None)) == (400, link)
    assert keyed.runs == 0


def test_a_reused_key_is_told_with_a_link_to_the_documentation():
    keyed = KeyedApp(settings=DOCUMENTATION)
    keyed.send(json={"amount": 5})
    link = DOCUMENTATION["IDEMPOTENCE_PROBLEM_BASE"] + "key-reused"
    assert problem(keyed.send(json={"amount": 6})) == (422, link)


def test_a_conflict_is_told_with_a_description():
    keyed = KeyedApp(settings=DOCUMENTATION)
    answer = while_running(keyed, lambda: keyed.send(path="/slow", json={"amount": 5}))
    link = DOCUMENTATION["IDEMPOTENCE_PROBLEM_BASE"] + "key-in-progress"
    assert problem(answer) == (409, link)


def test_an_error_handler_may_add_a_link_header():
    keyed = KeyedApp(required=True)

    @keyed.app.errorhandler(Refusal)
    def with_link(refusal):
        response = refusal.get_response()
        response.headers["Link"] = '<https://developer.example.com/>; rel="describedby"'
        return response

    answer = keyed.send(None)
    assert answer.headers["Link"].endswith('rel="describedby"')
    assert problem(answer) == (400, "urn:flask-idempotence:key-missing")


def test_a_request_that_was_not_corrected_fails_again():
    keyed = KeyedApp(required=True)
    wrong = [{"key": None}, {"key": ""}, {"json": {"amount": 6}}]
    assert keyed.verdicts({"json": {"amount": 5}}) == [200]
    expected = ["key-missing", "key-invalid", "key-reused"]
    assert keyed.verdicts(*wrong, *wrong) == expected * 2
    assert keyed.verdicts({"json": {"amount": 5}}, {"key": "new", "json": {"amount": 6}}) == [
        "replay of 200",
        200,
    ]


def test_another_payload_is_told_first_even_while_the_first_request_runs(keyed):
    answer = while_running(keyed, lambda: keyed.send(path="/slow", json={"amount": 6}))
    assert (answer.status_code, verdict(answer)) == (422, "key-reused")


# 5: security


@pytest.mark.parametrize("value", ["", "x" * 256, "a, b", '"open', "naïve", "a\x7fb"])
def test_a_malformed_key_is_refused_before_anything_else_happens(value):
    identified = []
    keyed = KeyedApp()
    keyed.idempotence.identity_loader(lambda: identified.append(1))
    answer = keyed.send(value, json={"amount": 5})
    assert problem(answer)[0] == 400
    assert (keyed.runs, identified, list(keyed.store.scan(""))) == (0, [], [])


INJECTIONS = ["a:b", "*", "a\tb", "{tag}", "k' OR '1'='1", "../../etc", "\\r\\nFLUSHALL", "k%00"]


def test_nothing_of_a_key_reaches_the_store(redis_url, redis_server):
    keyed = KeyedApp(uri=redis_url)
    for key in (*INJECTIONS, UUID):
        keyed.send(key)
    with redis_server.client() as client:
        names = [name.decode() for name in client.scan_iter()]
        values = b"".join(client.get(name) for name in names)
    stored = [key for key in (*INJECTIONS, UUID) if key != "a\tb"]  # no printable character
    assert len(names) == keyed.runs == len(stored)
    assert all(re.fullmatch(r"idempotence:2:key:view:[0-9a-f]{32}", name) for name in names)
    assert not any(key.encode() in values for key in stored if len(key) > 3)


def test_a_guessed_key_shows_nothing_of_another_sender(keyed):
    secret = {"key": "1", "json": {"amount": 5}, "headers": {"Authorization": "Bearer ann"}}
    assert keyed.send(**secret).json == {"run": 1}
    stranger = keyed.send(**{**secret, "headers": {"Authorization": "Bearer bob"}})
    assert (verdict(stranger), stranger.json) == (201, {"run": 2})


# Where the draft is silent: Stripe's behaviour


def test_what_is_refused_before_the_view_is_not_remembered():
    allowed = []

    def check(view):
        return lambda: view() if allowed else abort(401)

    keyed = KeyedApp(guarantee="at-most-once")
    keyed.add("/checked", lambda: "done", guards=[check], guarantee="at-most-once")
    found = keyed.verdicts({}, path="/checked")
    allowed.append(True)
    assert found + keyed.verdicts({}, {}, path="/checked") == [401, 200, "replay of 200"]


def test_a_refusal_leaves_the_first_result_as_it_was(keyed):
    found = keyed.verdicts({"json": 5}, {"json": 6}, {"key": ""}, {"json": 5})
    assert found == [201, "key-reused", "key-invalid", "replay of 201"]
