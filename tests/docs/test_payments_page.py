"""The application of docs/how-to/payments-api.md, as a client's mistakes and haste meet it."""

import re
from collections import Counter
from functools import partial

import pytest
from helpers.repository import ROOT, text_of
from helpers.servers.processes import all_at_once

PAGE = ROOT / "docs" / "how-to" / "payments-api.md"


@pytest.fixture
def page(monkeypatch, tmp_path):
    """Run the page's first block up to its own requests, and return its names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = re.search(r"(?ms)^```python\n(.*?)^client = ", text_of(PAGE))[1]
    names = {"__name__": "payments"}
    exec(compile(code, str(PAGE), "exec"), names)
    names["app"].config["PROPAGATE_EXCEPTIONS"] = False
    return names


def send(page, key, body, content_type="application/json"):
    headers = {"Idempotency-Key": key}
    client = page["app"].test_client()
    return client.post("/payments", data=body, headers=headers, content_type=content_type)


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
    assert page["charged"] == []


def test_of_many_requests_at_once_each_bill_is_charged_once(page):
    bills = [f"bill-{number % 8}" for number in range(64)]
    calls = [
        partial(send, page, f"key-{number}", f'{{"bill": "{bill}", "amount": 1}}')
        for number, bill in enumerate(bills)
    ]
    answers = Counter(answer.status_code for answer in all_at_once(calls))
    assert answers == {201: 8, 409: 56}
    assert sorted(bill for bill, _ in page["charged"]) == sorted(set(bills))
