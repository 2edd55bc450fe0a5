"""Who asks: the sources, their order, what counts together, and what is made of them."""

import base64
import collections
import decimal
import itertools
import os
import uuid

import flask
import pytest
from flask import g, request
from flask.sessions import SecureCookieSession, SessionInterface
from flask_jwt_extended import JWTManager, create_access_token, jwt_required
from flask_login import AnonymousUserMixin, LoginManager
from helpers.applications.login_apps import CountingApp
from helpers.apps import make_app
from werkzeug.local import LocalProxy
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import ConfigurationError, idempotent, one_time_token
from flask_idempotence.client import new_key
from flask_idempotence.request.key_header import is_unguessable

V4, OTHER_V4, V6 = ({"address": at} for at in ("192.0.2.1", "192.0.2.2", "2001:db8::1"))
JWT = {"JWT_SECRET_KEY": "a secret for the tests of 32 bytes"}


def by(**headers):
    return {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def bearer(token):
    return by(Authorization=f"Bearer {token}")


def by_cookie(name, value):
    return by(Cookie=f"{name}={value}")


def signed_in(counter, **content):
    client = counter.app.test_client()
    with client.session_transaction() as held:
        held.update(content)
    return {"client": client}


def has(**content):
    """Return a way to sign in, whatever the application."""
    return lambda counter: signed_in(counter, **content)


def made(counter, senders):
    return [sender(counter) if callable(sender) else sender for sender in senders]


def loading(load, guard="key", **settings):
    """Return an application with an `identity_loader`."""
    counter = CountingApp(guard, **settings)
    counter.idempotence.identity_loader(load)
    return counter


# Addresses and proxies


def test_proxy_fix_takes_the_address_that_the_last_proxy_has_seen():
    counter = CountingApp("lock")
    counter.app.wsgi_app = ProxyFix(counter.app.wsgi_app)
    assert counter.tells_apart(by(X_Forwarded_For="1.1.1.1"), by(X_Forwarded_For="2.2.2.2"))
    assert counter.verdicts(by(X_Forwarded_For="3.3.3.3, 1.1.1.1")) == ["repeat-submit"]


@pytest.mark.parametrize(("x_host", "found"), [(0, [200, "repeat-submit"]), (1, [200, 200])])
def test_tenants_have_the_host_of_the_upstream_unless_the_proxy_passes_theirs_on(x_host, found):
    counter = CountingApp("lock")
    counter.app.wsgi_app = ProxyFix(counter.app.wsgi_app, x_host=x_host)
    sent = [by(X_Forwarded_Host=f"{tenant}.example") for tenant in ("acme", "globex")]
    assert counter.verdicts(*sent) == found


@pytest.mark.parametrize("host", ["", "a b", "caf\xe9", "x" * 3000, "[::1", "a/b", "%00"])
def test_no_host_brings_a_guard_down(host):
    assert CountingApp().send(headers={"Host": host}).status_code in (200, 400, 404)


# The order of the sources


def test_the_applications_own_source_comes_first_and_may_pass():
    counter = loading(lambda: request.headers.get("X-Who"), "lock")
    assert counter.takes_for_one(by(X_Who="1") | V4, by(X_Who="1") | OTHER_V4)
    assert counter.verdicts(by(X_Who="2"), {}, {}) == [200, 200, "repeat-submit"]
    assert counter.takes_for_one(
        {"environ": {"REMOTE_USER": "site"}} | by(X_Who="3"), by(X_Who="3")
    )


def test_no_source_can_pretend_to_be_another():
    counter = loading(lambda: request.headers.get("X-Who"), IDEMPOTENCE_IP_HEADER="X-Real-IP")
    assert counter.identity(**by(X_Who="ip:192.0.2.1")) == "localhost loader=ip:192.0.2.1"
    assert counter.identity(**by(X_Real_IP="192.0.2.1")) == "localhost ip:192.0.2.1"


# Users behind one address, with one key and one body: nobody gets another's answer


def header(name, text="{}", **beside):
    """Return a way to say who asks: a header with the user's name in it, and what all send."""
    return lambda _, user: {**beside, **by(**{name: text.format(user)})}


def beside(shared, name, text="{}"):
    return lambda _, user: by(**shared, **{name: text.format(user)})


def session(name, **content):
    return lambda counter, user: signed_in(counter, **content, **{name: user})


SITE = {"Authorization": "Basic c2l0ZTpzZWNyZXQ="}
BY_SERVER = {"environ": {"REMOTE_USER": "site"}}
HEADERS = (
    *("X-Api-Key", "Api-Key", "X-Auth-Token", "x-access-token", "X-User-ID"),
    *("Cf-Access-Authenticated-User-Email", "X-Amzn-Oidc-Identity", "X-MS-CLIENT-PRINCIPAL-ID"),
    *("X-Goog-Authenticated-User-Id", "X-Auth-Request-User", "Stripe-Account", "X-Tenant-ID"),
    *("X-Account-Id", "X-Organization-ID"),
)
COOKIES = (
    *("access_token_cookie", "my_jwt", "JWT-session", "auth_token", "__Host-auth_token"),
    *("sessionid", "connect.sid", "PHPSESSID", "bm_access_token", "_px_token"),
)
IN_SESSION = ("username", "user_id", "_user_id", "uid", "user", "email", "sub", "identity.id")
ACCOUNTS = ("tenant_id", "account_id", "org_id", "tenant")
WAYS = {
    "a host": lambda _, user: {"base_url": f"http://{user}.example"},
    **{f"the header {name}": header(name) for name in HEADERS},
    **{f"the cookie {name}": header("Cookie", name + "={}") for name in COOKIES},
    **{f"{name} in the session": session(name) for name in IN_SESSION},
    **{f"{name} beside a user": session(name, user_id=1) for name in ACCOUNTS},
    "a name behind an empty one": session("username", user_id=""),
    "a mapping": lambda counter, user: signed_in(counter, user={"id": 1, "name": user}),
    "a mapping with an `iss` alone": lambda counter, user: signed_in(
        counter, user={"iss": "https://one.example", "name": user}
    ),
    "a list": lambda counter, user: signed_in(counter, user=["acme", user]),
    "a name beside a role": session("email", user={"role": "admin"}),
    # A password or a key that all share hides nobody.
    "a header behind a password": beside(SITE, "X-Access-Token"),
    "a cookie behind a password": beside(SITE, "Cookie", "access_token_cookie={}"),
    "a token beside an API key": beside({"X-Api-Key": "app"}, "X-Access-Token"),
    "an API key beside a cookie": beside({"Cookie": "sid=app"}, "X-Api-Key"),
    "a header behind the server's login": header("X-Api-Key", **BY_SERVER),
    "credentials behind it": header("Authorization", "Bearer {}", **BY_SERVER),
    "a session behind it": lambda counter, user: {
        **BY_SERVER,
        **session("user_id")(counter, user),
    },
    "an account beside credentials": beside({"Authorization": "Bearer a"}, "Stripe-Account"),
}


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("way", WAYS)
def test_users_behind_one_address_are_told_apart(guard, way):
    counter = CountingApp(guard)
    assert counter.tells_apart(*[WAYS[way](counter, user) for user in ("ann", "bob")])


LISTS = {
    "IDEMPOTENCE_IDENTITY_HEADERS": ["X-Team"],
    "IDEMPOTENCE_IDENTITY_COOKIES": ["my-*"],
    "IDEMPOTENCE_IDENTITY_SESSION_KEYS": ["customer"],
}
IP_HEADER = {"IDEMPOTENCE_IP_HEADER": "X-Real-IP"}
TWO = {
    "guests at two addresses": (V4, OTHER_V4),
    "guests whose address a proxy tells": (by(X_Real_IP="1"), by(X_Real_IP="2"), IP_HEADER),
    "a visitor who calls himself 7, and the user whose id is 7": (
        has(user_id="7"),
        has(username="7"),
    ),
    "values moved between names": (
        by(Cookie="a_token=1; b_token=2"),
        by(Cookie='a_token="1\\", \\"cookie b_token\\", \\"2"'),
    ),
    "a path in the host": (
        {"environ": {"HTTP_HOST": "a/b"}},
        {"environ": {"HTTP_HOST": "a", "SCRIPT_NAME": "/b"}},
    ),
    "an escaped place": (
        {"environ": {"SCRIPT_NAME": "/a b"}},
        {"environ": {"SCRIPT_NAME": "/a%20b"}},
    ),
    "one user in two accounts": tuple(
        lambda counter, tenant=tenant: signed_in(counter, user_id=7) | by(X_Tenant_ID=tenant)
        for tenant in "ab"
    ),
    "a listed header": (by(X_Team="a"), by(X_Team="b"), LISTS),
    "a listed cookie": (by_cookie("my-id", "a"), by_cookie("my-id", "b"), LISTS),
    "a listed name in the session": (has(customer=1), has(customer=2), LISTS),
    **{
        f"the cookie {name} that is named in full": (
            by_cookie(name, "a"),
            by_cookie(name, "b"),
            {"IDEMPOTENCE_IDENTITY_COOKIES": listed},
        )
        for name, listed in (
            ("aws-waf-token", ["aws*", "AWS-WAF-Token"]),
            ("AWSELBAuthSessionCookie-0", ["AWSELBAuthSessionCookie*"]),
        )
    },
}


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("who", TWO)
def test_nobody_looks_like_another(who, guard):
    one, other, *settings = TWO[who]
    counter = CountingApp(guard, **dict(*settings))
    assert counter.tells_apart(*made(counter, (one, other)))


ONE = {
    "forwarded headers, which nobody is to believe": tuple(
        by(X_Forwarded_For=address, X_Real_IP=address) for address in ("1.1.1.1", "2.2.2.2")
    ),
    "an empty header of a proxy": ({}, by(X_Real_IP=" "), IP_HEADER),
    "a host in capitals, and with the usual port": tuple(
        {"environ": {"HTTP_HOST": host}} for host in ("shop.example", "SHOP.example:80")
    ),
    **{
        f"credentials and address beside {name} in the session": tuple(
            lambda counter, name=name, more=more: signed_in(counter, **{name: "ann"}) | more
            for more in (V4 | bearer("x"), OTHER_V4 | bearer("y"))
        )
        for name in ("user_id", "_user_id")
    },
    "the address beside a login of the server": (BY_SERVER | V4, BY_SERVER | OTHER_V4),
    "what changes in a mapping beside `iss` and `sub`": tuple(
        has(user={"iss": "https://one.example", "sub": "1", "seen": number}) for number in (1, 2)
    ),
    "what changes in a session, whatever the name of its cookie": (
        has(last=1),
        has(last=2),
        {"SESSION_COOKIE_NAME": "auth_token"},
    ),
    "a source that is left out": (bearer(1), bearer(2), {"IDEMPOTENCE_IDENTITY": ["ip"]}),
    "a header that is not listed": (by(X_Api_Key="a"), by(X_Api_Key="b"), LISTS),
    **{
        f"the cookie {name}": (by_cookie(name, "1"), by_cookie(name, "2"))
        for name in ("csrf_token", "XSRF_TOKEN", "_csrf_token", "theme")
    },
}


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("what", ONE)
def test_what_does_not_say_who_asks_does_not_count(what, guard):
    one, other, *settings = ONE[what]
    counter = CountingApp(guard, **dict(*settings))
    assert counter.takes_for_one(*made(counter, (one, other)))


@pytest.mark.parametrize("cookie", ["AMP_TOKEN", "aws-waf-token", "didomi_token", "_abck", "_ga"])
@pytest.mark.parametrize(
    "settings", [{}, {"IDEMPOTENCE_IDENTITY_COOKIES": ["*_token", "*-token"]}]
)
def test_cookies_that_others_renew_do_not_count(cookie, settings):
    for name in (cookie, f"__Secure-{cookie}"):
        sent = [by_cookie(name, value) | {"key": STRONG[0]} for value in "ab"]
        assert CountingApp(**settings).takes_for_one(*sent)


@pytest.mark.parametrize(
    ("name", "value"),
    [("HEADERS", ["X-*"]), ("HEADERS", ["X Key"]), ("COOKIES", ["*"]), ("COOKIES", ["a=b"])],
)
def test_a_list_that_cannot_be_meant_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=f"IDEMPOTENCE_IDENTITY_{name}: Must hold"):
        CountingApp(**{f"IDEMPOTENCE_IDENTITY_{name}": value})


