"""A server that speaks TLS; left out where the server to test with was built without it."""

import ssl
from types import SimpleNamespace

import pytest
from helpers.servers.processes import HOST, all_at_once
from helpers.servers.topologies import TlsServer, make_certificate
from helpers.store_assertions import answers, is_true_in_a_child

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.redis.link import TlsContext, _version_of_files
from flask_idempotence.testing import StoreContract


class TestTlsContract(StoreContract):
    @pytest.fixture
    def store(self, tls_server):
        tls_server.client(port=0, unix_socket_path=f"{tls_server.directory}/redis.sock").flushall()
        return open_store(tls_url(tls_server), {"deadline": 5})  # 32 handshakes at once


def tls_url(server):
    return f"rediss://{HOST}:{server.port}/0?ssl_ca_certs={server.ca}"


def test_a_server_that_nobody_vouches_for_is_not_trusted(tls_server):
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        open_store(f"rediss://{HOST}:{tls_server.port}/0", {}).ping()
    assert not caught.value.sent


def test_the_certificates_are_read_once(tls_server, monkeypatch):
    made, create = [], ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **k: made.append(1) or create())
    # Who waits for a quarter of it reads them, too.
    store = open_store(tls_url(tls_server), {"deadline": 60})
    all_at_once([store.ping] * 8)
    assert len(made) == 1
    other = open_store(f"rediss://{HOST}:{tls_server.port}/0", {})
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        other.ping()  # what one store trusts, another does not


@pytest.mark.parametrize("name", ["ssl_validate_ocsp", "ssl_validate_ocsp_stapled"])
def test_a_connection_that_asks_the_authority_is_left_to_redis_py(name):
    connection, plain = SimpleNamespace(host="a", **{name: True}), object()
    assert TlsContext().wrap(connection, lambda taken: ("by redis-py", taken), plain) == (
        "by redis-py",
        plain,
    )


def renew_the_file(file, folder):
    file.write_text("another content")


def remove_the_file(file, folder):
    file.unlink()


def lead_elsewhere(file, folder):
    """As Kubernetes mounts a secret."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / file.name).write_text("another content")
    folder.rename(folder.parent / "before")
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        *((name, renew_the_file) for name in ("ca_certs", "certfile", "keyfile", "ca_path")),
        *((name, remove_the_file) for name in ("ca_certs", "ca_path")),
        *((name, lead_elsewhere) for name in ("ca_certs", "ca_path")),
    ],
)
def test_a_change_of_each_file_is_a_new_version(tmp_path, setting, change):
    folder = tmp_path / "certificates"
    folder.mkdir()
    file = folder / "file.pem"
    file.write_text("before")
    connection = SimpleNamespace(**{setting: str(folder if setting == "ca_path" else file)})
    before = _version_of_files(connection)
    assert _version_of_files(connection) == before
    change(file, folder)
    assert _version_of_files(connection) != before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_during_the_first_connection_waits_for_no_thread(tls_server):
    """The thread that made the context, under a lock, is not there in the child."""
    store = open_store(tls_url(tls_server), {"deadline": 40})
    tls = store._deployment._node.connect.__self__._class.tls
    with tls._making:
        # A quarter of the deadline is ten seconds.
        assert is_true_in_a_child(lambda: answers(store), 8)
    store.ping()


class TestARotation:
    """Of certificates on the disk, under a store that goes on."""

    @pytest.fixture
    def clients(self, tmp_path):
        make_certificate(tmp_path)
        return tmp_path

    @pytest.fixture
    def server(self, clients):
        with TlsServer(clients) as server:
            yield server

    @pytest.fixture
    def store(self, server, clients):
        certificate = f"&ssl_certfile={clients}/certificate.pem&ssl_keyfile={clients}/key.pem"
        return open_store(tls_url(server) + certificate, {"deadline": 5})

    def test_of_the_authority_is_found_at_the_next_connection(self, server, store):
        store.ping()
        server.stop()
        server.start()  # with another certificate, in the same file
        store.ping()

    def test_of_the_client_certificate_is_found_at_the_next_connection(
        self, server, store, clients
    ):
        store.ping()
        server.stop()
        make_certificate(clients)  # the only one that the server takes from now on
        server.start()
        store.ping()
