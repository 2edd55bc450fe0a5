"""The example: five clicks make one order, whoever clicks and whatever the view takes."""

import json
import re
import urllib.error
import urllib.request

import pytest
from servers import Gunicorn, all_at_once

from example_app import create_app

CLICKS = 5
ONE_TAKEN = [201, 409, 409, 409, 409]
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(params=["memory", "redis"])
def storage(request):
    return "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")


@pytest.fixture
def app(storage, tmp_path):
    return create_app(
        TESTING=True,
        IDEMPOTENCE_STORAGE_URI=storage,
        EXAMPLE_DATABASE=tmp_path / "folder" / "orders.sqlite3",
    )


@pytest.fixture
def client(app):
    return app.test_client()


def click(app, url, **request):
    """Send the same request five times at once; return the answers, the first order first."""
    calls = [lambda: app.test_client().post(url, **request) for _ in range(CLICKS)]
    return sorted(all_at_once(calls), key=lambda answer: answer.status_code)


def statuses(answers):
    return [answer.status_code for answer in answers]


def orders(client):
    answer = client.get("/orders").get_json()
    assert answer["count"] == len(answer["orders"])
    return [(order["item"], order["how"]) for order in answer["orders"]]


def hidden_field(page):
    found = re.search(r'<input type="hidden" name="(\w+)" value="([^"]+)"', page.get_data(True))
    return {found[1]: found[2]}


@pytest.mark.parametrize("delay", ["fast", "slow"])
def test_five_clicks_behind_the_lock_make_one_order(app, client, delay):
    answers = click(app, "/orders", json={"item": "Mug", "delay": delay})
    assert statuses(answers) == ONE_TAKEN
    assert answers[0].get_json()["item"] == "Mug"
    for refused in answers[1:]:
        assert refused.mimetype == "application/problem+json"
        assert refused.get_json()["type"] == "urn:flask-idempotence:repeat-submit"
        assert int(refused.headers["Retry-After"]) >= 1
    assert orders(client) == [("Mug", "lock")]


def test_a_click_that_comes_right_after_a_slow_order_is_still_a_repeat(app, client):
    slow = {"item": "Mug", "delay": "slow"}
    assert [client.post("/orders", json=slow).status_code for _ in range(2)] == [201, 409]


@pytest.mark.parametrize("delay", ["fast", "slow"])
def test_five_clicks_on_a_form_with_one_token_make_one_order(app, client, delay):
    token = client.get("/token").get_json()
    form = {"item": "Mug", "delay": delay, token["field"]: token["token"]}
    answers = click(app, "/checkout", data=form)
    assert statuses(answers) == ONE_TAKEN
    assert {answer.get_json()["type"] for answer in answers[1:]} == {
        "urn:flask-idempotence:token-spent"
    }
    assert orders(client) == [("Mug", "token")]


def test_the_form_works_without_scripts(client):
    page = client.get("/", headers=HTML)
    assert page.status_code == 200
    assert page.headers["Cache-Control"] == "no-store"
    form = {"item": "<b>Mug</b>", **hidden_field(page)}
    taken = client.post("/checkout", data=form, headers=HTML)
    assert (taken.status_code, taken.location) == (303, "/")
    again = client.post("/checkout", data=form, headers=HTML)
    assert again.status_code == 409
    assert "This has already been submitted." in again.get_data(True)
    assert orders(client) == [("<b>Mug</b>", "token")]
    assert "&lt;b&gt;Mug&lt;/b&gt;" in again.get_data(True)
    # The page that says so carries a fresh token.
    anew = client.post("/checkout", data={"item": "Cup", **hidden_field(again)}, headers=HTML)
    assert anew.status_code == 303
    assert len(orders(client)) == 2


def test_the_lock_works_without_scripts(client):
    answers = [client.post("/orders", data={"item": "Mug"}, headers=HTML) for _ in range(2)]
    assert statuses(answers) == [303, 409]
    assert "This order has just been placed." in answers[1].get_data(True)
    assert orders(client) == [("Mug", "lock")]


@pytest.mark.parametrize(
    "wrong", [{}, {"item": " "}, {"item": "x" * 81}, {"item": 1}, {"item": "Mug", "delay": []}, []]
)
def test_an_order_that_cannot_be_taken_may_be_corrected_at_once(client, wrong):
    headers = {"Idempotence-Token": client.get("/token").get_json()["token"]}
    for url in ("/orders", "/orders", "/checkout"):
        with client.post(url, json=wrong, headers=headers) as answer:
            assert answer.status_code == 400
    assert orders(client) == []
    right = {"item": "Mug"}
    assert client.post("/checkout", json=right, headers=headers).status_code == 201


def test_a_form_without_a_token_is_refused(client):
    assert client.post("/checkout", data={"item": "Mug"}).status_code == 400
    assert orders(client) == []


def test_the_list_is_emptied(client):
    client.post("/orders", json={"item": "Mug"})
    assert client.post("/orders/clear").status_code == 303
    assert orders(client) == []


def test_every_file_that_the_page_names_is_there(client):
    page = client.get("/").get_data(True)
    named = re.findall(r'(?:href|src)="(/[^"]+)"', page)
    assert sorted(name.rpartition(".")[2] for name in named) == ["css", "js"]
    for name in named:
        with client.get(name) as answer:
            assert answer.status_code == 200
    assert "//" not in re.sub(r"\"data:,\"", "", page).replace("<!doctype", "")


def test_the_environment_is_read_and_settings_win_over_it(monkeypatch, tmp_path, redis_url):
    monkeypatch.setenv("EXAMPLE_DATABASE", str(tmp_path / "orders.sqlite3"))
    monkeypatch.setenv("IDEMPOTENCE_STORAGE_URI", redis_url)
    monkeypatch.setenv("SECRET_KEY", "from the environment")
    app = create_app()
    assert app.secret_key == "from the environment"
    assert "The store is <code>redis</code>" in app.test_client().get("/").get_data(True)
    assert create_app(SECRET_KEY="given").secret_key == "given"


@pytest.mark.gunicorn
@pytest.mark.parametrize("delay", ["fast", "slow"])
def test_five_clicks_on_two_workers_make_one_order(redis_url, tmp_path, delay):
    def post():
        body = json.dumps({"item": "Mug", "delay": delay}).encode()
        request = urllib.request.Request(server.url + "/orders", body)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    environment = {
        "IDEMPOTENCE_STORAGE_URI": redis_url,
        "EXAMPLE_DATABASE": str(tmp_path / "orders.sqlite3"),
    }
    with Gunicorn("example_app:create_app()", env=environment) as server:
        assert sorted(all_at_once([post] * CLICKS)) == ONE_TAKEN
        with urllib.request.urlopen(server.url + "/orders", timeout=20) as answer:
            assert json.load(answer)["count"] == 1
