"""IDEMPOTENCE_DUPLICATE_STATUS: one status for duplicates, or statuses by slug."""

import pytest
from flask import jsonify
from helpers.apps import KEY, make_app
from helpers.once_operations import elsewhere

from flask_idempotence import Idempotence, Refusal, Running, idempotent, no_repeat_submit

IN_PROGRESS = {"key-in-progress": 201}


class Shop:
    """A view behind a guard; another request comes while it runs."""

    def __init__(self, statuses, guard=idempotent):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, IDEMPOTENCE_DUPLICATE_STATUS=statuses)
        self.inside, self.runs = lambda: None, []
        self.app.add_url_rule("/orders", "order", guard(self.view), methods=["POST"])

    def view(self):
        self.runs.append(1)
        found = self.inside()
        return jsonify(done=True) if found is None else found

    def post(self, query=""):
        return self.app.test_client().post(f"/orders?{query}", headers=KEY)

    def attempt(self):
        with self.app.app_context(), self.idempotence.once("orders", 1):
            pass

    def repeat_while_it_runs(self):
        found = []
        self.inside = lambda: found.append(self.post())
        self.post()
        self.inside = lambda: None
        return found[0]


@pytest.mark.parametrize(
    ("statuses", "sent"),
    [(409, 409), (201, 409), (IN_PROGRESS, 201), ({"repeat-submit": 201}, 409), ({}, 409)],
    ids=str,
)
def test_a_request_that_still_runs_has_another_status_by_its_name_only(statuses, sent):
    shop = Shop(statuses)
    answer = shop.repeat_while_it_runs()
    assert (answer.status_code, answer.json["status"]) == (sent, sent)
    assert answer.headers["Idempotence-Refusal"] == "key-in-progress"
    assert answer.headers["Retry-After"] == "1"
    assert answer.json["title"] == "Request in progress"
    # A replay has the status of the first response.
    replay = shop.post()
    assert (replay.status_code, replay.headers["Idempotent-Replayed"]) == (200, "true")


REJECTING = {"lock": no_repeat_submit(60), "key": idempotent(on_repeat="reject")}


@pytest.mark.parametrize(
    ("guard", "statuses", "sent"),
    [
        ("lock", 429, 429),
        ("lock", {"repeat-submit": 202}, 202),
        ("lock", {"key-repeated": 202}, 409),
        ("key", 429, 429),
        ("key", {"key-repeated": 202}, 202),
        ("key", {"repeat-submit": 202}, 409),
    ],
    ids=str,
)
def test_a_duplicate_has_the_status_for_all_or_its_own(guard, statuses, sent):
    shop = Shop(statuses, REJECTING[guard])
    assert [shop.post().status_code for _ in range(2)] == [200, sent]


@pytest.mark.parametrize(
    ("statuses", "sent"),
    [(409, 422), ({"key-repeated": 409}, 422), ({"key-reused": 409}, 409)],
    ids=str,
)
def test_a_key_with_another_request_has_another_status_by_its_name_only(statuses, sent):
    """The Universal Commerce Protocol wants 409."""
    shop = Shop(statuses)
    first, other, repeat = shop.post("amount=1"), shop.post("amount=2"), shop.post("amount=1")
    assert [first.status_code, other.status_code, repeat.status_code] == [200, sent, 200]
    assert (other.json["status"], other.headers["Idempotence-Refusal"]) == (sent, "key-reused")
    assert (other.json["title"], repeat.headers["Idempotent-Replayed"]) == ("Key reused", "true")
    assert "Retry-After" not in other.headers
    assert len(shop.runs) == 1


@pytest.mark.parametrize("how", ["raised", "returned", "answered by a handler"])
@pytest.mark.parametrize("guard", [idempotent, no_repeat_submit(60)], ids=["key", "lock"])
def test_an_operation_that_runs_elsewhere_is_no_result_of_the_guard_around_it(guard, how):
    """Under 201 it could be taken for one, and remembered."""
    shop = Shop(IN_PROGRESS, guard)
    if how == "answered by a handler":
        shop.app.register_error_handler(Refusal, lambda error: ({"code": error.slug}, 201))

    def once():
        try:
            with shop.idempotence.once("orders", 1):
                return None
        except Running as error:
            if how != "returned":
                raise
            return error.get_response()

    shop.inside = once
    with shop.app.app_context(), shop.idempotence.once("orders", 1):
        refused = shop.post()
        with pytest.raises(Running):
            elsewhere(shop.attempt)
    told = (refused.status_code, refused.headers["Idempotence-Refusal"])
    assert told == (201, "key-in-progress")
    again = shop.post()
    assert (again.json, "Idempotent-Replayed" in again.headers) == ({"done": True}, False)
    assert len(shop.runs) == 2
