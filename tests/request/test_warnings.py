"""What the log says, once an endpoint: senders that may be confused, names almost right."""

import logging

import pytest
from helpers.applications.login_apps import CountingApp
from helpers.apps import make_app
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import idempotent, one_time_token

SHOWN = "a-value-that-is-shown-to-nobody"


@pytest.fixture
def told(caplog):
    """Return the warnings, none of which may show a value."""
    caplog.set_level(logging.WARNING, "flask_idempotence")

    def warnings():
        assert SHOWN not in caplog.text
        assert {record.name for record in caplog.records} <= {"flask_idempotence"}
        return [record.getMessage() for record in caplog.records]

    return warnings


def endpoints(texts):
    return [text.rpartition("endpoint=")[2] for text in texts]


PROXY = "requests come through a proxy"
COUNT = "If it identifies the sender, name it in IDEMPOTENCE_IDENTITY_"
NAMED = [
    *(
        ({name: SHOWN}, [f"a header that does not count: {name.lower()}", f"{COUNT}HEADERS,"])
        for name in ("X-My-Key", "X-SSL-Client-DN", "Client-Cert", "Anything-At-All")
    ),
    ({"Cookie": f"uid={SHOWN}"}, ["a cookie that does not count: uid", f"{COUNT}COOKIES,"]),
]


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize(("headers", "texts"), NAMED)
def test_what_does_not_count_is_named_once(told, headers, texts, guard):
    counter = CountingApp(guard)
    counter.add("/other")
    counter.send("/other")  # a guest's first request, which has nothing to tell, is not the last
    for path in ("/", "/", "/other", "/other"):
        counter.send(path, headers=headers)
    assert endpoints(told()) == ["view"]
    assert all(text in told()[0] for text in texts)


@pytest.mark.parametrize("headers", [{"X-Api-Key": SHOWN}, {"Cookie": f"sid={SHOWN}"}])
def test_a_source_that_is_left_out_is_named_with_the_setting(told, headers):
    CountingApp(IDEMPOTENCE_IDENTITY=["session", "ip"]).send(headers=headers)
    assert ", with credentials in IDEMPOTENCE_IDENTITY, or register" in told()[0]


def test_no_more_than_fifty_names_are_told(told):
    counter = CountingApp("lock")
    for number in range(40):
        counter.send(headers={f"X-{number}": SHOWN, "Cookie": f"c{number}={SHOWN}"})
    assert len(told()) == 50


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_proxy_that_is_not_configured_is_named_once_an_endpoint(told, name):
    counter = CountingApp("lock")
    counter.add("/other")
    for path in ("/", "/", "/other", "/other"):
        counter.send(path, headers={name: SHOWN})
    assert endpoints(told()) == ["view", "other"]
    assert all(f"{PROXY} ({name})" in line for line in told())


STATE = {f"_state_google_{SHOWN}": {}}  # as Authlib keeps the state of a login
IN_SESSION = [
    (
        {"csrf_token": SHOWN, "_flashes": [], "customer_id": SHOWN, **STATE},
        ["a session entry that does not count: customer_id", "IDEMPOTENCE_IDENTITY_SESSION_KEYS"],
    ),
    (
        {"user": {"name": SHOWN}},
        ["a mapping under user", "a field that changes makes a repeat a new request"],
    ),
]


@pytest.mark.parametrize(("content", "texts"), IN_SESSION, ids=["an entry", "a mapping"])
def test_so_is_what_a_session_holds(told, content, texts):
    counter = CountingApp("key")
    client = counter.app.test_client()
    with client.session_transaction() as session:
        session.update(content)
    counter.send()
    for _ in range(2):
        counter.send(client=client)
    [line] = told()
    assert [text for text in texts if text not in line] == []


