"""The description of guarded views in OpenAPI: what it says, and that it is true."""

import json
import subprocess
from http import HTTPStatus

import pytest
from flask import Response, abort
from helpers.applications.smorest_app import BASE, PATHS, PROBLEM, SMOREST_ERRORS, VALIDATORS, Shop
from helpers.callers.node import MUST_RUN, NODE
from helpers.servers.faults import SilentServer
from hypothesis import example, given
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from flask_idempotence import KeyInvalid, current_guard
from flask_idempotence.request.key_header import VALUE_PATTERN, parse_key
from flask_idempotence.testing import clear_store

SILENCE = (503, "store-unavailable")
RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which the request may be sent again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
REPLAYED = {
    "Idempotent-Replayed": {
        "description": "Set if this is the remembered response to an earlier request.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Idempotent-Expires-In": {
        "description": "Seconds for which this response is remembered.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
PAYMENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Payment"}}}
OTHERS = "Default error response"
ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def problems(*slugs):
    types = {"properties": {"type": {"enum": [BASE + slug for slug in slugs]}}}
    problem = {"$ref": "#/components/schemas/IdempotenceProblem"}
    return {PROBLEM: {"schema": {"allOf": [problem, types]}}}


def refusal(*slugs):
    description = "Set if the guard has refused the request: the reason."
    header = {"description": description, "schema": {"type": "string", "enum": [*slugs]}}
    return {"Idempotence-Refusal": header}


@pytest.mark.parametrize("version", VALIDATORS)
@pytest.mark.parametrize("error_content", [None, SMOREST_ERRORS])
def test_the_description_is_valid(version, error_content):
    validate(Shop(version, error_content=error_content).described)


def test_a_payment_is_described_to_the_letter():
    operation = Shop().operation("/pay")
    assert operation["parameters"] == [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": True,
            "description": "A new key for every new operation, the same one for its repeats; "
            "bare, or as a quoted string. Remembered for 3600 seconds.",
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": 512,
                "pattern": VALUE_PATTERN,
            },
        }
    ]
    assert operation["responses"] == {
        "201": {"description": "Created", "content": PAYMENT, "headers": REPLAYED},
        "400": {
            "description": f"{OTHERS}; Key missing (`key-missing`); Key invalid (`key-invalid`)",
            "headers": refusal("key-missing", "key-invalid"),
            "content": ERROR | problems("key-missing", "key-invalid"),
        },
        "409": {
            "description": f"{OTHERS}; Request in progress (`key-in-progress`); "
            "Response not stored (`response-not-stored`); Outcome unknown (`outcome-unknown`); "
            "Lease lost (`lease-lost`)",
            "headers": RETRY_AFTER
            | refusal("key-in-progress", "response-not-stored", "outcome-unknown", "lease-lost"),
            "content": ERROR
            | problems("key-in-progress", "response-not-stored", "outcome-unknown", "lease-lost"),
        },
        "422": {
            "description": f"{HTTPStatus(422).phrase}; Key reused (`key-reused`)",
            "headers": refusal("key-reused"),
            "content": ERROR | problems("key-reused"),
        },
        "503": {
            "description": f"{OTHERS}; Store unavailable (`store-unavailable`)",
            "headers": RETRY_AFTER | refusal("store-unavailable"),
            "content": ERROR | problems("store-unavailable"),
        },
        "default": {"$ref": "#/components/responses/DEFAULT_ERROR"},
    }


HEADERS = {
    "/pay": [("Idempotency-Key", True)],
    "/refund": [("Refund-Key", False)],
    "/claim": [("Idempotence-Token", False)],
    "/deliver": [],
    "/order": [],
    "/checkout": [("Idempotence-Token", False)],
    "/both": [("Idempotency-Key", False)],
}


def test_the_header_and_the_replay_are_described_where_there_is_one():
    shop = Shop()
    parameters = {path: shop.operation(path).get("parameters", []) for path in PATHS}
    found = {path: [(one["name"], one["required"]) for one in parameters[path]] for path in PATHS}
    assert found == HEADERS
    assert parameters["/checkout"][0]["description"] == (
        "A token issued for the purpose `pay`, unless the form field `idempotence_token` holds it."
    )
    successes = {path: shop.operation(path)["responses"]["201"] for path in PATHS}
    replaying = {path for path, success in successes.items() if success.get("headers") == REPLAYED}
    assert replaying == {"/pay", "/claim", "/deliver", "/both"}


def test_a_store_error_that_lets_the_view_run_is_no_answer():
    shop = Shop(IDEMPOTENCE_ON_STORE_ERROR="allow")
    assert [path for path in PATHS if SILENCE in shop.problems(path)] == ["/pay"]  # by its guard


def test_settings_change_the_description():
    shop = Shop(
        IDEMPOTENCE_KEY_HEADER="X-Key",
        IDEMPOTENCE_KEY_REQUIRED=True,
        IDEMPOTENCE_KEY_GUARANTEE="at-most-once",
        IDEMPOTENCE_KEY_ON_REPEAT="reject",
        IDEMPOTENCE_KEY_TTL=60,
        IDEMPOTENCE_DUPLICATE_STATUS=429,
        IDEMPOTENCE_PROBLEM_BASE="https://example.com/",
    )
    operation = shop.operation("/both")
    [key] = operation["parameters"]
    assert (key["name"], key["required"]) == ("X-Key", True)
    assert "60 seconds" in key["description"]
    assert shop.problems("/both") == {
        (status, f"https://example.com/{slug}")
        for status, slug in [
            (400, "key-missing"),
            (400, "key-invalid"),
            (409, "key-in-progress"),
            (409, "outcome-unknown"),
            (409, "lease-lost"),
            (422, "key-reused"),
            (429, "key-repeated"),
            (429, "repeat-submit"),
            (503, "store-unavailable"),
        ]
    }
    slugs = ["key-repeated", "repeat-submit"]
    assert operation["responses"]["429"]["headers"] == RETRY_AFTER | refusal(*slugs)
    assert "headers" not in operation["responses"]["201"]


CHARACTERS = st.sampled_from('ab"\\\\", ;~\x7f\xe9\x00\t')
LONG = st.integers(250, 260).flatmap(
    lambda size: st.sampled_from(
        ["a" * size, f'"{"a" * size}"', f'"{chr(92) * 2 * size}"', "a" + " " * (size - 2) + "b"]
    )
)


@example('""')
@example('"')
@example("a,b")
@example('"a,b"')
@given(
    (
        st.text(CHARACTERS, max_size=12)
        | st.text(CHARACTERS, max_size=12).map('"{}"'.format)
        | LONG
    ).map(lambda value: value.strip(" \t"))
)
def test_the_schema_of_the_key_takes_exactly_what_the_guard_takes(value):
    try:
        is_key = bool(parse_key(value))
    except KeyInvalid:
        is_key = False
    assert SCHEMA_OF_KEY.is_valid(value) == is_key


SCHEMA_OF_KEY = OAS31Validator(Shop().operation("/pay")["parameters"][0]["schema"])


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
def test_its_pattern_means_the_same_in_javascript():
    values = {"a": True, '"a, b"': True, r'"\""': True, "a,b": False, '"a': False, "\xe9": False}
    code = "const p = new RegExp(process.argv[1], 'u'); "
    code += "console.log(JSON.stringify(JSON.parse(process.argv[2]).map((v) => p.test(v))))"
    command = [NODE, "-e", code, VALUE_PATTERN, json.dumps(list(values))]
    assert json.loads(subprocess.check_output(command, text=True)) == list(values.values())


# What really goes out


def test_the_pattern_of_the_setting_is_described_with_and_without_quotes():
    [key] = Shop(IDEMPOTENCE_KEY_PATTERN="a{3}|b").operation("/both")["parameters"]
    assert key["schema"]["pattern"] == '^"?(?:a{3}|b)"?$'
    matches = OAS31Validator(key["schema"]).is_valid
    values = ["aaa", '"aaa"', "b", '"b"', "aaaa", '"ab"', "xb"]
    assert [matches(value) for value in values] == [True] * 4 + [False] * 3


def test_what_smorest_answers_under_a_status_of_ours_is_described():
    shop = Shop()
    client = shop.app.test_client()
    options = {"content_type": "application/json", "buffered": True}
    for number, (data, inside, status) in enumerate(
        [
            ("{", lambda: None, 400),
            ('{"amount": 5}', lambda: abort(409), 409),
            ('{"amount": 5}', lambda: abort(503), 503),
        ]
    ):
        shop.inside = inside
        headers = {"Idempotency-Key": str(number)}
        answer = client.post("/pay", data=data, headers=headers, **options)
        assert (answer.status_code, answer.mimetype) == (status, "application/json")
        assert shop.check("/pay", answer) == (status, "")


def check_all(shop, path, answers):
    """Check that answers are as described, and with the store's all that is; return them."""
    found = {shop.check(path, answer) for answer in answers}
    assert found == shop.problems(path) - {SILENCE} | {(201, "")}
    return found


def answers_to_keys(shop, path, header, *, rejects=False, kept=False):
    """Provoke one success, its repeat, and every problem that a key may have."""

    def send(key, **options):
        return shop.post(path, {header: key}, **options)

    yield send("one")
    yield send("one")
    yield send("one", amount=6)
    yield send("")
    yield shop.post_while(lambda: send("two"), path, {header: "two"})
    yield answer_of_a_lost_lease(shop, path, {header: "three"})
    yield answer_of_a_stream_cut_off(shop, path, {header: "six"})
    if not rejects:
        send("four")
        yield send("four")
    if kept:
        shop.post_while(killed, path, {header: "five"})
        shop.clock.advance(31)
        yield send("five")


def answer_of_a_stream_cut_off(shop, path, headers):
    shop.inside = lambda: Response(iter(["{}"]), mimetype="application/json")
    shop.post(path, headers, buffered=False).close()
    return shop.post(path, headers)


def answer_of_a_lost_lease(shop, path, headers=()):
    shop.inside = lambda: clear_store(shop.app) and current_guard.ensure_held()
    answer = shop.post(path, headers)
    shop.inside = lambda: None
    return answer


def killed():
    raise SystemExit("worker timeout")


@pytest.mark.parametrize("version", VALIDATORS)
def test_a_payment_answers_what_is_described_and_nothing_else(version):
    shop = Shop(version)
    answers = [*answers_to_keys(shop, "/pay", "Idempotency-Key", kept=True), shop.post("/pay")]
    check_all(shop, "/pay", answers)
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers[:2]] == [None, "true"]


