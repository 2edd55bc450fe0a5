"""What is final and what may be sent again: one table, for the client and for the script."""

import itertools
import json
import re
import subprocess

import pytest
from helpers.callers.http_callers import Answer
from helpers.callers.node import DECIDE, MUST_RUN, NODE, SCRIPT
from helpers.repository import REFERENCE, REFUSALS, text_of

from flask_idempotence.client import Retries
from flask_idempotence.errors import PASSING, SLUGS
from flask_idempotence.response.headers import REFUSAL_HEADER
from flask_idempotence.response.refusals import PROBLEM_TYPE

FINAL = frozenset(SLUGS) - PASSING

STATUSES = [200, 400, 409, 422, 429, 503]


def slugs_in_the_script(name):
    (written,) = re.findall(rf"const {name} = new Set\(\[(.*?)\]\)", SCRIPT.read_text(), re.DOTALL)
    return set(re.findall(r'"([a-z-]+)"', written))


def test_both_have_the_same_table_and_every_refusal_is_in_it():
    assert slugs_in_the_script("PASSING") == PASSING
    assert slugs_in_the_script("FINAL") == FINAL
    assert set(REFUSALS) == PASSING | FINAL


def test_what_may_be_sent_again_is_what_says_when_but_for_the_lock():
    says_when = {slug for slug, error in REFUSALS.items() if error().retry_after is not None}
    assert says_when == PASSING


def test_the_page_of_errors_shows_the_table():
    rows = re.findall(r"(?m)^\| \[`([a-z-]+)`\].* (yes|no) \|$", text_of(REFERENCE / "errors.md"))
    assert {slug for slug, again in rows if again == "yes"} == PASSING
    assert {slug for slug, again in rows if again == "no"} == FINAL


def refusals():
    """Pairs of answers that are one refusal, by its header and by its problem document."""
    document = {"Content-Type": f"{PROBLEM_TYPE}; charset=utf-8"}
    extras = [{}, {"Retry-After": "1"}, {"Idempotent-Replayed": "true"}]
    extras += [{"Idempotent-Stored": "false"}]
    for slug, status, extra in itertools.product(REFUSALS, STATUSES, extras):
        problem = json.dumps({"type": f"https://shop.test/p#{slug}"})
        yield (
            (status, {REFUSAL_HEADER: slug, **extra}, "<p>No.</p>"),
            (status, {**document, **extra}, problem),
        )


def others():
    """Conflicts and unknown refusals."""
    page, document = {"Content-Type": "text/html"}, {"Content-Type": PROBLEM_TYPE}
    kinds = ["about:blank", "urn:x:not-key-in-progress", "urn:x:key-in-progress?", 7, None]
    for extra in ({}, {"Retry-After": "1"}):
        yield 409, extra, ""
        yield 409, extra | page, "<p>No.</p>"
        for kind in kinds:
            yield 409, extra | document, json.dumps({"type": kind})
        for status in STATUSES:
            yield status, extra | {REFUSAL_HEADER: "of-a-later-version"}, ""


def decided_by_python(answers):
    return [Retries().may_pass(Answer(code, headers)) for code, headers, _ in answers]


def test_a_refusal_is_what_it_says_under_any_status():
    for answer, _ in refusals():
        is_passing = any(slug in answer[1].values() for slug in PASSING)
        is_settled = any(name.startswith("Idempotent-") for name in answer[1])
        assert decided_by_python([answer]) == [is_passing and not is_settled]


def test_an_unknown_conflict_is_final_and_so_is_an_unknown_refusal():
    assert not any(decided_by_python(list(others())))


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
def test_the_script_decides_as_the_client_does():
    by_header, by_document = zip(*refusals(), strict=True)
    answers = [*by_header, *by_document, *others()]
    told = subprocess.check_output(
        [NODE, DECIDE], input=json.dumps(answers), text=True, timeout=120
    )
    # A page may be kept from reading the header: the document then says the same.
    expected = decided_by_python([*by_header, *by_header, *others()])
    decided = zip(answers, json.loads(told), expected, strict=True)
    assert len(answers) > 500
    assert [answer for answer, script, client in decided if script != client] == []
