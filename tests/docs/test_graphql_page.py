"""The application of docs/how-to/graphql.md, as requests of every shape meet it."""

import pytest
from helpers.http_transcripts import GRAPHQL_PAGE, run_blocks

pytestmark = pytest.mark.usefixtures("no_collection")

PAY = "mutation { pay(amount: 1) }"
QUERY = "{ paid }"
DEEP = "{ a" * 20_000


@pytest.fixture
def page():
    return run_blocks(GRAPHQL_PAGE, 1)


@pytest.fixture
def client(page):
    return page["app"].test_client()


def send(client, body, key=None):
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/graphql", json=body, headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        {"query": QUERY},
        {"query": f"query Paid {QUERY}", "operationName": "Paid", "variables": {}},
        {"query": f"query A {QUERY} query B {QUERY}", "operationName": "B"},
        {"query": QUERY, "extensions": {"clientLibrary": {"name": "@apollo/client"}}},
        {"query": "query { ...F } fragment F on Query { paid }", "extensions": None},
    ],
)
def test_queries_pass_and_are_never_remembered(page, client, body):
    for paid in (0, 7):
        assert send(client, body).json == {"data": {"paid": paid}}
        answer = send(client, body, "key")
        assert answer.json == {"data": {"paid": paid}}
        assert "Idempotent-Expires-In" not in answer.headers
        page["payments"].append(7)


MUTATIONS = {
    "a mutation": {"query": PAY},
    "a mutation that is not chosen": {"query": f"query A {QUERY} {PAY}", "operationName": "A"},
    "one that a query is next to": {"query": f"mutation B {{ pay(amount: 1) }} query A {QUERY}"},
    "a subscription": {"query": "subscription { paid }"},
    "no text": {"variables": {}},
    "null": None,
    "a number": 1,
    "a text": QUERY,
    "text that is none": {"query": [QUERY]},
    "an empty text": {"query": ""},
    "fragments alone": {"query": "fragment F on Query { paid }"},
    "no GraphQL": {"query": "{ paid"},
    "surrogates": {"query": "\ud800"},
    "brackets without end": {"query": DEEP},
    "a batch of queries": [{"query": QUERY}, {"query": QUERY}],
    "an empty batch": [],
    "an id": {"id": "sha256:1"},
    "an id besides a query": {"documentId": "sha256:1", "query": QUERY},
    "a hash alone": {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "1"}}},
    "a hash besides a query": {"query": QUERY, "extensions": {"persistedQuery": {}}},
    "extensions of no kind": {"query": QUERY, "extensions": 1},
}


@pytest.mark.parametrize("body", MUTATIONS.values(), ids=MUTATIONS)
def test_all_that_is_not_known_to_be_a_query_needs_a_key(page, client, body):
    answer = send(client, body)
    assert (answer.status_code, answer.headers["Idempotence-Refusal"]) == (400, "key-missing")
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        sent = {"data": f'{{"query": "{QUERY}"}}', "content_type": kind}
        assert client.post("/graphql", **sent).headers["Idempotence-Refusal"] == "key-missing"
    assert page["payments"] == []


def test_a_mutation_is_carried_out_once(page, client):
    answers = [send(client, {"query": PAY}, "key") for _ in range(3)]
    assert [answer.json for answer in answers] == [{"data": {"pay": 1}}] * 3
    assert ["Idempotent-Replayed" in answer.headers for answer in answers] == [False, True, True]
    assert page["payments"] == [1]
    other = send(client, {"query": PAY.replace("1", "2")}, "key")
    assert other.headers["Idempotence-Refusal"] == "key-reused"


def test_errors_release_the_key_whatever_the_status(page, client):
    for query in ("mutation { pay(amount: 5000) }", "mutation { steal }", "mutation {"):
        answer = send(client, {"query": query}, "key")
        assert (answer.status_code, "errors" in answer.json) == (200, True)
        assert "Idempotent-Expires-In" not in answer.headers
    assert client.post("/graphql", data="{", headers={"Idempotency-Key": "key"}).status_code == 400
    assert send(client, {"query": PAY}, "key").json == {"data": {"pay": 1}}


def test_a_batch_with_an_error_in_it_is_not_remembered(page):
    answer = page["app"].response_class
    good, bad = '{"data": {"pay": 1}, "errors": null}', '{"data": {"pay": null}, "errors": [{}]}'
    remembered = {
        body: page["has_no_errors"](answer(body, content_type="application/json"))
        for body in (good, bad, f"[{good}, {good}]", f"[{good}, {bad}]", '{"message": ""}', "{")
    }
    assert [bool(each) for each in remembered.values()] == [True, False, True, False, False, False]


def test_a_query_by_get_passes_and_a_mutation_by_get_is_refused_by_strawberry(page, client):
    assert client.get("/graphql", query_string={"query": QUERY}).json == {"data": {"paid": 0}}
    refused = client.get("/graphql", query_string={"query": PAY})
    assert (refused.status_code, page["payments"]) == (400, [])


def test_with_steps_a_repeat_runs_no_field_again_that_has_succeeded():
    once = """with idempotence.step("pay", amount) as step:
            if step.first:
                step.result = payments.append(amount)"""
    page = run_blocks(GRAPHQL_PAGE, 1, {"payments.append(amount)": once})
    client = page["app"].test_client()
    fails = {"query": "mutation { a: pay(amount: 1) b: pay(amount: 5000) }"}
    assert [("errors" in send(client, fails, "key").json) for _ in range(2)] == [True, True]
    assert page["payments"] == [1]
