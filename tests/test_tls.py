"""A server that speaks TLS; left out where the server to test with was built without it."""

import os
import ssl

import pytest
from servers import HOST, all_at_once

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed
from flask_idempotence.testing import StoreContract


class TestTlsContract(StoreContract):
    @pytest.fixture
    def store(self, tls_server):
        tls_server.client(port=0, unix_socket_path=f"{tls_server.directory}/redis.sock").flushall()
        return open_store(tls_url(tls_server), {"deadline": 5})  # 32 handshakes at once


def tls_url(server, scheme="rediss"):
    return f"{scheme}://{HOST}:{server.port}/0?ssl_ca_certs={server.ca}"


def test_valkeys_is_the_same(tls_server):
    store = open_store(tls_url(tls_server, "valkeys"), {})
    assert store.claim(os.urandom(8).hex(), os.urandom(16), NO_FINGERPRINT, 1, 0) == Claimed()


def test_a_server_that_nobody_vouches_for_is_not_trusted(tls_server):
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        open_store(f"rediss://{HOST}:{tls_server.port}/0", {}).ping()
    assert not caught.value.sent


def test_the_certificates_are_read_once(tls_server, monkeypatch):
    made, create = [], ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **k: made.append(1) or create())
    store = open_store(tls_url(tls_server), {"deadline": 5})
    all_at_once([store.ping] * 8)
    assert len(made) == 1
    other = open_store(f"rediss://{HOST}:{tls_server.port}/0", {})
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        other.ping()  # what one store trusts, another does not
