"""A sender that only `Authorization` or an address can identify is recognised the quick way.

The quick way must tell senders apart exactly as the long one does.
"""

from itertools import product

import pytest
from flask import g, request
from helpers.apps import make_app

ORDERS = [
    ("user", "session", "authorization", "credentials", "ip"),
    ("ip", "authorization"),
    ("authorization",),
    ("session", "ip"),
    ("user",),
    ("credentials", "authorization", "ip"),
]
AUTHORIZATION = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Bearer abc",
    "bearer  abc ",
    "Unheard-Of abc",
    'Digest username="u", realm="r", nonce="n"',
    "AWS4-HMAC-SHA256 Credential=AKID/20250101/eu/s3/aws4_request, Signature=1",
]
OTHERS = [
    {},
    {"X-Api-Key": "1"},
    {"X-Account-Id": "7"},
    {"X-Anything": "1"},
    {"Cookie": "auth=1"},
    {"X-Forwarded-For": "192.0.2.9"},
    {"Idempotency-Key": "k"},
]
ENVIRONS = [{"REMOTE_ADDR": "192.0.2.1"}, {"REMOTE_ADDR": ""}, {"REMOTE_USER": "u"}]


def identities_of(app):
    return app.extensions["idempotence"].engine.services.identities


def seen(app, identities):
    """Return all identities of the current request."""
    return (
        identities.of(app, request),
        identities.of_key(app, request, "k", unguessable=True),
        identities.bearer_of(app, request),
    )


@pytest.mark.parametrize("listed", [[], ["Authorization"]], ids=["as usual", "listed"])
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_it_is_the_sender_of_the_long_way(order, listed, monkeypatch, caplog):
    headers = {"IDEMPOTENCE_IDENTITY_HEADERS": listed} if listed else {}
    quick, long = (make_app(IDEMPOTENCE_IDENTITY=order, **headers) for _ in range(2))
    monkeypatch.setattr(identities_of(long), "_plain_sender", lambda *_: None)
    counts = dict.fromkeys((quick, long), 0)
    for authorization, others, environ in product(AUTHORIZATION, OTHERS, ENVIRONS):
        headers = dict(others)
        if authorization is not None:
            headers["Authorization"] = authorization
        found = {}
        for app in (quick, long):
            for _ in range(2):  # names in the environment are known from the second one on
                caplog.clear()
                with app.test_request_context(
                    "/", method="POST", headers=headers, environ_overrides=environ
                ):
                    found[app] = seen(app, identities_of(app))
                counts[app] += sum(each.threadName == "MainThread" for each in caplog.records)
        assert found[quick] == found[long], (headers, environ)
    assert counts[quick] == counts[long]


@pytest.fixture
def identities():
    """Return the identities of an application that has seen a bearer's request."""
    app = make_app()
    for _ in range(2):
        with posted(app):
            seen(app, identities_of(app))
    return app, identities_of(app)


def posted(app, **more):
    return app.test_request_context(
        "/", method="POST", headers={"Authorization": "Bearer abc", **more}
    )


def test_the_usual_request_goes_the_quick_way(identities, monkeypatch):
    app, found = identities
    monkeypatch.setattr(found, "_first", None)  # which the long way begins with
    with posted(app):
        assert "bearer abc" in found.of(app, request)


def test_it_is_the_same_from_the_first_request_on_with_authorization_listed_as_a_header():
    app = make_app(IDEMPOTENCE_IDENTITY_HEADERS=["Authorization"])
    found = set()
    for _ in range(3):
        with posted(app):
            found.add(seen(app, identities_of(app)))
    assert len(found) == 1


@pytest.mark.parametrize("left", ["_jwt_extended_jwt", "flask_httpauth_user"])
def test_a_user_that_a_library_has_left_is_seen(identities, left):
    app, found = identities
    with posted(app):
        alone = found.of(app, request)
        setattr(g, left, {"sub": "7"})
        assert found.of(app, request) != alone


def test_so_is_one_in_the_session(identities):
    app, found = identities
    with posted(app) as context:
        alone = found.of(app, request)
        context.session["user_id"] = 7
        assert found.of(app, request) != alone


def test_behind_a_proxy_that_is_configured_forwarded_addresses_say_nothing(monkeypatch):
    app = make_app()
    found = identities_of(app)
    forwarded = {"X-Forwarded-For": "192.0.2.9"}
    fixed = {"werkzeug.proxy_fix.orig": {}, "REMOTE_ADDR": "192.0.2.9"}
    for _ in range(2):
        with app.test_request_context(headers=forwarded, environ_overrides=fixed):
            found.of(app, request)
    monkeypatch.setattr(found, "_first", None)
    with app.test_request_context(headers=forwarded, environ_overrides=fixed):
        assert "192.0.2.9" in found.of(app, request)


def test_a_guest_without_an_address_is_warned_of(caplog):
    app = make_app()
    for address in ("192.0.2.1", "192.0.2.1", ""):
        assert not caplog.records
        with app.test_request_context(environ_overrides={"REMOTE_ADDR": address}):
            identities_of(app).of(app, request)
    assert "Addresses distinguish guests" in caplog.text
