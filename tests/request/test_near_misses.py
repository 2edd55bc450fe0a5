"""Headers and fields under a name close to the expected one: said once, and what is expected."""

import logging

import pytest
from helpers.apps import make_app

from flask_idempotence import idempotent, one_time_token

VALUE = "hunter2-hunter2"


def shop(guard, **settings):
    """Return an application with a guarded view at /pay and at /order."""
    app = make_app(**settings)
    for name in ("pay", "order"):
        app.add_url_rule(f"/{name}", name, guard(lambda: "done"), methods=["POST"])
    return app


def told(caplog):
    """Return the warnings, none of which may show a value."""
    assert "hunter2" not in caplog.text
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert {record.name for record in records} <= {"flask_idempotence"}
    return [record.getMessage() for record in records]


@pytest.mark.parametrize(
    ("expected", "sent"),
    [
        ("Idempotency-Key", "Idempotence-Key"),
        ("Idempotency-Key", "X-Idempotency-Key"),
        ("Idempotency-Key", "Idempotent-Key"),
        ("Idempotency-Key", "Idempotency"),
        ("Idempotency-Key", "Idempotency-Token"),
        ("Idempotence-Key", "Idempotency-Key"),
        ("X-Request-Id", "Request-Id"),
        ("Request-Id", "X-Requestid"),
    ],
)
def test_a_key_in_a_header_of_almost_the_right_name_is_told_once_an_endpoint(
    caplog, expected, sent
):
    app = shop(idempotent(), IDEMPOTENCE_KEY_HEADER=expected)
    client = app.test_client()
    for path in ("/pay", "/pay", "/order", "/pay"):
        assert client.post(path, headers={sent: VALUE}).status_code == 200
    texts = told(caplog)
    assert [text.rpartition("endpoint=")[2] for text in texts] == ["pay", "order"]
    assert f"the header '{sent}', and '{expected}' is expected" in texts[0]
    assert "IDEMPOTENCE_KEY_HEADER, or key= of the route" in texts[0]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"Idempotency-Key": VALUE, "Idempotence-Key": VALUE}),
        ({}, {"Idempotence-Token": VALUE}),
        ({}, {"X-Request-Id": VALUE, "Authorization": VALUE, "Api-Key": VALUE}),
        ({}, {"Idempotency-Key-" + "x" * 60: VALUE}),
        ({"key": "X-Key"}, {"Idempotency-Key": VALUE, "Keys": VALUE}),
        ({"key": lambda: None}, {"Idempotence-Key": VALUE}),
    ],
)
def test_other_headers_are_not_told(caplog, options, sent):
    assert shop(idempotent(**options)).test_client().post("/pay", headers=sent).status_code == 200
    assert told(caplog) == []


def test_a_safe_request_is_not_looked_at(caplog):
    app = make_app()
    app.add_url_rule("/", "form", idempotent()(lambda: "form"), methods=["GET", "POST"])
    app.test_client().get("/", headers={"Idempotence-Key": VALUE})
    assert told(caplog) == []


@pytest.mark.parametrize(
    ("expected", "sent"),
    [
        ("Idempotence-Token", "Idempotency-Token"),
        ("Idempotence-Token", "X-Idempotence-Token"),
        ("Idempotency-Token", "Idempotence-Token"),
    ],
)
@pytest.mark.parametrize("mode", ["token", "key"])
def test_a_token_in_a_header_of_almost_the_right_name_is_told(caplog, mode, expected, sent):
    guard = one_time_token() if mode == "token" else idempotent(key=expected, required=True)
    client = shop(guard, IDEMPOTENCE_TOKEN_HEADER=expected).test_client()
    for path in ("/order", "/pay", "/order"):
        assert client.post(path, headers={sent: VALUE}).status_code == 400
    other, text = told(caplog)
    assert other == text.replace("=pay", "=order")
    assert f"the header '{sent}', and '{expected}' is expected" in text
    assert "(IDEMPOTENCE_TOKEN_HEADER)" in text


@pytest.mark.parametrize("sent", ["idempotency_token", "idempotence-token", "idempotencetoken"])
def test_a_form_field_of_almost_the_right_name_is_told(caplog, sent):
    client = shop(one_time_token()).test_client()
    for _ in range(2):
        assert client.post("/pay", data={sent: VALUE, "item": VALUE}).status_code == 400
    (text,) = told(caplog)
    assert f"the form field '{sent}', and 'idempotence_token' is expected" in text
    assert "(IDEMPOTENCE_TOKEN_FIELD)" in text


def test_a_field_of_the_right_name_is_told_to_be_empty(caplog):
    client = shop(one_time_token()).test_client()
    assert client.post("/pay", data={"idempotence_token": ""}).status_code == 400
    (text,) = told(caplog)
    assert "the form field 'idempotence_token', and it is empty." in text
    assert "Rename" not in text


def test_it_is_told_in_whole_app_mode_too(caplog):
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    app.add_url_rule("/pay", "pay", lambda: "paid", methods=["POST"])
    app.test_client().post("/pay", headers={"X-Idempotency-Key": VALUE})
    assert len(told(caplog)) == 1


@pytest.mark.parametrize(
    ("settings", "options", "named"),
    [
        ({}, {}, ["the header Idempotency-Key:"]),
        ({"IDEMPOTENCE_KEY_HEADER": "X-Key"}, {}, ["the header X-Key:"]),
        ({"IDEMPOTENCE_KEY_HEADER": "X-Key"}, {"key": "X-Order"}, ["the header X-Order:"]),
        (
            {"IDEMPOTENCE_TOKEN_FIELD": "ticket"},
            {"key": "Idempotence-Token"},
            ["one-time token", "the header Idempotence-Token or in the form field ticket:"],
        ),
        ({}, {"key": lambda: None}, ["This request needs an idempotency key: a new one"]),
    ],
)
def test_a_missing_key_is_told_with_where_it_is_expected(settings, options, named):
    app = shop(idempotent(required=True, **options), **settings)
    answer = app.test_client().post("/pay")
    assert answer.json["type"].endswith(":key-missing")
    assert all(name in answer.json["detail"] for name in named)


def test_a_missing_token_is_told_with_header_and_field():
    settings = {"IDEMPOTENCE_TOKEN_HEADER": "X-Ticket", "IDEMPOTENCE_TOKEN_FIELD": "<ticket>"}
    client = shop(one_time_token(), **settings).test_client()
    detail = client.post("/pay").json["detail"]
    assert "in the header X-Ticket or in the form field <ticket>." in detail
    page = client.post("/pay", headers={"Accept": "text/html"}).text
    assert "Please go back, reload the page and try again." in page
    assert "ticket" not in page.lower()


def test_no_more_than_a_hundred_fields_are_compared(caplog):
    client = shop(one_time_token()).test_client()
    for number, expected in ((100, 0), (99, 1)):
        fields = {f"field {n}": "1" for n in range(number)} | {"idempotency_token": VALUE}
        assert client.post("/pay", data=fields).status_code == 400
        assert len(told(caplog)) == expected


def test_a_part_without_a_name_is_no_near_miss(caplog):
    body = b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n"
    client = shop(one_time_token()).test_client()
    answer = client.post("/pay", data=body, content_type="multipart/form-data; boundary=x")
    assert answer.json["type"].endswith(":token-missing")
    assert told(caplog) == []
