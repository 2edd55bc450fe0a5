"""The example's shop: any number of clicks places one order, and a payment is made once."""

import json
import re

import pytest
from helpers.servers.example import HTML, ask

from example_app import create_app

pytestmark = pytest.mark.servers

ORDER = {"name": "Ada", "quantity": 2}


def hidden_field(page):
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]+)"', page))


def orders(client):
    return [order["name"] for order in client.get("/orders").json["orders"]]


@pytest.mark.parametrize(
    "wrong",
    [{"name": " "}, {"name": "x" * 41}, {"quantity": "0"}, {"quantity": "21"}, {"speed": "?"}],
)
def test_a_mistake_in_the_form_can_be_mended_with_the_same_token(client, wrong):
    form = {**ORDER, **hidden_field(client.get("/checkout/mug").text)}
    page = client.post("/checkout/mug", data={**form, **wrong}, headers=HTML)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
    assert orders(client) == []
    # With the token of the page that lies in the browser's history, or with that of the answer.
    assert client.post("/checkout/mug", data=form).status_code == 201
    anew = {**ORDER, **hidden_field(page.text)}
    assert client.post("/checkout/mug", data=anew).status_code == 201


def test_without_a_token_of_the_form_nothing_is_ordered(client):
    assert client.get("/checkout/mug", headers=HTML).headers["Cache-Control"] == "no-store"
    for_nothing = {"idempotence_token": client.get("/token").json["token"]}  # without a purpose
    for token in ({}, for_nothing):
        assert client.post("/checkout/mug", data={**ORDER, **token}).status_code == 400
    assert orders(client) == []


def test_a_comment_is_said_once_and_what_was_typed_stays(client):
    url = "/products/mug/comments"
    assert client.post(url, data={"text": "Nice & blue"}).location == "/products/mug#comments"
    again = client.post(url, data={"text": "Nice & blue"}, headers=HTML)
    assert again.status_code == 409
    assert "You have just sent this comment." in again.text
    assert re.search(r"<textarea[^>]*>Nice &amp; blue</textarea>", again.text)
    assert client.post(url, data={"text": "Very blue"}).status_code == 303
    for wrong in ({}, {"text": " "}, {"text": "x" * 281}, {"text": "x", "name": "x" * 41}):
        assert client.post(url, data=wrong).status_code == 400
    assert client.get("/products/mug").text.count("<li><b>Guest</b>") == 2


@pytest.mark.parametrize("wrong", [{}, {"amount": 0}, {"amount": 1001}, {"amount": True}, []])
def test_a_payment_of_nothing_is_refused(client, wrong):
    answer = client.post("/api/payments", json=wrong, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400
    assert client.post("/api/payments", json={"amount": 5}).status_code == 400  # has no key
    assert client.get("/api/payments").json["count"] == 0


def test_the_environment_is_read_and_settings_win_over_it(monkeypatch, tmp_path, redis_url):
    monkeypatch.setenv("EXAMPLE_DATABASE", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("IDEMPOTENCE_STORAGE_URI", redis_url)
    monkeypatch.setenv("SECRET_KEY", "from the environment")
    app, other = create_app(), create_app(SECRET_KEY="given")
    assert (app.secret_key, other.secret_key) == ("from the environment", "given")
    assert "<code>redis</code>" in app.test_client().get("/").text
    for made in (app, other):
        made.extensions["example_database"].close()


def test_a_payment_whose_answers_are_lost_is_made_once(server):
    headers = {"Idempotency-Key": "k", "X-Example-Operation": "o", "X-Example-Lose": "2"}
    headers["Content-Type"] = "application/json"

    def pay():
        return server.ask("/api/payments", "POST", headers, json.dumps({"amount": 7}))

    for _ in range(2):
        with pytest.raises(ConnectionError):
            pay()
    response = pay()
    assert (response.status, response.json["amount"]) == (201, 7)
    assert response.headers["Idempotent-Replayed"] == "true"
    truth = ask(server.url + "/api/payments").json
    assert (truth["count"], truth["tries"]) == (1, 3)
    assert "Traceback" not in server.log
