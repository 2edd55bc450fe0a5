"""What the log says, once an endpoint, where senders may not be told apart as they should be."""

import logging

import pytest
from helpers.applications.login_apps import CountingApp
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import idempotent

SHOWN = "a-value-that-is-shown-to-nobody"


@pytest.fixture(autouse=True)
def all_levels(caplog):
    caplog.set_level(logging.WARNING, "flask_idempotence")


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("headers", "named", "setting"),
    [
        ({"X-My-Key": SHOWN}, "the header x-my-key", "HEADERS"),
        ({"X-Auth": SHOWN}, "the header x-auth", "HEADERS"),
        ({"X-Login-Name": SHOWN}, "the header x-login-name", "HEADERS"),
        ({"X-SSL-Client-DN": SHOWN}, "the header x-ssl-client-dn", "HEADERS"),
        ({"X-Forwarded-Client-Cert": SHOWN}, "the header x-forwarded-client-cert", "HEADERS"),
        ({"X-MS-Client-Principal": SHOWN}, "the header x-ms-client-principal", "HEADERS"),
        ({"X-Customer-ID": SHOWN}, "the header x-customer-id", "HEADERS"),
        ({"Cookie": f"uid={SHOWN}"}, "the cookie uid", "COOKIES"),
        ({"Cf-Access-Jwt-Assertion": SHOWN}, "the header cf-access-jwt-assertion", "HEADERS"),
        ({"Cookie": f"my_login={SHOWN}"}, "the cookie my_login", "COOKIES"),
    ],
)
def test_what_looks_like_a_credential_is_named_once(caplog, headers, named, setting):
    counter = CountingApp("lock")
    counter.add("/other", "other")
    for path in ("/", "/", "/other", "/other"):
        counter.send(path, headers=headers)
    told = warnings(caplog)
    assert [line.rpartition("=")[2] for line in told] == ["view", "other"]
    assert all(named in line and f"IDEMPOTENCE_IDENTITY_{setting}," in line for line in told)
    assert SHOWN not in caplog.text


@pytest.mark.parametrize("name", ["customer_id", "logged_in", "id", "openid", "google_id"])
def test_so_is_what_looks_like_a_user_in_the_session(caplog, name):
    counter = CountingApp("key")
    client = counter.app.test_client()
    with client.session_transaction() as session:
        session.update({"csrf_token": SHOWN, "_flashes": [], name: SHOWN})
    for _ in range(2):
        counter.send(client=client)
    [line] = warnings(caplog)
    assert f"{name} in the session" in line
    assert "IDEMPOTENCE_IDENTITY_SESSION_KEYS" in line
    assert SHOWN not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"headers": {"User-Agent": "key token auth", "Accept-Language": "de", "Sec-Key": "x"}},
        {"headers": {"X-CSRF-Token": "x", "X-Xsrf-Token": "x", "Idempotence-Token": "x"}},
        {"headers": {"Cookie": "csrf_token=x; theme=dark; session=signed"}},
        {"headers": {"X-Api-Key": "listed"}},
        {"headers": {"Authorization": "Bearer x", "X-My-Key": "besides"}},
        {"headers": {"X-My-Key": ""}},
        {"headers": {"X-Tenant-ID": "listed"}},
        {"headers": {"X-Forwarded-User": "listed"}},
    ],
    ids=str,
)
def test_nothing_is_said_of_what_is_right(caplog, sent):
    CountingApp("key").send(**sent)
    assert warnings(caplog) == []


def test_the_header_of_the_key_itself_is_no_credential(caplog):
    counter = CountingApp("key")
    guarded = idempotent(key="X-Request-Key")(lambda: "done")
    counter.app.add_url_rule("/own", "own", guarded, methods=["POST"])
    counter.send("/own", headers={"X-Request-Key": "1"})
    assert warnings(caplog) == []


def test_names_that_others_choose_do_nothing_to_the_log(caplog):
    counter = CountingApp("lock")
    counter.send(headers={"Cookie": "auth\x1b[31m=x"})
    counter = CountingApp("lock")
    counter.send(headers={"Cookie": f"auth{'x' * 200}=x"})
    assert len(warnings(caplog)) == 2
    assert "\x1b" not in caplog.text
    assert max(map(len, warnings(caplog))) < 500


PROXY = "requests come through a proxy"


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_proxy_that_is_not_configured_is_named_once(caplog, guard, header):
    counter = CountingApp(guard)
    counter.add("/other", "other")
    for path in ("/", "/", "/other", "/other"):
        counter.send(path, headers={header: "203.0.113.7"})
    told = warnings(caplog)
    assert [line.rpartition("=")[2] for line in told] == ["view", "other"]
    assert all(f"{PROXY} ({header})" in line for line in told)
    assert "203.0.113.7" not in caplog.text


@pytest.mark.parametrize("address", ["", "203.0.113.1"])
def test_a_proxy_is_named_at_a_socket_and_beside_a_longer_address(caplog, address):
    """A server at a unix socket knows no address; one address may begin another."""
    CountingApp("lock").send(address=address, headers={"X-Forwarded-For": "203.0.113.17"})
    [line] = warnings(caplog)
    assert PROXY in line


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"IDEMPOTENCE_IP_HEADER": "X-Real-IP"}, {"X-Real-IP": "203.0.113.7"}),
        ({"IDEMPOTENCE_IDENTITY": ["authorization"]}, {"X-Forwarded-For": "203.0.113.7"}),
        ({}, {"X-Forwarded-For": "203.0.113.7", "Authorization": "Bearer x"}),
        ({}, {"X-Forwarded-For": "192.0.2.1, 203.0.113.7"}),  # a middleware has read it
    ],
    ids=str,
)
def test_no_proxy_is_named_where_none_matters(caplog, settings, sent):
    CountingApp("lock", **settings).send(headers=sent)
    assert warnings(caplog) == []


def test_nor_where_there_is_proxy_fix(caplog):
    counter = CountingApp("lock")
    counter.app.wsgi_app = ProxyFix(counter.app.wsgi_app)
    counter.send(headers={"X-Forwarded-For": "203.0.113.7", "X-Real-IP": "198.51.100.2"})
    assert warnings(caplog) == []


def test_a_server_that_passes_no_address_on_is_named_once(caplog):
    counter = CountingApp("key")
    for _ in range(2):
        counter.send(address="")
    [line] = warnings(caplog)
    assert "passes none on" in line
