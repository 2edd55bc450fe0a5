"""The example's shop: any number of clicks places one order."""

import json
import os
import re
import time
from collections import Counter

import pytest
from helpers.servers.example import HTML, FlaskRun, ask, gunicorn
from helpers.servers.processes import all_at_once

from example_app import create_app

pytestmark = pytest.mark.servers

CLICKS = 5
ONE_TAKEN = [201, 409, 409, 409, 409]
ORDER = {"name": "Ada", "quantity": 2}
FIELD = "idempotence_token"


@pytest.fixture(params=["memory", "redis"])
def storage(request):
    return "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")


@pytest.fixture
def app(storage, tmp_path):
    app = create_app(
        TESTING=True,
        IDEMPOTENCE_STORAGE_URI=storage,
        EXAMPLE_DATABASE=tmp_path / "folder" / "shop.sqlite3",
    )
    yield app
    app.extensions["example_database"].close()


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture(params=["flask run", pytest.param("gunicorn", marks=pytest.mark.gunicorn)])
def server(request, tmp_path, redis_url):
    """The example as the README starts it, in one process with threads or in two without."""
    if request.param == "gunicorn":
        running = gunicorn(redis_url, tmp_path)
    else:
        running = FlaskRun(env={**os.environ, "EXAMPLE_DATABASE": str(tmp_path / "shop.sqlite3")})
    with running:
        yield running


def statuses(answers):
    return sorted(answer.status_code for answer in answers)


def hidden_field(page):
    found = re.search(r'<input type="hidden" name="(\w+)" value="([^"]+)"', page.get_data(True))
    return {found[1]: found[2]}


def orders(client):
    answer = client.get("/orders").get_json()
    assert answer["count"] == len(answer["orders"])
    return [(order["product"], order["name"]) for order in answer["orders"]]


def click(app, url, **request):
    calls = [lambda: app.test_client().post(url, **request) for _ in range(CLICKS)]
    return all_at_once(calls)


def test_five_clicks_on_a_form_make_one_order(app, client):
    form = {**ORDER, **hidden_field(client.get("/checkout/mug"))}
    answers = click(app, "/checkout/mug", data=form)
    assert statuses(answers) == ONE_TAKEN
    refused = [answer.get_json()["type"] for answer in answers if answer.status_code == 409]
    assert set(refused) == {"urn:flask-idempotence:token-spent"}
    assert orders(client) == [("mug", "Ada")]


def test_the_form_works_without_scripts(client):
    page = client.get("/checkout/mug", headers=HTML)
    assert page.headers["Cache-Control"] == "no-store"
    form = {"name": "<b>Ada</b>", "quantity": 1, **hidden_field(page)}
    taken = client.post("/checkout/mug", data=form, headers=HTML)
    assert (taken.status_code, taken.location) == (303, "/orders/1")
    thanks = client.get(taken.location, headers=HTML).get_data(True)
    assert "Thank you, &lt;b&gt;Ada&lt;/b&gt;" in thanks
    again = client.post("/checkout/mug", data=form, headers=HTML)
    assert again.status_code == 409
    assert "Nothing has been ordered a second time." in again.get_data(True)
    assert orders(client) == [("mug", "<b>Ada</b>")]


@pytest.mark.parametrize(
    "wrong",
    [{"name": " "}, {"name": "x" * 41}, {"quantity": "0"}, {"quantity": "21"}, {"speed": "?"}],
)
def test_a_mistake_in_the_form_can_be_mended_with_the_same_token(client, wrong):
    form = {**ORDER, **hidden_field(client.get("/checkout/mug"))}
    page = client.post("/checkout/mug", data={**form, **wrong}, headers=HTML)
    assert page.status_code == 400
    assert 'role="alert"' in page.get_data(True)
    assert orders(client) == []
    # With the token of the page that lies in the browser's history, or with that of the answer.
    assert client.post("/checkout/mug", data=form).status_code == 201
    anew = {**ORDER, **hidden_field(page)}
    assert client.post("/checkout/mug", data=anew).status_code == 201


def test_a_token_that_expired_brings_the_form_back_with_what_was_typed(tmp_path):
    app = create_app(EXAMPLE_DATABASE=tmp_path / "shop.sqlite3", IDEMPOTENCE_TOKEN_TTL=1)
    client = app.test_client()
    form = {**ORDER, **hidden_field(client.get("/checkout/fern"))}
    time.sleep(1.1)
    page = client.post("/checkout/fern", data=form, headers=HTML)
    assert page.status_code == 400
    assert "Nothing has been ordered: this page was open" in page.get_data(True)
    assert 'value="Ada"' in page.get_data(True)
    assert client.post("/checkout/fern", data=form).get_json()["type"].endswith("token-expired")
    assert client.post("/checkout/fern", data={**form, **hidden_field(page)}).status_code == 201
    app.extensions["example_database"].close()


def test_without_a_token_nothing_is_ordered(client):
    assert client.post("/checkout/mug", data=ORDER).status_code == 400
    other = client.get("/token").get_json()["token"]  # issued for no purpose
    assert client.post("/checkout/mug", data={**ORDER, FIELD: other}).status_code == 400
    assert orders(client) == []


