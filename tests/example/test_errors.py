"""The example's error pages: a page of the shop for a browser, the plain answer for a script."""

import re

import pytest
from flask import abort
from helpers.servers.example import HTML

from example_app import create_app

WAY_BACK = '<a class="button" href="/">Back to the shop</a>'


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
    assert re.findall(r"<h1>(.*)</h1>", answer.text) == [title]
    assert WAY_BACK in answer.text
    assert "a secret" not in answer.text
    assert "<b>Only" not in answer.text
    assert answer.headers["Content-Length"] == str(len(answer.data))
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_an_error_keeps_its_headers(client):
    for headers in (HTML, {}):
        allowed = client.get("/products/mug/like", headers=headers).headers["Allow"]
        assert set(allowed.split(", ")) == {"POST", "OPTIONS"}


def test_a_script_gets_the_plain_answer(client):
    for path, status in (("/nothing", 404), ("/fails", 500)):
        answer = client.get(path, headers={"Accept": "application/json"})
        assert answer.status_code == status
        assert WAY_BACK not in answer.text