@pytest.mark.parametrize("path", ["/refund", "/deliver"])
def test_other_keys_answer_what_is_described_and_nothing_else(path):
    shop, header = Shop(), {"/refund": "Refund-Key", "/deliver": "X-Delivery"}[path]
    check_all(shop, path, answers_to_keys(shop, path, header, rejects=path == "/refund"))


def test_a_token_for_a_key_answers_what_is_described_and_nothing_else():
    shop = Shop(IDEMPOTENCE_KEY_TTL=600)
    sent = [{"Idempotence-Token": shop.token()} for _ in range(6)]
    answers = [shop.post("/claim"), shop.post("/claim", {"Idempotence-Token": "forged"})]
    answers += [shop.post("/claim", sent[0], amount) for amount in (5, 5, 6)]
    answers.append(shop.post_while(lambda: shop.post("/claim", sent[1]), "/claim", sent[1]))
    answers.append(answer_of_a_lost_lease(shop, "/claim", sent[2]))
    answers.append(answer_of_a_stream_cut_off(shop, "/claim", sent[5]))
    answers += [shop.post("/claim", sent[3]) for _ in range(2)][1:]
    shop.clock.advance(600)
    answers.append(shop.post("/claim", sent[4]))
    check_all(shop, "/claim", answers)


def test_a_token_answers_what_is_described_and_nothing_else():
    shop = Shop()
    mine, late = ({"Idempotence-Token": shop.token("pay")} for _ in range(2))
    answers = [shop.post("/checkout"), shop.post("/checkout", {"Idempotence-Token": "forged"})]
    shop.user = "bob"
    answers.append(shop.post("/checkout", mine))
    shop.user = "ann"
    answers += [shop.post("/checkout", mine) for _ in range(2)]
    shop.clock.advance(400)
    answers.append(shop.post("/checkout", late))
    check_all(shop, "/checkout", answers)


