"""The application of docs/how-to/payments-api.md, as a client's mistakes and haste meet it."""

from collections import Counter
from functools import partial

import pytest
from helpers.http_transcripts import PAYMENTS_PAGE, run_blocks
from helpers.servers.processes import all_at_once, until
from sqlalchemy import event


def run_page(replaced=()):
    names = run_blocks(PAYMENTS_PAGE, 1, replaced)
    names["app"].config["PROPAGATE_EXCEPTIONS"] = False
    return names


@pytest.fixture(autouse=True)
def own_database(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def page():
    return run_page()


def send(page, key, body, content_type="application/json"):
    headers = {"Idempotency-Key": key}
    client = page["app"].test_client()
    return client.post("/payments", data=body, headers=headers, content_type=content_type)


def bills_of(page):
    with page["app"].app_context():
        return list(page["db"].session.scalars(page["db"].select(page["Payment"].bill)))


BODIES = [
    *("", "{", "[]", "null", "1", '"a"', "{}", '{"bill": "a"}', '{"amount": 1}'),
    *(f'{{"bill": {bill}, "amount": 1}}' for bill in ("null", "{}", "[]", "1", "true", '""')),
    *(f'{{"bill": "{bill}", "amount": 1}}' for bill in ("\\ud800", "\\u0000", "a\\n", "a" * 41)),
    *(
        f'{{"bill": "a", "amount": {amount}}}'
        for amount in ("null", "{}", '"x"', "-5", "0", "1.5", "NaN", "1e400", "9" * 30, "true")
    ),
]


def test_wrong_input_is_refused_and_nothing_is_charged(page):
    statuses = {body: send(page, f"k{n}", body).status_code for n, body in enumerate(BODIES)}
    assert {body: status for body, status in statuses.items() if status != 400} == {}
    assert send(page, "form", "bill=a&amount=1", "text/plain").status_code == 415
    assert page["app"].test_client().get("/payments").status_code == 400
    assert bills_of(page) == []


def persist(page, key, body):
    """Send a request as a client does: again after a 503, since SQLite has one writer."""
    answers = []
    assert until(
        lambda: answers.append(send(page, key, body)) or answers[-1].status_code != 503, 30
    )
    return answers[-1]


def test_of_many_requests_at_once_each_bill_is_paid_once(page):
    bills = [f"bill-{number % 4}" for number in range(32)]
    calls = [
        partial(persist, page, f"key-{number}", f'{{"bill": "{bill}", "amount": 1}}')
        for number, bill in enumerate(bills)
    ]
    answers = Counter(answer.status_code for answer in all_at_once(calls))
    assert answers == {201: 4, 409: 28}
    assert sorted(bills_of(page)) == sorted(set(bills))


def test_repeats_at_once_all_get_the_first_response(page):
    body = '{"bill": "a", "amount": 1}'
    answers = all_at_once([partial(persist, page, "key", body)] * 5)
    assert [(answer.status_code, answer.json) for answer in answers] == [(201, {"payment": 1})] * 5
    assert bills_of(page) == ["a"]


def test_after_a_crash_a_repeat_runs_when_the_lease_has_ended():
    page = run_page({"SECRET_KEY=": "IDEMPOTENCE_LEASE=1, SECRET_KEY=", "wait=10": "wait=0"})
    body = '{"bill": "a", "amount": 1}'

    @event.listens_for(page["Payment"], "after_insert", once=True)
    def die(*_):
        raise SystemExit

    with pytest.raises(SystemExit):
        send(page, "key", body)
    assert bills_of(page) == []
    assert send(page, "key", body).headers["Idempotence-Refusal"] == "key-in-progress"
    assert until(lambda: send(page, "key", body).status_code == 201, 10)
    assert bills_of(page) == ["a"]
