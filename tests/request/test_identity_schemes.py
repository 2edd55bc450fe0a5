"""Credentials in the Authorization header: those that are signed anew count by their sender."""

import pytest
from helpers.applications.login_apps import CountingApp
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotence.request.credentials import read_authorization

SIGNED = {
    "Digest": 'Digest username="{}", realm="shop", nonce="{n}", uri="/", response="{n}{n}"',
    "Digest, user in another alphabet": 'Digest username*=UTF-8\'\'{}, realm="shop", cnonce="{n}"',
    "AWS4": (
        "AWS4-HMAC-SHA256 Credential={}/2026010{n}/eu-west-1/execute-api/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=fe5f80{n}"
    ),
    "AWS4 without blanks": (
        "AWS4-HMAC-SHA256 Credential={}/20260101/r/s/aws4_request,Signature={n}"
    ),
    "AWS4 of several regions": (
        "AWS4-ECDSA-P256-SHA256 Credential={}/20260101/s3/aws4_request, Signature={n}"
    ),
    "AWS2": "AWS {}:signature{n}=",
    "OAuth 1": (
        'OAuth realm="r",oauth_consumer_key="app",oauth_token="{}",oauth_nonce="{n}",'
        'oauth_timestamp="13747{n}",oauth_signature="w%2B{n}%3D"'
    ),
    "OAuth 1 without a token": 'OAuth oauth_consumer_key="{}", oauth_nonce="{n}"',
    "Hawk": 'Hawk id="{}", ts="135330{n}", nonce="j4{n}", mac="6R4r{n}="',
    "Signature": 'Signature keyId="{}",algorithm="rsa-sha256",created=14028{n},signature="G{n}="',
    "in capitals": 'DIGEST USERNAME="{}", RESPONSE="{n}"',
}


def with_header(text):
    return {"headers": {"Authorization": text}}


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("scheme", SIGNED)
def test_three_attempts_with_new_signatures_are_one_effect(guard, scheme, caplog):
    counter = CountingApp(guard)
    attempts = [with_header(SIGNED[scheme].format("ann", n=number)) for number in range(3)]
    assert 200 not in counter.verdicts(*attempts)[1:]
    assert counter.runs == 1
    assert counter.verdicts(with_header(SIGNED[scheme].format("bob", n=0))) == [200]
    assert caplog.records == []


WHOLE = [
    *("Basic {}", "Bearer {}", "Token {}", "ApiKey {}", "Unheard-Of {}", "{}", "a b c {}"),
    # What cannot be taken apart
    *('Digest response="{}"', 'Digest username="", response="{}"', "AWS {}", "Hawk {}"),
    'Digest username="ann", username="{}"',
    *("AWS4-HMAC-SHA256 Signature={}", "Signature = {}", "OAuth ,,,{}", "Digest {}" + "x" * 9000),
]


@pytest.mark.parametrize("scheme", WHOLE)
def test_any_other_scheme_counts_as_a_whole(scheme):
    users = [with_header(scheme.format(user)) for user in ("ann", "bob")]
    assert CountingApp().tells_apart(*users)


def test_nothing_sent_as_it_is_looks_like_a_signed_sender():
    signed, _ = read_authorization('Digest username="ann", realm="shop"')
    for text in (signed, signed.partition(":")[2], 'digest ["ann","","shop"]'):
        assert read_authorization(text)[0] != signed


@given(st.text(st.characters(max_codepoint=255)))
def test_no_header_breaks_it(text):
    read_authorization(text)
    read_authorization("Digest " + text)
    read_authorization("AWS4-HMAC-SHA256 Credential=" + text)


def test_a_scheme_that_may_change_is_named_once_in_the_log(caplog):
    counter = CountingApp()
    counter.add("/other")
    sent = 'Novel-HMAC who="ann", secret="hush{}"'
    for number in range(3):
        for path in ("/", "/other"):
            assert counter.send(path, **with_header(sent.format(number))).status_code == 200
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition("endpoint=")[2] for line in lines] == ["view", "other"]
    assert all("of scheme novel-hmac" in line and "identity_loader" in line for line in lines)
    assert "hush" not in caplog.text
    caplog.clear()
    # A token is bound to no such scheme.
    assert counter.app.test_client().get("/token", **with_header(sent)).status_code == 200
    assert caplog.records == []


@pytest.mark.parametrize("sent", ["hush", "hush more", "Hush-Hush c2VjcmV0=", "hush=1, b=2"])
def test_nothing_that_may_be_a_secret_is_logged(sent, caplog):
    CountingApp("key").send(**with_header(sent))
    assert "header of scheme unknown counts as a whole" in caplog.text
    assert "hush" not in caplog.text.lower()
