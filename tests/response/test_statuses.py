"""IDEMPOTENCE_DUPLICATE_STATUS: one status for duplicates, or statuses by slug."""

import json
import threading

import pytest
import requests
from flask import jsonify
from helpers.apps import make_app
from helpers.callers.http_callers import serving
from helpers.once_operations import elsewhere

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    Refusal,
    Running,
    idempotent,
    no_repeat_submit,
)

KEY = {"Idempotency-Key": "one"}
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

    def post(self):
        return self.app.test_client().post("/orders", headers=KEY)

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
    answer = Shop(statuses).repeat_while_it_runs()
    assert (answer.status_code, answer.json["status"]) == (sent, sent)
    assert answer.headers["Idempotence-Refusal"] == "key-in-progress"
    assert answer.headers["Retry-After"] == "1"
    assert answer.json["title"] == "Request in progress"


@pytest.mark.parametrize(
    ("statuses", "sent"),
    [(429, 429), ({"repeat-submit": 202}, 202), ({"key-repeated": 202}, 409)],
    ids=str,
)
def test_a_duplicate_has_the_status_for_all_or_its_own(statuses, sent):
    shop = Shop(statuses, no_repeat_submit(60))
    assert [shop.post().status_code for _ in range(2)] == [200, sent]


def test_a_replay_has_the_status_of_the_first_response():
    shop = Shop({"key-in-progress": 201, "key-repeated": 202})
    assert shop.repeat_while_it_runs().status_code == 201
    replay = shop.post()
    assert (replay.status_code, replay.headers["Idempotent-Replayed"]) == (200, "true")


@pytest.mark.parametrize("how", ["raised", "returned", "answered by a handler"])
@pytest.mark.parametrize("guard", [idempotent, no_repeat_submit(60)], ids=["key", "lock"])
def test_an_operation_that_runs_elsewhere_is_no_result_of_the_guard_around_it(guard, how):
    """Under 201 it could be taken for one, and remembered."""
    shop = Shop(IN_PROGRESS, guard)
    if how == "answered by a handler":
        enveloped(shop.app, 201)

    def once():
        try:
            with shop.idempotence.once("orders", 1):
                return None
        except Running as error:
            if how != "returned":
                raise
            return error.get_response()

    def attempt():
        with shop.app.app_context(), shop.idempotence.once("orders", 1):
            pass

    shop.inside = once
    with shop.app.app_context(), shop.idempotence.once("orders", 1):
        refused = shop.post()
        with pytest.raises(Running):
            elsewhere(attempt)
    assert (refused.status_code, refused.headers["Idempotence-Refusal"]) == (
        201,
        "key-in-progress",
    )
    shop.inside = lambda: None
    again = shop.post()
    assert (again.json, "Idempotent-Replayed" in again.headers) == ({"done": True}, False)
    assert len(shop.runs) == 2


def enveloped(app, status):
    """Have an error handler answer every refusal with this status, as many applications do."""
    app.register_error_handler(Refusal, lambda error: ({"code": error.slug}, status))


def test_at_most_once_remembers_it_as_it_does_a_409():
    shop = Shop(IN_PROGRESS, idempotent(guarantee="at-most-once"))
    shop.inside = lambda: shop.idempotence.once("orders", 1).__enter__() and None
    with shop.app.app_context(), shop.idempotence.once("orders", 1):
        shop.post()
    again = shop.post()
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert len(shop.runs) == 1


@pytest.mark.parametrize("statuses", [409, IN_PROGRESS], ids=str)
def test_the_client_goes_on_until_the_first_request_is_done(call, pauses, statuses):
    """The second of two requests with one key is sent 201 with the header, and comes back."""
    app, runs = make_app(IDEMPOTENCE_DUPLICATE_STATUS=statuses), []
    is_running, may_end = threading.Event(), threading.Event()

    @app.post("/orders")
    @idempotent
    def order():
        runs.append(1)
        is_running.set()
        assert may_end.wait(20)
        return {"order": 7}, 201

    with serving(app) as url:
        first = threading.Thread(
            target=requests.post, args=[f"{url}/orders"], kwargs={"headers": KEY}
        )
        first.start()
        assert is_running.wait(20)

        def meanwhile():
            may_end.set()
            first.join()

        pauses.meanwhile = meanwhile
        answer = call("POST", f"{url}/orders", headers=KEY)
    assert (pauses, runs) == ([1], [1])  # Retry-After
    assert json.loads(answer.content) == {"order": 7}
    assert answer.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key-in-progres": 201}, "Did you mean 'key-in-progress'?"),
        ({"key-reused": 201}, "'key-reused' is not one of its slugs"),
        ({"key-missing": 201}, "repeat-submit, token-spent, key-repeated, key-in-progress"),
        ({"repeat-submit": "201"}, "'repeat-submit' needs an integer"),
        ({"repeat-submit": True}, "'repeat-submit' needs an integer"),
        ({"repeat-submit": None}, "'repeat-submit' needs an integer"),
        ({"repeat-submit": 199}, "from 200 to 599"),
        ({"repeat-submit": 600}, "from 200 to 599"),
        (199, "from 200 to 599"),
        (600, "from 200 to 599"),
        (True, "integer"),
        (4.5, "integer"),
        (["repeat-submit"], "mapping"),
        (None, "Must not be None."),
    ],
)
def test_an_unknown_slug_or_what_is_no_status_is_refused_at_start(given, said):
    with pytest.raises(ConfigurationError) as caught:
        make_app(IDEMPOTENCE_DUPLICATE_STATUS=given)
    assert "IDEMPOTENCE_DUPLICATE_STATUS" in str(caught.value)
    assert said in str(caught.value)