# Sessions


def test_a_session_that_the_server_keeps_counts_by_its_id():
    """What is in it may have any name; a visitor without a cookie has a new one each time."""

    class Kept(SecureCookieSession):
        sid = ""

    class Interface(SessionInterface):
        def open_session(self, app, request):
            kept = Kept({"customer": 7, 8: 9})  # whose names may be of any kind
            kept.sid = request.cookies.get("session") or str(id(request))
            return kept

        def save_session(self, app, session, response):
            pass

    counter = CountingApp()
    counter.app.session_interface = Interface()
    assert counter.tells_apart(by_cookie("session", "a"), by_cookie("session", "b"))
    both = (by(Cookie="session=a", X_Api_Key=key) for key in ("1", "2"))
    assert counter.tells_apart(*both)  # it counts beside other credentials
    assert counter.takes_for_one({}, {})


def test_an_empty_session_is_not_looked_at():
    assert "Vary" not in CountingApp().send(headers={"Cookie": "theme=dark"}).headers


@pytest.mark.parametrize("value", ["", " ", b"", False, True, None, [], {}])
def test_nobody_is_not_everybody(value):
    counter = CountingApp()
    one, other = (signed_in(counter, user_id=value) for _ in range(2))
    assert counter.tells_apart(one | V4, other | OTHER_V4)


