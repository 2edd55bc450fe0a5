"""Who asks: the sources, their order, and what is made of them."""

import pytest
from flask import request, session
from flask_jwt_extended import JWTManager, create_access_token, jwt_required
from helpers.apps import make_app
from helpers.repository import renewed_cookies
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import (
    Idempotence,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.request.credentials import RENEWED


class Site:
    def __init__(self, **settings):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.client = self.app.test_client()

        @self.app.post("/")
        @no_repeat_submit(interval=60)
        def view():
            return {}

        @self.app.get("/login/<name>/<user>")
        def login(name, user):
            session.clear()
            session[name] = user
            return ""

    def post(self, *, address="192.0.2.1", **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        environ = {"REMOTE_ADDR": address}
        return self.client.post("/", headers=headers, environ_base=environ).status_code

    def identity(self, **options):
        with self.app.test_request_context("/", method="POST", **options):
            identities = self.app.extensions["idempotence"].engine.services.identities
            return identities.of(self.app, request._get_current_object()).text


def test_guests_are_told_apart_by_address():
    site = Site()
    assert [site.post(address="192.0.2.1"), site.post(address="192.0.2.2")] == [200, 200]
    assert [site.post(address="192.0.2.1"), site.post(address="192.0.2.2")] == [409, 409]


@pytest.mark.parametrize("name", ["user_id", "_user_id"])
def test_a_session_comes_before_credentials_and_address(name):
    site = Site()
    site.client.get(f"/login/{name}/alice")
    assert site.post(address="192.0.2.1", Authorization="Bearer x") == 200
    assert site.post(address="192.0.2.2", Authorization="Bearer y") == 409
    site.client.get(f"/login/{name}/bob")
    assert site.post(address="192.0.2.1", Authorization="Bearer x") == 200


def test_forwarded_headers_are_believed_from_nobody():
    site = Site()
    assert site.post(X_Forwarded_For="1.1.1.1", X_Real_IP="1.1.1.1") == 200
    assert site.post(X_Forwarded_For="2.2.2.2", X_Real_IP="2.2.2.2") == 409


def test_the_header_of_a_proxy_that_overwrites_it_can_be_named():
    site = Site(IDEMPOTENCE_IP_HEADER="X-Real-IP")
    assert site.post(X_Real_IP="1.1.1.1") == 200
    assert site.post(X_Real_IP="2.2.2.2") == 200
    assert site.post(X_Real_IP="1.1.1.1") == 409
    assert site.post() == 200  # past the proxy: the connection's own address
    assert site.post(X_Real_IP=" ") == 409


def test_proxy_fix_takes_the_address_that_the_last_proxy_has_seen():
    site = Site()
    site.app.wsgi_app = ProxyFix(site.app.wsgi_app)
    assert site.post(X_Forwarded_For="1.1.1.1") == 200
    assert site.post(X_Forwarded_For="2.2.2.2") == 200
    assert site.post(X_Forwarded_For="3.3.3.3, 1.1.1.1") == 409


@pytest.mark.parametrize(("x_host", "statuses"), [(0, [200, 409]), (1, [200, 200])])
def test_tenants_have_the_host_of_the_upstream_unless_the_proxy_passes_theirs_on(x_host, statuses):
    site = Site()
    site.app.wsgi_app = ProxyFix(site.app.wsgi_app, x_host=x_host)
    user = {"Authorization": "Bearer 1"}
    hosts = ("acme.example", "globex.example")
    assert [site.post(X_Forwarded_Host=host, **user) for host in hosts] == statuses


def test_the_order_of_the_sources_is_a_setting():
    site = Site(IDEMPOTENCE_IDENTITY=["ip"])
    assert site.post(Authorization="Bearer alice") == 200
    assert site.post(Authorization="Bearer bob") == 409


def test_the_applications_own_source_comes_first_and_may_pass():
    site = Site()

    @site.idempotence.identity_loader
    def api_key():
        return request.headers.get("X-Api-Key")

    assert site.post(X_Api_Key="1", address="192.0.2.1") == 200
    assert site.post(X_Api_Key="1", address="192.0.2.2") == 409
    assert site.post(X_Api_Key="2") == 200
    assert site.post() == 200
    assert site.post() == 409


def spending(**settings):
    site = Site(**settings)
    spend = one_time_token()(lambda: "spent")
    site.app.add_url_rule("/spend", "spend", spend, methods=["POST"])
    return site


@pytest.mark.parametrize(
    ("issued", "spent"),
    [
        ({"Cookie": "sessionid=guest"}, {"Cookie": "sessionid=signed-in"}),
        ({}, {"X-Api-Key": "1"}),
        ({"Authorization": "Novel nonce=1"}, {"Authorization": "Novel nonce=2"}),
        (
            {"Authorization": 'Digest username="ann", nonce="1"'},
            {"Authorization": 'Digest username="ann", nonce="2"'},
        ),
    ],
    ids=str,
)
def test_a_token_is_not_bound_to_what_changes_before_it_is_spent(issued, spent):
    client = spending().app.test_client(use_cookies=False)
    token = client.get("/token", headers=issued).json["token"]
    sent = {**spent, "Idempotence-Token": token}
    assert client.post("/spend", headers=sent).status_code == 200


def test_a_token_that_was_issued_where_no_login_is_checked_can_be_spent_where_one_is():
    """The route of tokens verifies no JWT; the header is the same at both."""
    site = Site(JWT_SECRET_KEY="a secret for the tests of 32 bytes")
    JWTManager(site.app)
    spend = jwt_required()(one_time_token()(lambda: "spent"))
    site.app.add_url_rule("/spend", "spend", spend, methods=["POST"])
    with site.app.app_context():
        ann, bob = ({"Authorization": f"Bearer {create_access_token(n)}"} for n in ("ann", "bob"))
    token = {"Idempotence-Token": site.client.get("/token", headers=ann).json["token"]}
    assert site.client.post("/spend", headers={**bob, **token}).status_code == 403
    assert site.client.post("/spend", headers={**ann, **token}).status_code == 200


def test_no_source_can_pretend_to_be_another():
    site = Site(IDEMPOTENCE_IP_HEADER="X-Real-IP")
    site.idempotence.identity_loader(lambda: request.headers.get("X-Loader"))
    as_session = site.identity(headers={"X-Loader": "ip:192.0.2.1"})
    as_address = site.identity(headers={"X-Real-IP": "192.0.2.1"})
    assert as_session != as_address
    assert (as_session, as_address) == (
        "localhost loader:ip:192.0.2.1",
        "localhost ip:192.0.2.1",
    )


def test_the_page_has_the_table_of_the_cookies_that_others_renew():
    assert sorted(renewed_cookies()) == sorted(RENEWED)


def test_without_any_source_all_are_one():
    site = Site()
    assert site.identity(environ_base={"REMOTE_ADDR": None}) == "localhost guest"


def test_the_key_of_the_hashes_outlives_a_rotation_until_the_old_secret_is_dropped():
    site = Site()
    assert site.post() == 200
    site.app.config.update(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["a secret for the tests"])
    assert site.post() == 409
    site.app.config.update(
        SECRET_KEY="newest", SECRET_KEY_FALLBACKS=["new", "a secret for the tests"]
    )
    assert site.post() == 409
    site.app.config.update(SECRET_KEY_FALLBACKS=["new"])
    assert site.post() == 200


def test_a_hash_key_of_its_own_makes_it_independent_of_the_secret():
    site = Site(IDEMPOTENCE_HASH_KEY="0123456789abcdef")
    assert site.post() == 200
    site.app.config.update(SECRET_KEY="another")
    assert site.post() == 409
