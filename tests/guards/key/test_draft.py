"""What draft-ietf-httpapi-idempotency-key-header-07 asks for, where no other file shows it.

The table in docs/reports/draft-requirements.md points at the test of each requirement.
"""

from unittest.mock import ANY

from flask import abort, request
from helpers.apps import KeyedApp, make_app

LINK = "https://developer.example.com/idempotency#"


def test_a_key_is_unique_for_one_sender_one_endpoint_and_one_method():
    keyed = KeyedApp(lambda: ({"run": keyed.runs}, 201))
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
    assert (guarded.status, guarded.data) == (plain.status, plain.data) == (ANY, b"5 euros")
    assert guarded.status_code == 201
    assert guarded.headers.pop("Idempotent-Expires-In") == "86400"
    assert list(guarded.headers) == list(plain.headers)


def test_errors_are_told_with_a_description_and_a_link_to_the_documentation():
    def view():
        if not told:
            told["key-in-progress"] = keyed.send(json={"amount": 5}), 409
        return "done"

    told = {}
    keyed = KeyedApp(view, required=True, settings={"IDEMPOTENCE_PROBLEM_BASE": LINK})
    keyed.send(json={"amount": 5})
    told["key-reused"] = keyed.send(json={"amount": 6}), 422
    told["key-missing"] = keyed.send(None), 400
    for name, (answer, status) in told.items():
        assert answer.content_type == "application/problem+json"
        assert (answer.status_code, answer.json["status"]) == (status, status)
        assert answer.json["type"] == LINK + name
        assert answer.json["title"]
        assert answer.json["detail"]
    assert told["key-in-progress"][0].headers["Retry-After"] == "1"
    # It is a conflict of that moment alone.
    assert keyed.verdicts({"json": {"amount": 5}}) == ["replay of 200"]
    assert keyed.runs == 1


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