@pytest.mark.parametrize("value", ["", " ", b"", None, [], (), ("",), (None, " ")])
def test_a_loader_that_finds_nobody_leaves_it_to_the_other_sources(value):
    assert loading(lambda: value).tells_apart(by(X_Api_Key="a"), by(X_Api_Key="b"))


@pytest.mark.parametrize("value", [0, "0"])
def test_0_is_somebody(value):
    counter = CountingApp()
    zero, one = (signed_in(counter, user_id=each) for each in (value, 1))
    assert counter.tells_apart(zero, one)
    assert counter.verdicts(zero | OTHER_V4) != [200]
    assert loading(lambda: value).takes_for_one(V4, OTHER_V4)


# Ids: what has an id counts by it, within its issuer and account


ID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"provider": "github", "id": 1}, {"provider": "google", "id": 1}),
        ({"sub": "a b", "iss": "c"}, {"sub": "a", "iss": "b c"}),
        ({"sub": "a b"}, {"sub": "a", "iss": "b"}),
        ({"id": '7 ["tenant_id","acme"]'}, {"id": "7", "tenant_id": "acme"}),
        ({"id": '7","tenant_id","acme"]'}, {"id": "7", "tenant_id": "acme"}),
        ({"id": 7, "tenant": {"id": 1}}, {"id": 7, "tenant": {"id": 2}}),
        ({"id": 7, "tenant": ["a"]}, {"id": 7, "tenant": ["b"]}),
        *[[{"id": ID, "tenant_id": uuid.UUID(int=tenant)} for tenant in (1, 2)]],
        ({"id": "7", "tenant_id": "acme"}, '@[".id=7","tenant_id","acme"]'),
        ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": 'a","org_id","b'}),
        ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": "a org_id b"}),
        ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": "aorg_idb"}),
        ({"id": "7"}, ["id", "7"]),
        (["=7", "iss", "a"], {"id": "7", "iss": "a"}),
    ],
)
def test_ids_of_two_accounts_are_two_users(one, other):
    counter = CountingApp()
    assert counter.tells_apart(signed_in(counter, user=one), signed_in(counter, user=other))


