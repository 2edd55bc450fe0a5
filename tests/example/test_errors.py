"""The example's error pages: a page of the shop for a browser, the plain answer for a script."""

import re

import pytest
from flask import abort
from helpers.servers.example import HTML

from example_app import create_app
from example_app.lab import runs

pytestmark = pytest.mark.usefixtures("no_collection")

WAY_BACK = '<a class="button" href="/">Back to the shop</a>'

HUGE = "9" * 23  # more than a database's integers
DIGITS = "9" * 5000  # more than int() accepts
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
LOSES_TOO_MANY = {"X-Example-Operation": "a", "X-Example-Lose": DIGITS}


@pytest.fixture
def client(tmp_path):
    app = create_app(EXAMPLE_DATABASE=tmp_path / "shop.sqlite3")

    @app.get("/fails")
    def fail():
        raise RuntimeError("a secret")

    @app.get("/teapot")
    def pour():
        abort(418, "<b>Only tea</b>")

    yield app.test_client()
    app.extensions["example_database"].close()


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [
        ("/nothing", 404, "This page does not exist"),
        ("/orders/7", 404, "This page does not exist"),
        ("/products/mug/like", 405, "This page cannot be opened directly"),
        ("/fails", 500, "Something went wrong"),
        ("/teapot", 418, "I&#39;m a teapot"),
    ],
)
def test_an_error_has_a_page_with_a_way_back(client, path, status, title):
    answer = client.get(path, headers=HTML)
    assert (answer.status_code, answer.mimetype) == (status, "text/html")
    [shown] = re.findall(r"<h1>(.*)</h1>", answer.text)
    assert shown.lower() == title.lower()  # Werkzeug 3.2: a Teapot
    assert WAY_BACK in answer.text
    assert "a secret" not in answer.text
    assert "<b>Only" not in answer.text
    assert answer.headers["Content-Length"] == str(len(answer.data))
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_script_gets_the_plain_answer_and_headers_are_kept(client):
    for path, status in (("/nothing", 404), ("/fails", 500)):
        answer = client.get(path, headers={"Accept": "application/json"})
        assert answer.status_code == status
        assert WAY_BACK not in answer.text
    for headers in (HTML, {}):
        allowed = client.get("/products/mug/like", headers=headers).headers["Allow"]
        assert set(allowed.split(", ")) == {"POST", "OPTIONS"}


@pytest.mark.parametrize(
    ("asked", "options", "status"),
    [
        (f"GET /orders/{HUGE}", {}, 404),
        (f"GET /lab/runs/{HUGE}", {}, 404),
        (f"GET /lab/runs/{HUGE}/events", {}, 404),
        (f"GET /lab/runs/{DIGITS}", {}, 404),
        (f"GET /lab/runs/1/events?after={HUGE}", {}, 200),
        (f"GET /lab/runs/1/events?after=-{HUGE}", {}, 200),
        (f"POST /lab/runs/{HUGE}/none", {}, 404),
        (f"POST /recipes/pessimistic-lock/{HUGE}", {"data": {"amount": "1"}}, 404),
        (f"POST /recipes/state-machine/{HUGE}/guarded", {}, 404),
        ("POST /lab/runs/1/none", {"headers": {"X-Lab-Lane": HUGE}}, 201),
        ("POST /api/payments/unguarded", {"data": DEEP, "content_type": "application/json"}, 400),
        ("POST /api/payments/unguarded", {"json": {}, "headers": LOSES_TOO_MANY}, 400),
    ],
    ids=range(12),
)
def test_no_number_and_no_depth_is_an_error_of_the_server(client, asked, options, status):
    with client.application.app_context():
        runs.create({"mode": "none", "requests": "1", "delay": "0"})
    method, path = asked.split()
    assert client.open(path, method=method, **options).status_code == status


@pytest.mark.parametrize("path", ["/checkout/nothing", "/products/nothing/comments"])
def test_a_form_for_an_unknown_product_gets_404_before_the_guard(client, path):
    answer = client.post(path, data={"name": "Ada"}, headers=HTML)
    assert (answer.status_code, answer.headers.get("Idempotence-Refusal")) == (404, None)