def test_five_likes_at_once_are_one(app, client):
    answers = click(app, "/products/mug/like")
    assert statuses(answers) == ONE_TAKEN
    assert [a.get_json()["likes"] for a in answers if a.status_code == 201] == [1]
    again = client.post("/products/mug/like", headers=HTML)
    assert again.status_code == 409
    assert "You have just liked this." in again.get_data(True)
    assert client.post("/products/fern/like", headers=HTML).location == "/products/fern"


def test_a_comment_is_said_once_and_what_was_typed_stays(client):
    url = "/products/mug/comments"
    assert client.post(url, data={"text": "Nice & blue"}).location == "/products/mug#comments"
    again = client.post(url, data={"text": "Nice & blue"}, headers=HTML)
    assert again.status_code == 409
    assert "You have just sent this comment." in again.get_data(True)
    assert "<li><b>Guest</b> Nice &amp; blue</li>" in again.get_data(True)
    assert re.search(r"<textarea[^>]*>Nice &amp; blue</textarea>", again.get_data(True))
    assert client.post(url, data={"text": "Very blue"}).status_code == 303
    for wrong in ({}, {"text": " "}, {"text": "x" * 281}, {"text": "x", "name": "x" * 41}):
        assert client.post(url, data=wrong).status_code == 400
    assert client.get("/products/mug").get_data(True).count("<li><b>Guest</b>") == 2


@pytest.mark.parametrize("wrong", [{}, {"amount": 0}, {"amount": 1001}, {"amount": True}, []])
def test_a_payment_of_nothing_is_refused(client, wrong):
    answer = client.post("/api/payments", json=wrong, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400
    assert client.post("/api/payments", json={"amount": 5}).status_code == 400  # has no key
    assert client.get("/api/payments").get_json()["count"] == 0


@pytest.mark.parametrize("path", ["/products/car", "/checkout/car", "/orders/1", "/lab/runs/1"])
def test_what_is_not_there_is_not_found(client, path):
    assert client.get(path).status_code == 404


def test_the_shop_is_emptied(client):
    client.post("/checkout/mug", data={**ORDER, **hidden_field(client.get("/checkout/mug"))})
    client.post("/api/payments", json={"amount": 5}, headers={"Idempotency-Key": "k"})
    assert client.post("/orders/clear").status_code == 303
    assert orders(client) == []
    assert client.get("/api/payments").get_json() == {"count": 0, "tries": 0, "payments": []}


def test_the_environment_is_read_and_settings_win_over_it(monkeypatch, tmp_path, redis_url):
    monkeypatch.setenv("EXAMPLE_DATABASE", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("IDEMPOTENCE_STORAGE_URI", redis_url)
    monkeypatch.setenv("SECRET_KEY", "from the environment")
    app = create_app()
    assert app.secret_key == "from the environment"
    assert "<code>redis</code>" in app.test_client().get("/").get_data(True)
    other = create_app(SECRET_KEY="given")
    assert other.secret_key == "given"
    for made in (app, other):
        made.extensions["example_database"].close()


def test_five_clicks_on_a_server_make_one_order_and_every_process_says_so(server):
    page = ask(server.url + "/checkout/mug", headers=HTML).text
    token = re.search(rf'name="{FIELD}" value="([^"]+)"', page)[1]
    form = {**ORDER, FIELD: token, "speed": "quick"}
    answers = all_at_once([lambda: ask(server.url + "/checkout/mug", form)] * CLICKS)
    assert sorted(answer.status for answer in answers) == ONE_TAKEN
    wanted = len(re.findall("worker ready", server.log)) or 1
    seen = {}
    deadline = time.monotonic() + 20
    while len(seen) < wanted and time.monotonic() < deadline:
        for answer in all_at_once([lambda: ask(server.url + "/orders", headers=HTML)] * 4):
            pid = re.search(r"Process <code>(\d+)", answer.text)[1]
            seen[pid] = re.search(r'id="count">(\d+)', answer.text)[1]
    assert list(seen.values()) == ["1"] * wanted


def pay(server, headers):
    """Ask for a payment until there is an answer; return it, and what the tries met with."""
    met_with = Counter()
    while True:
        try:
            headers = {"Content-Type": "application/json", **headers}
            response = server.ask("/api/payments", "POST", headers, json.dumps({"amount": 7}))
            return response, response.json, met_with
        except ConnectionError as error:
            met_with[type(error).__name__] += 1


def test_a_payment_whose_answers_are_lost_is_made_once(server):
    headers = {"Idempotency-Key": "k", "X-Example-Operation": "o", "X-Example-Lose": "2"}
    response, answer, met_with = pay(server, headers)
    assert sum(met_with.values()) == 2
    assert (response.status, answer["amount"]) == (201, 7)
    assert response.headers["Idempotent-Replayed"] == "true"
    truth = ask(server.url + "/api/payments").json
    assert (truth["count"], truth["tries"]) == (1, 3)
    assert "Traceback" not in server.log