def test_a_name_in_the_session_is_no_part_of_another():
    names = ["user", "user.id", "user.id=7"]
    counter = CountingApp(IDEMPOTENCE_IDENTITY_SESSION_KEYS=names)
    held = [{"user": "id=7=8"}, {"user.id": "7=8"}, {"user.id=7": "8"}]
    for one, other in itertools.combinations([signed_in(counter, **each) for each in held], 2):
        counter.app.extensions["idempotence"].store.clear("")
        assert counter.tells_apart(one, other)


class Masked(str):
    """A secret that no log shows."""

    __slots__ = ()

    def __str__(self):
        return "****"


LOADED = {
    "a text": ("a", "b"),
    "a text that no log shows": (Masked("a"), Masked("b")),
    "an integer": (1, 2),
    "a text and a number": ("7", 7),
    "a UUID": (ID, uuid.UUID(int=2)),
    "bytes": (b"a", b"b"),
    "bytes and their text": (b"a", "61"),
    "a tuple": (("acme", 7), ("globex", 7)),
    "a list": (["acme", 7], ["acme", 8]),
    "parts moved between places": (("a", "b"), ('a","=b',)),
    "a tuple and its text": (("a",), '["=a"]'),
    "a part that is there and one that is not": (("acme", None), ("acme", 7)),
    "parts at other places": (("acme", None), (None, "acme")),
}


