"""The shop of docs/how-to/protect-a-form.md, when the form is old, empty or without a store."""

import re

import pytest
from flask_wtf import FlaskForm
from helpers.apps import make_app
from helpers.http_transcripts import FORM_PAGE, run_blocks
from helpers.repository import text_of

from flask_idempotence import StoreError, no_repeat_submit

EMPTY = re.search(r"{{ idempotence_field\(empty.*?}}", text_of(FORM_PAGE))[0]
"""The field of the page that needs no store."""


@pytest.fixture
def shop(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make(**replaced):
        return run_blocks(FORM_PAGE, 2, replaced)

    return make


def sign_in(names):
    client = names["app"].test_client()
    client.get("/login")
    return client


def fields_of(page):
    found = re.findall(r'name="(\w+)"[^>]* value="([^"]+)"', page.text)
    return dict(found)


def test_a_form_without_a_token_comes_back_with_one_and_with_its_input(shop):
    client = sign_in(shop())
    form = fields_of(client.get("/checkout")) | {"address": "1 High Street"}
    del form["idempotence_token"]
    refused = client.post("/checkout", data=form)
    assert refused.status_code == 400
    assert "Please press Order again." in refused.text
    assert client.post("/checkout", data=fields_of(refused)).location == "/orders/1"
    broken = client.post("/checkout", data="{", content_type="application/json")
    assert broken.status_code == 400
    assert "Please press Order again." in broken.text


def test_a_form_that_is_too_old_comes_back_with_its_input(shop):
    client = sign_in(names := shop())
    names["app"].config["WTF_CSRF_TIME_LIMIT"] = -1
    refused = client.post("/checkout", data=fields_of(client.get("/checkout")) | {"address": "A"})
    assert "The CSRF token has expired." in refused.text
    names["app"].config["WTF_CSRF_TIME_LIMIT"] = 3600
    assert client.post("/checkout", data=fields_of(refused)).location == "/orders/1"


def test_without_a_store_the_form_is_a_503_unless_its_field_is_empty(shop):
    away = {"memory://": "redis://localhost:1/0"}
    assert sign_in(shop(**away)).get("/checkout").status_code == 503
    page = sign_in(shop(**away, **{"{{ idempotence_field() }}": EMPTY})).get("/checkout")
    assert (page.status_code, fields_of(page).keys()) == (200, {"csrf_token"})
    assert re.search(r'name="idempotence_token" value="" autocomplete="off">', page.text)


def without_store(names, request):
    store = names["app"].extensions["idempotence"].engine.store

    def away(*_, **__):
        raise StoreError("ConnectionError: away")

    with pytest.MonkeyPatch.context() as patch:
        for operation in ("claim", "put_token"):
            patch.setattr(store, operation, away)
        return request()


def test_while_the_store_is_away_the_form_keeps_its_input_and_its_token(shop):
    client = sign_in(names := shop())
    form = fields_of(client.get("/checkout")) | {"address": "1 High Street"}
    refused = without_store(names, lambda: client.post("/checkout", data=form))
    assert refused.status_code == 503
    assert "We cannot take orders now." in refused.text
    again = fields_of(refused)
    assert again["idempotence_token"] == form["idempotence_token"]
    assert client.post("/checkout", data=again).location == "/orders/1"
    assert client.post("/checkout", data=again).location == "/orders/1"


@pytest.mark.parametrize("field", ["{{ idempotence_field() }}", EMPTY])
def test_a_form_without_a_token_keeps_its_input_while_the_store_is_away(shop, field):
    page = {} if field != EMPTY else {"{{ idempotence_field() }}": EMPTY}
    client = sign_in(names := shop(**page))
    form = fields_of(client.get("/checkout")) | {"address": "1 High Street"}
    form.pop("idempotence_token", None)
    refused = without_store(names, lambda: client.post("/checkout", data=form))
    assert refused.status_code == 400
    assert fields_of(refused).keys() == {"csrf_token", "address"}


@pytest.mark.parametrize(("token", "status"), [(None, 422), ("no token", 400)])
def test_another_form_of_the_same_token_and_a_wrong_token_keep_the_input(shop, token, status):
    client = sign_in(shop())
    form = fields_of(client.get("/checkout")) | {"address": "1 High Street"}
    assert client.post("/checkout", data=form).status_code == 303
    form["address"] = "2 High Street"
    refused = client.post("/checkout", data=form | ({"idempotence_token": token} if token else {}))
    again = fields_of(refused)
    assert (refused.status_code, again["address"]) == (status, "2 High Street")
    assert again["idempotence_token"] not in (token, form["idempotence_token"])


@pytest.mark.parametrize(("ignored", "status"), [((), 200), (("like-csrf_token",), 409)])
def test_a_lock_compares_a_csrf_token_of_another_name_unless_it_is_ignored(ignored, status):
    app = make_app(IDEMPOTENCE_IGNORED_ARGS=("csrf_token", *ignored))
    app.post("/likes")(no_repeat_submit(5)(lambda: "liked"))
    with app.test_request_context():
        assert FlaskForm(prefix="like").csrf_token.name == "like-csrf_token"
    pages = [{"like-csrf_token": page} for page in ("first", "reloaded")]
    answers = [app.test_client().post("/likes", data=page).status_code for page in pages]
    assert answers == [200, status]