FORWARDED = {"X-Forwarded-For": "203.0.113.7"}
RIGHT = [
    *(
        (headers, {})
        for headers in (
            {},
            {"User-Agent": "key token auth", "Accept-Language": "de", "Sec-Fetch-Mode": "x"},
            {"X-CSRF-Token": "x", "X-Xsrf-Token": "x", "Idempotence-Token": "x"},
            {"Cookie": "csrf_token=x; session=signed"},
            {"Cookie": "mod_auth_openidc_state_x=x; .AspNetCore.OpenIdConnect.Nonce.x=x"},
            {"X-Api-Key": "listed"},
            {"Authorization": "Bearer x", "X-My-Key": "besides"},
            {"X-My-Key": ""},
            {"X-Tenant-ID": "listed"},
            {"X-Forwarded-User": "listed"},
            {**FORWARDED, "Authorization": "Bearer x"},
            {"X-Forwarded-For": "192.0.2.1, 203.0.113.7"},  # a middleware has read it
        )
    ),
    ({"X-Real-IP": "203.0.113.7"}, {"IDEMPOTENCE_IP_HEADER": "X-Real-IP"}),
    (FORWARDED, {"IDEMPOTENCE_IDENTITY": ["authorization"]}),
]


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize(("headers", "settings"), RIGHT, ids=str)
def test_nothing_is_said_of_what_is_right(told, headers, settings, guard):
    CountingApp(guard, **settings).send(headers=headers)
    assert told() == []


def test_the_header_of_the_key_itself_is_no_credential(told):
    app = guarded_app(idempotent(key="X-Request-Key"))
    app.test_client().post("/pay", headers={"X-Request-Key": "1"})
    assert told() == []


def test_names_that_others_choose_do_nothing_to_the_log(told):
    for name in ("auth\x1b[31m", "auth" + "x" * 200):
        CountingApp("lock").send(headers={"Cookie": f"{name}=x"})
    assert len(told()) == 2
    assert not any("\x1b" in line or len(line) >= 500 for line in told())


@pytest.mark.parametrize("address", ["", "203.0.113.1"])
def test_a_proxy_is_named_at_a_socket_and_beside_a_longer_address(told, address):
    """A server at a unix socket knows no address; one address may begin another."""
    CountingApp("lock").send(address=address, headers={"X-Forwarded-For": "203.0.113.17"})
    [line] = told()
    assert PROXY in line


def test_nor_where_there_is_proxy_fix(told):
    counter = CountingApp("lock")
    counter.app.wsgi_app = ProxyFix(counter.app.wsgi_app)
    counter.send(headers={"X-Forwarded-For": "203.0.113.7", "X-Real-IP": "198.51.100.2"})
    assert told() == []


def test_a_server_that_passes_no_address_on_is_named_once(told):
    counter = CountingApp("key")
    for address in ("192.0.2.1", "", ""):
        counter.send(address=address)
    [line] = told()
    assert "Addresses distinguish guests" in line
    assert "passes none on" in line


# Headers and fields under a name close to the expected one


def guarded_app(guard, **settings):
    """Return an application with a guarded view at /pay and at /order."""
    app = make_app(**settings)
    for name in ("pay", "order"):
        app.add_url_rule(f"/{name}", name, guard(lambda: "done"), methods=["POST"])
    return app


KEYS = [
    *(
        ("Idempotency-Key", sent)
        for sent in ("Idempotence-Key", "X-Idempotency-Key", "Idempotency")
    ),
    ("Idempotency-Key", "Idempotency-Token"),
    ("Idempotence-Key", "Idempotency-Key"),
    ("Request-Id", "X-Requestid"),
]
TOKENS = [
    *(("Idempotence-Token", sent) for sent in ("Idempotency-Token", "X-Idempotence-Token")),
    ("Idempotency-Token", "Idempotence-Token"),
]
NEAR_MISSES = [
    *((idempotent(), "KEY_HEADER", *names) for names in KEYS),
    *((one_time_token(), "TOKEN_HEADER", *names) for names in TOKENS),
    *((idempotent(key=names[0], required=True), "TOKEN_HEADER", *names) for names in TOKENS),
]
REMEDIES = {
    "KEY_HEADER": "IDEMPOTENCE_KEY_HEADER, or key= of the route",
    "TOKEN_HEADER": "(IDEMPOTENCE_TOKEN_HEADER)",
}


