"""What is remembered, what runs again: two guarantees, and every way out of a view."""

import pytest
from flask import Response, abort, request
from helpers.apps import FAILURES, KeyedApp, fail, killed, verdict

from flask_idempotence import current_guard


def accepts(response):
    """Return whether a response is worth being remembered, to one application's mind."""
    return response.status_code in (200, 503)


RULES = {
    "final": {},
    "success": {"remember": "success"},
    "a predicate": {"remember": accepts},
    "a predicate that raises": {"remember": lambda response: 1 / 0},
    "at-most-once": {"guarantee": "at-most-once"},
}

TRANSIENT = {401, 403, 408, 409, 425, 429, *range(500, 600)}
STATUSES = {200, 201, 204, 299, 303, 404, 409, 422, 425, 429, 451, 499, 500, 503, 599}

RUNS_AGAIN = {
    "final": TRANSIENT,
    "success": set(range(400, 600)),
    "a predicate": set(range(201, 600)) - {503},
    "a predicate that raises": set(),
    "at-most-once": set(),
}
"""The statuses that are not remembered."""


def outcomes(keyed):
    """Send the same request three times and say what came of each."""
    found = []
    for _ in range(3):
        try:
            found.append(verdict(keyed.send()))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def says(status, how):
    response = Response("said", status)
    if how == "made by an error handler":
        raise LookupError(response)
    return response if how == "returned" else abort(response)


def run_again(rules, how, statuses):
    """Return those of the statuses that are not remembered; each of the others is replayed."""
    keyed = KeyedApp(lambda: says(int(request.args["status"]), how), **RULES[rules])
    keyed.app.register_error_handler(LookupError, lambda error: error.args[0])
    found = set()
    for status in statuses:
        sent = {"key": str(status), "path": f"/?status={status}"}
        runs = keyed.runs
        first, second = keyed.verdicts(sent, sent)
        assert (first, second) in [(status, status), (status, f"replay of {status}")]
        assert keyed.runs - runs == (2 if second == status else 1)
        if second == status:
            found.add(status)
    return found


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("how", ["returned", "aborted", "made by an error handler"])
def test_a_status_is_remembered_or_not_whoever_made_it(rules, how):
    assert run_again(rules, how, STATUSES) == RUNS_AGAIN[rules] & STATUSES


def test_every_status_there_is_is_final_or_transient():
    statuses = range(200, 600)
    assert run_again("final", "returned", statuses) == TRANSIENT.intersection(statuses)


FINAL = {
    "abort(400)": 400,
    "abort(404)": 404,
    "abort with a response": 422,
    "a status in a tuple": 422,
    "a dict without success": 200,
    "jsonify without success": 200,
    "problem JSON": 200,
}
"""The failures that a client need not try again; each other one is a 500 or 503, or raises."""


@pytest.mark.parametrize("rules", ["final", "success", "at-most-once"])
@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("way", FAILURES)
def test_a_failure_is_remembered_where_trying_again_is_no_use(way, propagate, rules):
    keyed = KeyedApp(FAILURES[way], settings={"PROPAGATE_EXCEPTIONS": propagate}, **RULES[rules])
    first, *repeats = outcomes(keyed)
    if rules == "at-most-once":  # what no response came of cannot be shown
        shown = f"replay of {first}" if isinstance(first, int) else "response-not-stored"
        assert (repeats, keyed.runs) == ([shown] * 2, 1)
        assert isinstance(first, int) or propagate
    elif rules == "final" and way in FINAL:
        assert (first, repeats, keyed.runs) == (FINAL[way], [f"replay of {first}"] * 2, 1)
    else:
        assert (repeats, keyed.runs) == ([first] * 2, 3)


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("rules", RULES)
def test_an_exception_without_a_handler(rules, propagate):
    settings = {"PROPAGATE_EXCEPTIONS": propagate}
    settings["IDEMPOTENCE_KEY_ENCRYPTION_KEYS"] = ["a" * 43 + "="]
    keyed = KeyedApp(fail, settings=settings, **RULES[rules])
    first, second, _ = outcomes(keyed)
    assert first == ("ValueError" if propagate else 500)
    if rules == "at-most-once":
        assert (second, keyed.runs) == ("response-not-stored" if propagate else "replay of 500", 1)
    elif rules == "a predicate that raises" and not propagate:
        assert (second, keyed.runs) == ("replay of 500", 1)
    else:
        assert (second, keyed.runs) == (first, 3)


def test_a_predicate_of_the_applications_own_tells_successes():
    keyed = KeyedApp(lambda: ("accepted, but no", 202), remember="success")
    keyed.idempotence.result_failed(lambda response: response.status_code == 202)
    keyed.add("/final", lambda: ("accepted, but no", 202))
    keyed.add("/own", lambda: ("accepted, but no", 202), remember=lambda response: True)
    keyed.add("/once", lambda: ("accepted, but no", 202), guarantee="at-most-once")
    assert keyed.verdicts({}, {}) == [202, 202]
    assert keyed.verdicts({}, {}, path="/final") == [202, 202]
    assert keyed.verdicts({}, {}, path="/own") == [202, "replay of 202"]
    assert keyed.verdicts({}, {}, path="/once") == [202, "replay of 202"]
    keyed = KeyedApp(lambda: ("busy", 503))  # a transient status is none to remember all the same
    keyed.idempotence.result_failed(lambda response: False)
    assert keyed.verdicts({}, {}) == [503, 503]


class TestKilled:
    def test_at_most_once_says_for_the_ttl_that_the_outcome_is_unknown(self):
        keyed = KeyedApp(killed, guarantee="at-most-once", ttl=100)
        with pytest.raises(SystemExit):
            keyed.send()
        keyed.clock.advance(29.9)
        assert keyed.verdicts({}) == ["key-in-progress"]
        keyed.clock.advance(0.2)
        answer = keyed.send()
        assert (answer.status_code, verdict(answer)) == (409, "outcome-unknown")
        assert "Retry-After" not in answer.headers
        keyed.clock.advance(99.8)
        assert keyed.verdicts({}) == ["outcome-unknown"]
        keyed.clock.advance(0.2)
        with pytest.raises(SystemExit):
            keyed.send()


class TestByHand:
    @pytest.mark.parametrize("rules", RULES)
    @pytest.mark.parametrize("way", ["a success", "a failure", "an exception"])
    def test_what_is_released_runs_again(self, rules, way):
        def decide():
            current_guard.keep()
            current_guard.release()  # the last word counts

        view = {"a success": lambda: "done", "a failure": lambda: abort(422), "an exception": fail}
        keyed = KeyedApp(lambda: decide() or view[way](), **RULES[rules])
        first, *repeats = outcomes(keyed)
        assert (repeats, keyed.runs) == ([first] * 2, 3)

    @pytest.mark.parametrize("rules", RULES)
    @pytest.mark.parametrize("status", [200, 422, 429, 500])
    def test_what_is_kept_is_replayed(self, rules, status):
        keyed = KeyedApp(lambda: current_guard.keep() or ("said", status), **RULES[rules])
        assert outcomes(keyed) == [status, *[f"replay of {status}"] * 2]
        assert keyed.runs == 1

    def test_what_is_kept_of_an_exception_is_only_that_there_was_one(self):
        keyed = KeyedApp(lambda: current_guard.keep() or fail())
        assert outcomes(keyed) == ["ValueError", *["response-not-stored"] * 2]
        assert keyed.runs == 1