@pytest.mark.parametrize("guard", ["key", "lock"])
@pytest.mark.parametrize("loaded", LOADED.values(), ids=LOADED)
def test_what_a_loader_may_return_names_a_sender(loaded, guard):
    counter = loading(lambda: loaded[int(request.headers["X-User"])], guard)
    assert counter.tells_apart(by(X_User="0"), by(X_User="1"))


Balance = collections.namedtuple("Balance", "id balance")


class Account:
    id, user_id = 1, 7

    def get_id(self):
        return "1"


REFUSED = {
    "an object": Account(),
    "an anonymous user": AnonymousUserMixin(),
    "a mapping": {"id": 1, "tenant_id": "acme"},
    "an empty mapping": {},
    "a proxy": LocalProxy(Account),
    "a proxy of a text": LocalProxy(lambda: "ann"),
    "a named tuple": Balance(1, 7),
    "a boolean": True,
    "False for a guest": False,
    "a float": 7.0,
    "a decimal": decimal.Decimal(7),
    "a set": {1},
    "an object in a tuple": ("acme", Account()),
    "a mapping in a list": [{"id": 1}],
    "a tuple in a tuple": (("acme", 7), 8),
    "a boolean in a tuple": ("acme", False),
}
REMEDY = (
    r"The identity_loader returned a value of type \w+\. Return a text, an integer, a UUID, "
    r"bytes, or a tuple or list of these, as in `return current_user\.get_id\(\) if current_user "
    r"else None` or `return str\(row\.id\)`; for a guest, return None\."
)


