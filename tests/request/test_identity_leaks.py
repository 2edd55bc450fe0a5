"""Users behind one address, with one key and one body: nobody gets another's answer."""

import pytest
from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2.rfc6750 import BearerTokenValidator
from flask_httpauth import HTTPBasicAuth, HTTPTokenAuth
from flask_jwt_extended import JWTManager, create_access_token, jwt_required
from flask_login import LoginManager, UserMixin, login_user
from helpers.applications.login_apps import ADDRESS, CountingApp
from helpers.repository import renewed_cookies

from flask_idempotence import ConfigurationError

JWT_SECRET = "a secret for the tests of 32 bytes"


def by_header(name, value):
    return {"headers": {name: value}}


def by_cookie(name, value):
    return by_header("Cookie", f"{name}={value}")


def signed_in(counter, **content):
    client = counter.app.test_client()
    with client.session_transaction() as held:
        held.update(content)
    return {"client": client}


@pytest.mark.parametrize("guard", ["key", "lock"])
class TestWhatWasShown:
    def test_accounts_with_keys_in_a_header(self, guard):
        assert CountingApp(guard).tells_apart(*[by_header("X-Api-Key", name) for name in "ab"])

    @pytest.mark.parametrize("check_first", [True, False])
    def test_a_jwt_in_a_cookie(self, guard, check_first):
        """Whether the login check stands outside the guard or, by mistake, nowhere."""
        counter = CountingApp(
            guard,
            checks=[jwt_required()] if check_first else [],
            JWT_SECRET_KEY=JWT_SECRET,
            JWT_TOKEN_LOCATION=["cookies"],
            JWT_COOKIE_CSRF_PROTECT=False,
        )
        JWTManager(counter.app)
        with counter.app.app_context():
            users = [by_cookie("access_token_cookie", create_access_token(u)) for u in "ab"]
        assert counter.tells_apart(*users)

    @pytest.mark.parametrize(
        "name", ["username", "user_id", "uid", "user", "email", "sub", "identity.id"]
    )
    def test_users_of_a_session(self, guard, name):
        counter = CountingApp(guard)
        users = [signed_in(counter, **{name: user}) for user in ("ann", "bob")]
        assert counter.tells_apart(*users)

    def test_tenants_told_apart_by_host(self, guard):
        tenants = [{"base_url": f"http://{tenant}.example"} for tenant in "ab"]
        assert CountingApp(guard).tells_apart(*tenants)