@pytest.mark.parametrize(("guard", "setting", "expected", "sent"), NEAR_MISSES)
def test_a_header_of_almost_the_right_name_is_told_once_an_endpoint(
    told, guard, setting, expected, sent
):
    client = guarded_app(guard, **{f"IDEMPOTENCE_{setting}": expected}).test_client()
    for path in ("/pay", "/pay", "/order", "/pay"):
        answer = client.post(path, headers={sent: SHOWN})
        assert answer.status_code == (200 if setting == "KEY_HEADER" else 400)
    assert endpoints(told()) == ["pay", "order"]
    assert f"the header '{sent}', and '{expected}' is expected" in told()[0]
    assert REMEDIES[setting] in told()[0]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"Idempotency-Key": SHOWN, "Idempotence-Key": SHOWN}),
        ({}, {"Idempotence-Token": SHOWN}),
        ({}, {"X-Request-Id": SHOWN, "Authorization": f"Bearer {SHOWN}"}),
        ({}, {"Idempotency-Key-" + "x" * 60: SHOWN}),
        ({"key": "X-Key"}, {"Idempotency-Key": SHOWN, "Keys": SHOWN}),
        ({"key": lambda: None}, {"Idempotence-Key": SHOWN}),
    ],
)
def test_other_headers_are_not_told(told, options, sent):
    app = guarded_app(idempotent(**options))
    assert app.test_client().post("/pay", headers=sent).status_code == 200
    assert not any("is expected" in text for text in told())


FIELD = "the form field '{}', and 'idempotence_token' is expected"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *((name, SHOWN, FIELD.format(name)) for name in ("idempotency_token", "idempotencetoken")),
        ("idempotence_token", "", "the form field 'idempotence_token', and it is empty."),
    ],
)
def test_a_form_field_of_almost_the_right_name_or_without_a_value_is_told(told, name, value, said):
    client = guarded_app(one_time_token()).test_client()
    for _ in range(2):
        assert client.post("/pay", data={name: value, "item": SHOWN}).status_code == 400
    (text,) = told()
    assert said in text
    assert ("(IDEMPOTENCE_TOKEN_FIELD)" in text) == ("Rename" in text) == bool(value)


def test_no_more_than_a_hundred_fields_are_compared(told):
    client = guarded_app(one_time_token()).test_client()
    for number, expected in ((100, 0), (99, 1)):
        fields = {f"field {n}": "1" for n in range(number)} | {"idempotency_token": SHOWN}
        assert client.post("/pay", data=fields).status_code == 400
        assert len(told()) == expected


def test_a_part_without_a_name_is_no_near_miss(told):
    body = b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n"
    client = guarded_app(one_time_token()).test_client()
    answer = client.post("/pay", data=body, content_type="multipart/form-data; boundary=x")
    assert answer.json["type"].endswith(":token-missing")
    assert told() == []


@pytest.mark.parametrize(
    ("guard", "settings", "named"),
    [
        (idempotent(required=True), {}, ["the header Idempotency-Key:"]),
        (idempotent(required=True), {"KEY_HEADER": "X-Key"}, ["the header X-Key:"]),
        (idempotent(required=True, key="X-Order"), {}, ["the header X-Order:"]),
        (
            idempotent(required=True, key="Idempotence-Token"),
            {"TOKEN_FIELD": "ticket"},
            ["one-time token", "the header Idempotence-Token or in the form field ticket:"],
        ),
        (
            idempotent(required=True, key=lambda: None),
            {},
            ["This request needs an idempotency key: a new one"],
        ),
        (
            one_time_token(),
            {"TOKEN_HEADER": "X-Ticket", "TOKEN_FIELD": "<ticket>"},
            ["in the header X-Ticket or in the form field <ticket>."],
        ),
    ],
)
def test_what_is_missing_is_told_with_where_it_is_expected(guard, settings, named):
    settings = {f"IDEMPOTENCE_{name}": value for name, value in settings.items()}
    client = guarded_app(guard, **settings).test_client()
    answer = client.post("/pay")
    assert answer.json["type"].endswith(("key-missing", "token-missing"))
    assert all(name in answer.json["detail"] for name in named)
    assert "ticket" not in client.post("/pay", headers={"Accept": "text/html"}).text.lower()