@pytest.mark.parametrize("loaded", REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_with_the_remedy(loaded):
    counter = loading(lambda: loaded)
    with pytest.raises(ConfigurationError, match=REMEDY):
        counter.send()
    with pytest.raises(ConfigurationError, match=REMEDY):
        counter.app.test_client().get("/token")
    assert counter.runs == 0


def test_under_observe_a_loader_that_returns_an_object_disturbs_nothing(caplog):
    counter = loading(Account, IDEMPOTENCE_OBSERVE=True)
    counter.app.add_url_rule("/page", "page", counter.idempotence.issue_token)
    assert [counter.send().status_code for _ in range(2)] == [200, 200]
    assert [counter.app.test_client().get(path).status_code for path in ("/token", "/page")] == [
        200,
        200,
    ]
    assert caplog.text.count("reason=error") == 4
    assert "str(row.id)" in caplog.text


# Login libraries: the user survives another token and another address


def jwt_app(*, optional=False, checked=True, **settings):
    checks = [jwt_required(optional=optional)] if checked else []
    counter = CountingApp(checks=checks, **JWT, **settings)
    JWTManager(counter.app)
    return counter


def jwt(counter, user, **claims):
    with counter.app.app_context():
        return create_access_token(user, additional_claims=claims)


@pytest.mark.parametrize("claim", ["sub", "uid"])
def test_flask_jwt_extended(claim):
    counter = jwt_app(JWT_IDENTITY_CLAIM=claim)
    ann, again, bob = (bearer(jwt(counter, user)) for user in ("ann", "ann", "bob"))
    assert ann != again
    assert counter.tells_apart(ann, bob)
    assert counter.verdicts(again | V6) == ["replay of 200"]
    assert jwt_app(optional=True).tells_apart(V4, OTHER_V4)


def test_flask_jwt_extended_at_another_place():
    """Where it looks is its own setting, which counts where it has not looked yet."""
    counter = jwt_app(checked=False, JWT_ACCESS_COOKIE_NAME="who", JWT_HEADER_NAME="X-Who")
    assert counter.tells_apart(by_cookie("who", "a"), by_cookie("who", "b"))
    assert counter.tells_apart(by(X_Who="a"), by(X_Who="b"))


@pytest.mark.parametrize("claim", ["iss", "tenant", "tenant_id", "org_id", "tid"])
def test_the_account_in_the_claims_of_a_token_counts(claim):
    counter = jwt_app()
    tokens = [jwt(counter, "1", **{claim: account}) for account in "ab"]
    assert counter.tells_apart(*[bearer(token) for token in tokens])


def test_flask_login_without_a_loader_knows_nobody():
    counter = CountingApp()
    LoginManager(counter.app)
    assert counter.send().status_code == 200


def test_a_login_manager_of_another_kind_is_passed_over():
    counter = CountingApp()
    counter.app.login_manager = object()
    assert counter.send().status_code == 200
    assert counter.app.test_client().get("/token").status_code == 200


@pytest.mark.parametrize("loads", [False, True])
def test_credentials_beside_a_user_count_where_a_loader_returns_both(loads):
    counter = CountingApp()
    if loads:
        counter.idempotence.identity_loader(
            lambda: (flask.session["user_id"], request.headers["Authorization"])
        )
    cashiers = [
        {**signed_in(counter, user_id="device"), **by(Authorization=f"Bearer {name}")}
        for name in ("ann", "bob")
    ]
    assert counter.tells_apart(*cashiers) == loads


# Guests: known by a key that cannot be guessed, else by their address

STRONG = [
    "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "8E03978E-40D5-43E8-BC93-6894A57F9324",
    "01890a5d-ac96-774b-bcce-b302099a8057",  # version 7
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "01arz3ndektsv4rrffq69g5fav",
    "8e03978e40d543e8bc936894a57f9324",
    "8e03978e40d543e8bc936894a57f93248e03978e40d543e8bc936894a57f9300",
    "x7Kp2mQ9vRt4LwZn8BcYhA",
    "x7Kp2mQ9vRt4LwZn8BcYhA==",
    "mK3_vEjRW7Jq8-tYz2LcQA",
]
WEAK = [
    *("order-1", "1", "a" * 32, "0" * 32, "00000000000000000000000000abc123"),
    *("20240101123456789012345678901234", "deadbeef" * 4, "abc123def456" * 3),
    *("00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000001"),
    str(uuid.uuid5(uuid.NAMESPACE_URL, "order-1")),
    str(uuid.uuid3(uuid.NAMESPACE_URL, "order-1")),
    "c232ab00-9414-11ec-b3c8-9f6bdeced846",  # version 1: the time and a machine
    "8e03978e40d543e8bc936894a57f932",  # 124 bits
    *("x7Kp2mQ9vRt4LwZn8BcYh", "Order-Confirmation-2024-0001", "Cust-12-Ord-7-Try-1-Of-3"),
    *("customer_1234_order_5678", "CreateOrderForCustomer1234", "ORDERNUMBER20240101ABCDEFG"),
    *("01234567890123456789012345", "0123456789abcdef" * 2),
    "12345678-1234-4234-8234-123456789abc",
    b"order-1-of-customer-7".hex(),
    base64.b64encode(b"order-1-user-1-2024").decode(),
    base64.urlsafe_b64encode(b'{"order": 1, "user": 7}').decode(),
    "pay order 1 of customer 7 please now",
]


@pytest.mark.parametrize("key", STRONG + WEAK)
def test_a_key_that_cannot_be_guessed_is_enough_and_any_other_stays_bound_to_the_address(key):
    """A client falls back from IPv6 to IPv4 when its connection breaks, and pays once."""
    sent = {"key": key, **V6}, {"key": key, **V4}
    counter = CountingApp("key")
    assert counter.takes_for_one(*sent) if key in STRONG else counter.tells_apart(*sent)
    assert CountingApp("lock").tells_apart(*sent)  # which has no key


def test_keys_at_random_are_known_as_such():
    made = {
        "client": new_key,
        "hex": lambda: os.urandom(16).hex(),
        "uuid": lambda: str(uuid.uuid4()),
        "base64": lambda: base64.urlsafe_b64encode(os.urandom(24)).decode(),
    }
    known = {name: sum(is_unguessable(make()) for _ in range(500)) for name, make in made.items()}
    # One in some 20,000 has a pattern by chance; one in twenty of those in base64 has no digit, or
    # alternates too little.
    least = {"client": 497, "hex": 497, "uuid": 497, "base64": 425}
    assert all(known[name] >= count for name, count in least.items()), known


def test_host_endpoint_and_user_still_count_beside_such_a_key():
    counter, strong = CountingApp("key"), {"key": STRONG[0]}
    counter.add("/other")
    elsewhere = [{"base_url": "http://b.example"}, {"path": "/other"}]
    users = [bearer("a"), by(X_Api_Key="a"), by(X_Tenant_ID="a")]
    for each in ({}, *elsewhere, *users):
        assert counter.verdicts(strong | each) == [200]


def test_a_key_that_the_application_makes_is_none_that_a_guest_has_drawn():
    """It may be made from what two guests send alike, such as a hash of the body."""
    counter = CountingApp()
    made = idempotent(key=lambda: STRONG[0])(lambda: request.remote_addr)
    counter.app.add_url_rule("/made", "made", made, methods=["POST"])
    assert counter.send("/made", **V4).text == V4["address"]
    assert counter.send("/made", **OTHER_V4).text == OTHER_V4["address"]


# Tokens


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
    app = make_app()
    app.add_url_rule("/spend", "spend", one_time_token()(lambda: "spent"), methods=["POST"])
    client = app.test_client(use_cookies=False)
    token = {"Idempotence-Token": client.get("/token", headers=issued).json["token"]}
    assert client.post("/spend", headers=spent | token).status_code == 200


# Hashes


def test_the_key_of_the_hashes_outlives_a_rotation_until_the_old_secret_is_dropped():
    counter = CountingApp("lock")
    old, verdicts = counter.app.config["SECRET_KEY"], []
    for secret, fallbacks in [
        (old, []), ("new", [old]), ("newest", ["new", old]), ("newest", ["new"]),
    ]:  # fmt: skip
        counter.app.config.update(SECRET_KEY=secret, SECRET_KEY_FALLBACKS=fallbacks)
        verdicts += counter.verdicts({})
    assert verdicts == [200, "repeat-submit", "repeat-submit", 200]


def test_a_hash_key_of_its_own_makes_it_independent_of_the_secret():
    counter = CountingApp("lock", IDEMPOTENCE_HASH_KEY="0123456789abcdef")
    assert counter.verdicts({}) == [200]
    counter.app.config.update(SECRET_KEY="another")
    assert counter.verdicts({}) == ["repeat-submit"]


# The usual requests: each sender has the same text in every release of this keyspace

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
    (
        {"Authorization": 'Digest username="u", realm="r", nonce="n"'},
        {},
        ('signed:digest ["u","","r"]',) * 3,
    ),
    (
        {"Authorization": "AWS4-HMAC-SHA256 Credential=AKID/20250101/eu/s3/aws4_request"},
        {},
        ('signed:aws4-hmac-sha256 ["AKID"]',) * 3,
    ),
    ({"X-Api-Key": "1"}, {}, (OF_API_KEY, OF_API_KEY, "")),
    ({"Stripe-Account": "7"}, {}, (GUEST_IN_ACCOUNT, ACCOUNT, "")),
    ({}, {"REMOTE_USER": "u"}, ("user:remote_user=u", "user:remote_user=u", "")),
]
"""Headers, environment, and the sender for a lock, for an unguessable key and for a token."""