@pytest.mark.parametrize("status", [409, 429, 201])
def test_a_lock_answers_what_is_described_and_nothing_else(status):
    shop = Shop(IDEMPOTENCE_DUPLICATE_STATUS=status)
    answers = [*(shop.post("/order") for _ in range(2)), answer_of_a_lost_lease(shop, "/order")]
    shop.clock.advance(100)
    answers.append(answer_of_a_lost_lease(shop, "/order"))
    found = check_all(shop, "/order", answers)
    assert {(status, "repeat-submit"), (409, "lease-lost")} <= found


@pytest.mark.parametrize("status", [201, 202])
def test_statuses_by_slug_are_described(status):
    statuses = {"key-in-progress": status, "repeat-submit": 429, "key-reused": 409}
    shop = Shop(IDEMPOTENCE_DUPLICATE_STATUS=statuses)
    key = {"Idempotency-Key": "one"}
    answer = shop.post_while(lambda: shop.post("/pay", key), "/pay", key)
    assert shop.check("/pay", answer) == (status, "key-in-progress")
    assert (status, "key-in-progress") in shop.problems("/pay")
    assert (429, "repeat-submit") in shop.problems("/order")
    reused = shop.post("/pay", key, 6)
    assert shop.check("/pay", reused) == (409, "key-reused")
    assert 422 not in {status for status, _ in shop.problems("/pay")}


def test_the_answers_without_a_store_are_described():
    token = Shop().token
    with SilentServer() as server:
        options = {"deadline": 0.05}
        shop = Shop(IDEMPOTENCE_STORAGE_URI=server.url, IDEMPOTENCE_STORAGE_OPTIONS=options)
        keys = dict.fromkeys(("Idempotency-Key", "Refund-Key", "X-Delivery"), "one")
        for path in PATHS:
            purpose = "pay" if path == "/checkout" else None
            answer = shop.post(path, keys | {"Idempotence-Token": token(purpose)})
            assert shop.check(path, answer) == SILENCE


def test_the_answers_of_smorests_own_error_handler_can_be_described_too():
    shop = Shop(error_content=SMOREST_ERRORS)
    missing, key = shop.post("/pay"), {"Idempotency-Key": "one"}
    repeated = [shop.post("/pay", key, amount) for amount in (5, 6)][1]
    new = {"Idempotency-Key": "two"}
    running = shop.post_while(lambda: shop.post("/pay", new), "/pay", new)
    for answer, status in ((missing, 400), (repeated, 422), (running, 409)):
        assert shop.check("/pay", answer) == (status, "")
    assert shop.operation("/pay")["responses"]["409"]["content"] == ERROR
    assert shop.operation("/pay")["responses"]["422"]["content"] == ERROR
