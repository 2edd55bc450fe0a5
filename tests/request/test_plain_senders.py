"""The usual requests: each sender has the same text in every release of this keyspace."""

import pytest
from flask import g, request
from helpers.apps import make_app

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
AWS = "AWS4-HMAC-SHA256 Credential=AKID/20250101/eu/s3/aws4_request, Signature=1"
DIGEST = 'Digest username="u", realm="r", nonce="n"'
ACCOUNT = 'account:["header stripe-account","7"]'
GUEST_IN_ACCOUNT = '["ip:192.0.2.1","account:[\\"header stripe-account\\",\\"7\\"]"]'
OF_API_KEY = 'credentials:["header x-api-key","1"]'

VECTORS = [
    ({}, {}, ("ip:192.0.2.1", "guest", "")),
    ({}, {"REMOTE_ADDR": ""}, ("guest", "guest", "")),
    ({"X-Anything": "1", "Idempotency-Key": "k"}, {}, ("ip:192.0.2.1", "guest", "")),
    ({"Authorization": ""}, {}, ("ip:192.0.2.1", "guest", "")),
    ({"Authorization": "Bearer"}, {}, ("ip:192.0.2.1", "guest", "")),
    ({"Authorization": "bearer  abc "}, {}, ("authorization:bearer abc",) * 3),
    ({"Authorization": "New abc"}, {}, ("authorization:new abc", "authorization:new abc", "")),
    ({"Authorization": DIGEST}, {}, ('signed:digest ["u","","r"]',) * 3),
    ({"Authorization": AWS}, {}, ('signed:aws4-hmac-sha256 ["AKID"]',) * 3),
    ({"X-Api-Key": "1"}, {}, (OF_API_KEY, OF_API_KEY, "")),
    ({"Stripe-Account": "7"}, {}, (GUEST_IN_ACCOUNT, ACCOUNT, "")),
    ({}, {"REMOTE_USER": "u"}, ("user:remote_user=u", "user:remote_user=u", "")),
]
"""Headers, environment, and the sender for a lock, for an unguessable key and for a token."""


def posted(app, headers=None, environ=None):
    environ = {"REMOTE_ADDR": "192.0.2.1", **(environ or {})}
    return app.test_request_context("/", method="POST", headers=headers, environ_overrides=environ)


def seen(app):
    """Return all identities of the current request."""
    identities = app.extensions["idempotence"].engine.services.identities
    return (
        identities.of(app, request),
        identities.of(app, request, KEY),
        identities.bearer_of(app, request),
    )


@pytest.mark.parametrize(("headers", "environ", "expected"), VECTORS, ids=str)
def test_frozen_vectors_of_senders(headers, environ, expected):
    app = make_app()
    for _ in range(2):  # names in the environment are known from the second one on
        with posted(app, headers, environ):
            found = seen(app)
        texts = tuple(identity.text.removeprefix("localhost ") for identity in found)
        assert texts == expected


def test_a_listed_authorization_header_is_one_credential_from_the_first_request_on():
    app = make_app(IDEMPOTENCE_IDENTITY_HEADERS=["Authorization"])
    found = set()
    for _ in range(3):
        with posted(app, {"Authorization": "Bearer abc"}):
            found.add(seen(app))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("left", "sender"),
    [
        ("_jwt_extended_jwt", "user:flask_jwt_extended=7"),
        ("flask_httpauth_user", "user:flask_httpauth.sub=7"),
    ],
)
def test_a_user_that_a_library_has_left_is_seen(left, sender):
    app = make_app()
    with posted(app, {"Authorization": "Bearer abc"}):
        seen(app)
        setattr(g, left, {"sub": "7"})
        found = seen(app)[0].senders[0]
        assert (found.source, found.text) == ("user", sender)


def test_so_is_one_in_the_session():
    app = make_app()
    with posted(app, {"Authorization": "Bearer abc"}) as context:
        alone = seen(app)
        context.session["user_id"] = 7
        assert seen(app)[0] != alone[0]


def test_a_guest_without_an_address_is_warned_of(caplog):
    app = make_app()
    for address in ("192.0.2.1", "192.0.2.1", ""):
        assert not caplog.records
        with posted(app, environ={"REMOTE_ADDR": address}):
            seen(app)
    assert "Addresses distinguish guests" in caplog.text
