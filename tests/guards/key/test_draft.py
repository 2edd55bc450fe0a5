"""What draft-ietf-httpapi-idempotency-key-header-07 asks for, where no other file shows it.

The table in docs/reports/draft-requirements.md points at the test of each requirement.
"""

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, make_app, verdict

LINK = "https://developer.example.com/idempotency#"


@pytest.fixture
def keyed():
    """A keyed app whose receipts tell the runs apart."""
    keyed = KeyedApp(lambda: ({"run": keyed.runs}, 201))
    return keyed


def while_running(keyed, **sent):
    """Send a request whose view sends another one; return what that one was told."""
    told = []

    def view():
        if not told:
            told.append(None)
            told[0] = keyed.send(path="/slow", **sent)
        return "done"

    keyed.add("/slow", view)
    keyed.send(path="/slow", json={"amount": 5})
    return told[0]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_method_that_is_not_idempotent_becomes_so(keyed, method):
    assert keyed.verdicts({}, {}, {}, method=method) == [201, "replay of 201", "replay of 201"]
    assert keyed.runs == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_key_on_a_safe_method_means_nothing(keyed, method):
    expected = 200 if method == "OPTIONS" else 201
    assert keyed.verdicts({}, {}, method=method) == [expected] * 2
    assert list(keyed.store.scan("")) == []


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


def test_a_key_that_the_resource_does_not_ask_for_changes_nothing():
    app, runs = make_app(), []
    app.add_url_rule("/", "view", lambda: f"run {runs.append(1) or len(runs)}", methods=["POST"])
    sent = {"headers": {"Idempotency-Key": "not even, a key"}}
    assert [app.test_client().post("/", **sent).text for _ in range(2)] == ["run 1", "run 2"]


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


def test_a_concurrent_request_gets_a_conflict_and_later_the_result(keyed):
    answer = while_running(keyed, json={"amount": 5})
    assert (answer.status_code, verdict(answer)) == (409, "key-in-progress")
    assert answer.headers["Retry-After"] == "1"
    assert verdict(keyed.send(path="/slow", json={"amount": 5})) == "replay of 200"
    assert keyed.runs == 1


def test_another_payload_is_told_first_even_while_the_first_request_runs(keyed):
    answer = while_running(keyed, json={"amount": 6})
    assert (answer.status_code, verdict(answer)) == (422, "key-reused")


def test_errors_are_told_with_a_description_and_a_link_to_the_documentation():
    keyed = KeyedApp(required=True, settings={"IDEMPOTENCE_PROBLEM_BASE": LINK})
    conflict = while_running(keyed, json={"amount": 5})
    reused = keyed.send(path="/slow", json={"amount": 6})
    told = [(keyed.send(None), 400, "key-missing"), (reused, 422, "key-reused")]
    for answer, status, name in [*told, (conflict, 409, "key-in-progress")]:
        assert answer.content_type == "application/problem+json"
        assert (answer.status_code, answer.json["status"]) == (status, status)
        assert answer.json["type"] == LINK + name
        assert answer.json["title"]
        assert answer.json["detail"]


def test_a_request_that_was_not_corrected_fails_again():
    keyed = KeyedApp(required=True)
    wrong = [{"key": None}, {"key": ""}, {"json": {"amount": 6}}]
    assert keyed.verdicts({"json": {"amount": 5}}) == [200]
    expected = ["key-missing", "key-invalid", "key-reused"]
    assert keyed.verdicts(*wrong, *wrong) == expected * 2
    corrected = keyed.verdicts({"json": {"amount": 5}}, {"key": "new", "json": {"amount": 6}})
    assert corrected == ["replay of 200", 200]


def test_what_is_refused_before_the_view_is_not_remembered():
    """As with Stripe, where the draft is silent."""
    allowed = []

    def check(view):
        return lambda: view() if allowed else abort(401)

    keyed = KeyedApp()
    keyed.add("/checked", lambda: "done", guards=[check], guarantee="at-most-once")
    found = keyed.verdicts({}, path="/checked")
    allowed.append(True)
    assert found + keyed.verdicts({}, {}, path="/checked") == [401, 200, "replay of 200"]