def asked(app, headers=None, **environ):
    environ = {"REMOTE_ADDR": "192.0.2.1", **environ}
    return app.test_request_context("/", method="POST", headers=headers, environ_overrides=environ)


def seen(app):
    """Return all identities of the current request."""
    identities = app.extensions["idempotence"].engine.services.identities
    return (
        identities.of(app, request),
        identities.of(app, request, STRONG[0]),
        identities.bearer_of(app, request),
    )


@pytest.mark.parametrize(("headers", "environ", "expected"), VECTORS, ids=str)
def test_frozen_vectors_of_senders(headers, environ, expected):
    app = make_app()
    for _ in range(2):  # names in the environment are known from the second one on
        with asked(app, headers, **environ):
            found = seen(app)
        texts = tuple(identity.text.removeprefix("localhost ") for identity in found)
        assert texts == expected


def test_a_listed_authorization_header_is_one_credential_from_the_first_request_on():
    app, found = make_app(IDEMPOTENCE_IDENTITY_HEADERS=["Authorization"]), set()
    for _ in range(3):
        with asked(app, {"Authorization": "Bearer abc"}):
            found.add(seen(app))
    assert len(found) == 1


def test_a_user_that_a_library_has_left_is_seen():
    """Even by a guard behind another one, which has asked before."""
    app = make_app()
    with asked(app, {"Authorization": "Bearer abc"}) as context:
        alone = seen(app)
        g.flask_httpauth_user = "7"
        found = seen(app)[0]
        assert found.senders[0][:2] == ("user", 'user:flask_httpauth["bearer"]=7')
        g.pop("flask_httpauth_user")
        context.session["user_id"] = 7
        assert seen(app)[0] != alone[0]