class TestListedHeadersAndCookies:
    @pytest.mark.parametrize(
        "header",
        [
            "Api-Key",
            "Cf-Access-Authenticated-User-Email",
            "X-Amzn-Oidc-Identity",
            "X-Goog-Authenticated-User-Id",
            "X-MS-CLIENT-PRINCIPAL-ID",
            "X-Auth-Request-User",
            "X-User-ID",
            "X-Auth-Token",
            "x-access-token",
            "Stripe-Account",
            "X-Tenant-ID",
            "X-Account-Id",
            "X-Organization-ID",
        ],
    )
    def test_headers(self, header):
        assert CountingApp().tells_apart(by_header(header, "a"), by_header(header, "b"))

    @pytest.mark.parametrize(
        "cookie",
        [
            "access_token_cookie",
            "my_jwt",
            "JWT-session",
            "auth_token",
            "__Host-auth_token",
            "sessionid",
            "connect.sid",
            "PHPSESSID",
        ],
    )
    def test_cookies(self, cookie):
        assert CountingApp().tells_apart(by_cookie(cookie, "a"), by_cookie(cookie, "b"))

    @pytest.mark.parametrize(
        ("cookie", "settings"),
        [
            *((name.replace("*", "1a"), {}) for name in renewed_cookies()),
            *(
                (name, {"IDEMPOTENCE_IDENTITY_COOKIES": [f"{name}*"]})
                for name in renewed_cookies()
                if "*" not in name
            ),
        ],
    )
    def test_cookies_that_others_renew_do_not_count(self, cookie, settings, caplog):
        for name in (cookie, f"__Secure-{cookie}"):
            counter = CountingApp(**settings)
            sent = [
                {**by_cookie(name, value), "key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}
                for value in "ab"
            ]
            assert counter.takes_for_one(*sent)
        assert caplog.records == []

    def test_a_cookie_that_is_named_in_full_counts(self):
        counter = CountingApp(IDEMPOTENCE_IDENTITY_COOKIES=["aws*", "AWS-WAF-Token"])
        users = [by_cookie("aws-waf-token", name) for name in "ab"]
        assert counter.tells_apart(*users)

    @pytest.mark.parametrize(
        ("cookie", "settings"),
        [
            ("bm_access_token", {}),
            ("_px_token", {}),
            (
                "AWSELBAuthSessionCookie-0",
                {"IDEMPOTENCE_IDENTITY_COOKIES": ["AWSELBAuthSessionCookie*"]},
            ),
        ],
    )
    def test_a_credential_named_like_a_family_of_them_counts(self, cookie, settings):
        users = [by_cookie(cookie, name) for name in "ab"]
        assert CountingApp(**settings).tells_apart(*users)

    @pytest.mark.parametrize("cookie", ["csrf_token", "XSRF_TOKEN", "_csrf_token", "theme"])
    def test_tokens_against_forged_requests_do_not_count(self, cookie):
        assert CountingApp().takes_for_one(by_cookie(cookie, "a"), by_cookie(cookie, "b"))

    def test_the_lists_are_settings(self):
        counter = CountingApp(
            IDEMPOTENCE_IDENTITY_HEADERS=["X-Team"],
            IDEMPOTENCE_IDENTITY_COOKIES=["my-*"],
            IDEMPOTENCE_IDENTITY_SESSION_KEYS=["customer"],
        )
        assert counter.takes_for_one(by_header("X-Api-Key", "a"), by_header("X-Api-Key", "b"))
        assert counter.tells_apart(by_header("X-Team", "a"), by_header("X-Team", "b"))
        assert counter.tells_apart(by_cookie("my-id", "a"), by_cookie("my-id", "b"))
        assert counter.tells_apart(*[signed_in(counter, customer=number) for number in (1, 2)])

    @pytest.mark.parametrize(
        ("name", "value"),
        [("HEADERS", ["X-*"]), ("HEADERS", ["X Key"]), ("COOKIES", ["*"]), ("COOKIES", ["a=b"])],
    )
    def test_a_list_that_cannot_be_meant_is_refused(self, name, value):
        with pytest.raises(ConfigurationError, match=f"IDEMPOTENCE_IDENTITY_{name}: Must hold"):
            CountingApp(**{f"IDEMPOTENCE_IDENTITY_{name}": value})

    def test_one_user_in_two_accounts_is_two_senders(self):
        counter = CountingApp()
        accounts = [
            {"headers": {"Authorization": "Bearer platform", "Stripe-Account": account}}
            for account in "ab"
        ]
        assert counter.tells_apart(*accounts)
        client = signed_in(counter, user_id=7)["client"]
        tenants = [{"client": client, **by_header("X-Tenant-ID", tenant)} for tenant in "ab"]
        assert counter.tells_apart(*tenants)

    def test_a_password_that_all_share_hides_nobody(self):
        """Basic authentication in front of the whole site, users by a token of their own."""
        site = {"Authorization": "Basic c2l0ZTpzZWNyZXQ="}
        for carry in ({"X-Access-Token": "{}"}, {"Cookie": "access_token_cookie={}"}):
            [(name, value)] = carry.items()
            users = [{"headers": {**site, name: value.format(user)}} for user in "ab"]
            assert CountingApp().tells_apart(*users)

    def test_the_key_of_an_application_hides_no_user(self):
        users = [{"headers": {"X-Api-Key": "app", "X-Access-Token": user}} for user in "ab"]
        assert CountingApp().tells_apart(*users)

    def test_values_cannot_be_moved_between_names(self):
        one = {"headers": {"Cookie": "a_token=1; b_token=2"}}
        other = {"headers": {"Cookie": 'a_token="1\\", \\"cookie b_token\\", \\"2"'}}
        assert CountingApp().tells_apart(one, other)


class Granted:
    """What Authlib asks a token."""

    def is_expired(self):
        return False

    def is_revoked(self):
        return False

    def get_scope(self):
        return ""


def protected_by(token):
    class Validator(BearerTokenValidator):
        def authenticate_token(self, token_string):
            return token(token_string)

    protect = ResourceProtector()
    protect.register_token_validator(Validator())
    return protect


class TestLoginLibraries:
    """The user that a library has found, who survives another token and another address."""

    def attempts(self, *headers):
        addresses = ("192.0.2.1", "2001:db8::1")
        return [
            {"headers": each, "address": address}
            for each, address in zip(headers, addresses, strict=True)
        ]

    def test_flask_jwt_extended(self):
        counter = CountingApp(checks=[jwt_required()], JWT_SECRET_KEY=JWT_SECRET)
        JWTManager(counter.app)
        with counter.app.app_context():
            anns, bobs = (
                [{"Authorization": f"Bearer {create_access_token(user)}"} for _ in range(2)]
                for user in ("ann", "bob")
            )
        assert anns[0] != anns[1]
        assert counter.tells_apart({"headers": anns[0]}, {"headers": bobs[0]})
        counter = CountingApp(checks=[jwt_required()], JWT_SECRET_KEY=JWT_SECRET)
        JWTManager(counter.app)
        assert counter.takes_for_one(*self.attempts(*anns))

    def test_flask_login_without_a_loader_knows_nobody(self):
        counter = CountingApp()
        LoginManager(counter.app)
        assert counter.send().status_code == 200

    def test_flask_jwt_extended_at_another_place(self):
        """Where it looks is its own setting, which counts where it has not looked yet."""
        counter = CountingApp(JWT_ACCESS_COOKIE_NAME="who", JWT_HEADER_NAME="X-Who")
        JWTManager(counter.app)
        assert counter.tells_apart(by_cookie("who", "a"), by_cookie("who", "b"))
        assert counter.tells_apart(by_header("X-Who", "a"), by_header("X-Who", "b"))

    def test_flask_jwt_extended_without_a_token(self):
        counter = CountingApp(checks=[jwt_required(optional=True)], JWT_SECRET_KEY=JWT_SECRET)
        JWTManager(counter.app)
        assert counter.tells_apart({"address": "192.0.2.1"}, {"address": "192.0.2.2"})

    def test_flask_httpauth_with_names(self):
        auth = HTTPBasicAuth()
        auth.verify_password(lambda name, password: name if password else None)
        counter = CountingApp(checks=[auth.login_required])
        users = [{"auth": (name, "secret")} for name in ("ann", "bob")]
        assert counter.tells_apart(*users)
        again = [{"auth": ("cay", "old"), "address": "192.0.2.1"}]
        again += [{"auth": ("cay", "new"), "address": "192.0.2.2"}]
        assert counter.takes_for_one(*again)

    def test_flask_httpauth_with_objects(self):
        """Users of one title are told apart by their ids, those of one id by their kinds."""

        class User:
            def __init__(self, id_):
                self.id = id_

            def __str__(self):
                return "Mr Smith"

        class Admin(User):
            pass

        users = {"1": lambda: User(1), "one": lambda: User(1), "2": lambda: User(2)}
        users["admin"] = lambda: Admin(1)
        auth = HTTPTokenAuth(header="X-Who")
        auth.verify_token(lambda token: users[token]())
        counter = CountingApp(checks=[auth.login_required])
        assert counter.tells_apart(by_header("X-Who", "1"), by_header("X-Who", "2"))
        assert counter.verdicts(by_header("X-Who", "admin")) == [200]
        assert counter.verdicts(by_header("X-Who", "one")) != [200]

    def test_flask_httpauth_with_an_object_that_has_no_id(self):
        auth = HTTPTokenAuth()
        auth.verify_token(lambda token: object())
        counter = CountingApp(checks=[auth.login_required])
        assert counter.tells_apart(*[by_header("Authorization", f"Bearer {n}") for n in "ab"])

    def test_authlib(self):
        class Token(Granted):
            def __init__(self, text):
                self.user_id, self.client_id = text[0], "client"

        protect = protected_by(Token)
        counter = CountingApp(checks=[protect()])
        tokens = [{"Authorization": f"Bearer {text}"} for text in ("a1", "b1", "a2")]
        assert counter.tells_apart({"headers": tokens[0]}, {"headers": tokens[1]})
        counter = CountingApp(checks=[protect()])
        assert counter.takes_for_one(*self.attempts(tokens[0], tokens[2]))

    def test_authlib_with_claims(self):
        """A token that is a mapping, as of the validators of JWTs and of introspection."""

        class Claims(Granted, dict):
            def __init__(self, text):
                self["iss"], self["sub"], self["jti"] = text.split("~")

        counter = CountingApp(checks=[protected_by(Claims)()])
        tokens = ("one~7~1", "two~7~1", "one~7~2")
        one, two, again = ({"headers": {"Authorization": f"Bearer {t}"}} for t in tokens)
        assert counter.tells_apart(one, two)
        assert counter.verdicts(again) != [200]

    def test_flask_login_and_its_remember_cookie(self):
        class User(UserMixin):
            def __init__(self, id_):
                self.id = id_

        counter = CountingApp()
        manager = LoginManager(counter.app)
        manager.user_loader(User)
        counter.app.add_url_rule(
            "/login/<id_>", "login", lambda id_: str(login_user(User(id_), remember=True))
        )
        clients = [counter.app.test_client() for _ in range(2)]
        for client, user in zip(clients, ("7", "8"), strict=True):
            client.get(f"/login/{user}")
        assert counter.tells_apart(*[{"client": client} for client in clients])
        clients[0].delete_cookie("session")
        assert counter.verdicts({"client": clients[0], "address": "192.0.2.9"}) != [200]


class TestNobody:
    @pytest.mark.parametrize("value", ["", " ", False, True, None, [], {}])
    def test_of_a_session_is_not_everybody(self, value):
        counter = CountingApp()
        one, other = (signed_in(counter, user_id=value) for _ in range(2))
        assert counter.tells_apart({**one, "address": ADDRESS}, {**other, "address": "192.0.2.2"})

    @pytest.mark.parametrize("value", ["", " ", False, True, None])
    def test_of_a_loader_is_not_everybody(self, value):
        counter = CountingApp()
        counter.idempotence.identity_loader(lambda: value)
        assert counter.tells_apart(by_header("X-Api-Key", "a"), by_header("X-Api-Key", "b"))

    @pytest.mark.parametrize("value", [0, "0"])
    def test_0_is_somebody(self, value):
        counter = CountingApp()
        users = [signed_in(counter, user_id=each) for each in (value, 1)]
        assert counter.tells_apart(*users)
        assert counter.verdicts({**users[0], "address": "192.0.2.2"}) != [200]
        counter = CountingApp()
        counter.idempotence.identity_loader(lambda: value)
        assert counter.takes_for_one({"address": "192.0.2.1"}, {"address": "192.0.2.2"})

    def test_an_empty_name_gives_way_to_the_next(self):
        counter = CountingApp()
        users = [signed_in(counter, user_id="", username=name) for name in ("ann", "bob")]
        assert counter.tells_apart(*users)

    def test_two_names_are_two_users(self):
        """A visitor who calls himself 7 is not the user whose id is 7."""
        counter = CountingApp()
        assert counter.tells_apart(
            signed_in(counter, user_id="7"), signed_in(counter, username="7")
        )

    def test_a_mapping_counts_by_its_id(self):
        counter = CountingApp()
        smiths = [signed_in(counter, user={"id": id_, "name": "Smith"}) for id_ in (1, 2)]
        assert counter.tells_apart(*smiths)
        renamed = signed_in(counter, user={"id": 1, "name": "Miller"})
        assert counter.verdicts(renamed) != [200]
        nameless = [signed_in(counter, user={"name": name}) for name in ("Smith", "Miller")]
        assert counter.tells_apart(*nameless)


class TestHost:
    def test_it_may_be_left_out(self):
        hosts = [{"base_url": f"http://{host}.example"} for host in "ab"]
        assert CountingApp(IDEMPOTENCE_IDENTITY_HOST=False).takes_for_one(*hosts)

    def test_it_is_the_same_in_capitals_and_with_the_usual_port(self):
        hosts = [{"base_url": f"http://{host}"} for host in ("shop.example", "SHOP.example:80")]
        assert CountingApp().takes_for_one(*hosts)

    @pytest.mark.parametrize("host", ["", "a b", "caf\xe9", "x" * 3000, "[::1", "a/b", "%00"])
    def test_no_host_brings_a_guard_down(self, host):
        assert CountingApp().send(headers={"Host": host}).status_code in (200, 400, 404)


def test_a_session_that_the_server_keeps_counts_by_its_id():
    """What is in it may have any name; a visitor without a cookie has a new one each time."""
    from flask.sessions import SecureCookieSession, SessionInterface  # noqa: PLC0415 - for this alone

    class Kept(SecureCookieSession):
        sid = ""

    class Interface(SessionInterface):
        def open_session(self, app, request):
            kept = Kept({"customer": 7})
            kept.sid = request.cookies.get("session") or str(id(request))
            return kept

        def save_session(self, app, session, response):
            pass

    counter = CountingApp()
    counter.app.session_interface = Interface()
    assert counter.tells_apart(by_cookie("session", "a"), by_cookie("session", "b"))
    assert counter.takes_for_one({}, {})


def test_what_is_in_a_session_is_no_credential():
    """It changes with every message that is flashed."""
    counter = CountingApp()
    one, other = (signed_in(counter, last=number) for number in (1, 2))
    assert counter.takes_for_one(one, other)


def test_an_empty_session_is_not_looked_at():
    counter = CountingApp()
    assert "Vary" not in counter.send(headers={"Cookie": "theme=dark"}).headers
