"""Ways to sign in, by the libraries and as applications do it, alone and in pairs.

Each says which differences between two persons it knows, and what it renews for the same person.
"""

import base64
import hashlib
import itertools
import json
import sqlite3
import uuid
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2.rfc6750 import BearerTokenValidator
from authlib.oauth2.rfc7662 import IntrospectTokenValidator
from cachelib import SimpleCache
from flask import request, session
from flask_httpauth import HTTPBasicAuth, HTTPDigestAuth, HTTPTokenAuth, MultiAuth
from flask_jwt_extended import JWTManager, create_access_token, jwt_required
from flask_login import AnonymousUserMixin, LoginManager, UserMixin, login_user
from flask_security import Security, UserDatastore
from flask_security import UserMixin as SecurityUserMixin
from flask_session import Session
from werkzeug.local import LocalProxy

from flask_idempotence import idempotent, no_repeat_submit, one_time_token
from helpers.apps import GuardedApp

GUARDS = {
    "a lock": no_repeat_submit(60),
    "a key": idempotent(required=True),
    "a key of its own": idempotent(required=True),
    "a token": one_time_token(),
}
"""Each guard by what a request is recognised by; a key of its own cannot be guessed."""

AGAIN = {"a lock": "repeat-submit", "a token": "token-spent"}

_serial = itertools.count()


class Person(NamedTuple):
    user: str = "7"
    table: str = "staff"
    client: str = "app"
    issuer: str = "https://one.example"
    tenant: str = "acme"

    def other(self, field):
        return self._replace(**{field: {"user": "8", "table": "customers"}.get(field, "other")})


def text_of(person, *, renewed=True):
    """Return a credential of a person, which is another one each time."""
    return "~".join([*person, str(next(_serial) if renewed else 0)])


def person_of(text):
    return Person(*text.split("~")[:-1])


class Visitor:
    def __init__(self, site):
        self.site = site
        self.client = site.app.test_client()
        self.headers = {}
        self.address = "192.0.2.1"

    def move(self):
        self.address = f"2001:db8::{next(_serial):x}"

    def do(self, work):
        self.site.work = work
        answer = self.client.get("/do", headers=self.sent("/do"))
        assert answer.status_code == 200, answer.text

    def sent(self, path):
        return {
            name: each(path) if callable(each) else each for name, each in self.headers.items()
        }

    def send(self, path, headers, **options):
        return self.site.verdicts(
            {
                "key": None,
                "path": path,
                "client": self.client,
                "headers": {**self.sent(path), **headers},
                "environ_overrides": {"REMOTE_ADDR": self.address},
                **options,
            }
        )[0]

    def token(self):
        environ = {"REMOTE_ADDR": self.address}
        sent = self.client.get("/token", headers=self.sent("/token"), environ_overrides=environ)
        return sent.json["token"]


class Site(GuardedApp):
    def __init__(self, *ways, **settings):
        super().__init__(settings=settings)
        self.ways = [way(self) for way in ways]
        checks = [way.check for way in reversed(self.ways)]
        for name, guard in GUARDS.items():
            self.add_view(f"/{name.replace(' ', '-')}", lambda: {"run": self.runs}, guard, *checks)
        self.app.add_url_rule("/do", "do", lambda: str(self.work()))

    def visitor(self, *persons):
        visitor = Visitor(self)
        for way, person in zip(self.ways, persons, strict=True):
            if person is not None:
                way.enter(visitor, person)
        return visitor

    def compare(self, guard, one, other, *, renew=lambda: None):
        """Send one operation by one visitor and by another; return what became of each.

        What is between the two attempts is done in between.
        """
        number = next(_serial)
        headers, path = {}, f"/{guard.replace(' ', '-')}"
        if guard == "a key":
            headers["Idempotency-Key"] = f"order-{number}"
        elif guard == "a key of its own":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        elif guard == "a token":
            headers["Idempotence-Token"] = one.token()
            renew()
            return [other.send(path, headers, json={"item": number})]
        first = one.send(path, headers, json={"item": number})
        renew()
        return [first, other.send(path, headers, json={"item": number})]

    def takes_for_two(self, guard, one, other):
        if guard == "a token":
            found = self.compare(guard, one, other)
            return found == ["token-not-yours"], found
        found = self.compare(guard, one, other)
        return found == [200, 200], found

    def takes_for_one(self, guard, one, other, renew=lambda: None):
        found = self.compare(guard, one, other, renew=renew)
        expected = {"a lock": [200, "repeat-submit"], "a token": [200]}
        return found == expected.get(guard, [200, "replay of 200"]), found


class Way:
    """A way to sign in.

    Attributes:
        library: no two ways of one library are in one application.
        carrier: no two ways of one carrier are in one request.
        tells: the fields of a person that it knows.
        binds: how near it is to the front of those to which a token is bound; None for never.
        stays: names of its methods that renew something for the same person.
        alone: those of them that take others' users away.
        hides: whether it alone counts.
        admits_guests: whether one may come without signing in.
        by_credentials: whether it counts by all credentials that a request carries.
    """

    library = carrier = ""
    tells = ("user",)
    binds = None
    stays = alone = ()
    hides = by_credentials = admits_guests = False

    def __init__(self, site):
        self.site = site
        self.set_up(site.app)

    def set_up(self, app):
        pass

    def check(self, view):
        return view

    def renew(self, visitor, person):
        """a new credential"""
        self.enter(visitor, person)

    def save(self, visitor, person):
        """a session saved again"""
        visitor.do(lambda: session.update(seen=next(_serial)))


# Flask-Login and Flask-Security


class User(UserMixin):
    def __init__(self, id_):
        self.id = id_

    def get_id(self):
        return self.id


class FlaskLogin(Way):
    """Flask-Login"""

    library, carrier, binds = "login", "login", 1
    admits_guests = True
    stays = ("save", "lose_session")
    alone = ("lose_session",)
    anonymous = AnonymousUserMixin

    def set_up(self, app):
        manager = LoginManager(app)
        manager.user_loader(User)
        manager.anonymous_user = self.anonymous

    def enter(self, visitor, person):
        visitor.do(lambda: login_user(User(person.user), remember=True))

    def lose_session(self, visitor, person):
        """a session restored by the remember cookie"""
        visitor.client.delete_cookie("session")


class LoginByHeader(FlaskLogin):
    """Flask-Login, by a request_loader"""

    make_id = str

    def set_up(self, app):
        def load(_):
            sent = request.headers.get("X-Who")
            return User(self.make_id(sent)) if sent else None

        LoginManager(app).request_loader(load)

    def enter(self, visitor, person):
        visitor.headers["X-Who"] = person.user


class Guest:
    is_authenticated = is_active = False
    is_anonymous = True

    def get_id(self):
        return "guest"


def by_anonymous(kind, value):
    doc = f"Flask-Login, `anonymous_user` {kind}"
    return type(
        "FlaskLoginWith", (FlaskLogin,), {"anonymous": staticmethod(value), "__doc__": doc}
    )


class SecurityUser(SecurityUserMixin):
    active = True
    roles = ()

    def __init__(self, fs_uniquifier=None):
        self.fs_uniquifier = fs_uniquifier


SecurityUser.fs_uniquifier = None


class SecurityUsers(UserDatastore):
    def __init__(self):
        super().__init__(SecurityUser, None)

    def find_user(self, fs_uniquifier=None, **_):
        return SecurityUser(fs_uniquifier)


class FlaskSecurity(FlaskLogin):
    """Flask-Security, its `anonymous_user` None"""

    def set_up(self, app):
        app.config.update(
            SECURITY_PASSWORD_SALT="salt",
            SECURITY_ANONYMOUS_USER_DISABLED=True,
            SECURITY_REGISTER_BLUEPRINT=False,
        )
        Security(app, SecurityUsers())

    def enter(self, visitor, person):
        visitor.do(lambda: login_user(SecurityUser(person.user), remember=True))


class SecurityToken(FlaskSecurity):
    """Flask-Security, by a token"""

    carrier = "authentication-token"
    stays = ("renew",)
    alone = ()

    def enter(self, visitor, person):
        held = []
        visitor.do(lambda: held.append(SecurityUser(person.user).get_auth_token()))
        visitor.headers["Authentication-Token"] = held[0]


# Flask-JWT-Extended


class JwtInHeader(Way):
    """Flask-JWT-Extended, in the header"""

    library, carrier, binds = "jwt", "authorization", 2
    tells = ("user", "issuer", "tenant")
    stays = ("renew",)
    settings = MappingProxyType({})
    optional = admits_guests = False

    def set_up(self, app):
        app.config.update(
            {
                "JWT_SECRET_KEY": "a secret for the tests of 32 bytes",
                "JWT_COOKIE_CSRF_PROTECT": False,
            },
            **self.settings,
        )
        JWTManager(app)

    def check(self, view):
        return jwt_required(optional=self.optional)(view)

    def jwt(self, person):
        claims = {"iss": person.issuer, "tenant_id": person.tenant}
        with self.site.app.app_context():
            return create_access_token(self.identity(person), additional_claims=claims)

    def identity(self, person):
        return person.user

    def enter(self, visitor, person):
        visitor.headers["Authorization"] = f"Bearer {self.jwt(person)}"


class JwtOptional(JwtInHeader):
    """Flask-JWT-Extended, optional"""

    optional = admits_guests = True


class JwtOfMapping(JwtInHeader):
    """Flask-JWT-Extended, its identity a mapping"""

    settings = MappingProxyType({"JWT_VERIFY_SUB": False})

    def identity(self, person):
        return {"number": person.user, "name": "Smith"}


class JwtInCookie(JwtInHeader):
    """Flask-JWT-Extended, in a cookie"""

    carrier, binds = "jwt cookie", None
    settings = MappingProxyType({"JWT_TOKEN_LOCATION": ["cookies"]})

    def enter(self, visitor, person):
        visitor.client.set_cookie("access_token_cookie", self.jwt(person))


# Flask-HTTPAuth


class Row:
    """A user as an object with an id."""

    def __init__(self, id_):
        self.id, self.user_id, self.balance = id_, "1", next(_serial)

    def __str__(self):
        return "Mr Smith"


class Customer(Row):
    pass


class WithGetId:
    def __init__(self, id_):
        self.number = id_

    def get_id(self):
        return self.number


Balance = namedtuple("Balance", "id balance")


def in_a_row(id_):
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    row = database.execute("SELECT ? AS id, ? AS balance", (id_, next(_serial))).fetchone()
    database.close()
    return row


def of_a_table(person):
    return (Row if person.table == "staff" else Customer)(person.user)


RETURNED = {
    "a text": lambda person: person.user,
    "an integer": lambda person: int(person.user),
    "an object with an id": of_a_table,
    "a proxy": lambda person: LocalProxy(lambda: of_a_table(person)),
    "an object with get_id()": lambda person: WithGetId(person.user),
    "a mapping": lambda person: {"id": person.user, "balance": next(_serial)},
    "a named tuple": lambda person: Balance(person.user, next(_serial)),
    "a row": lambda person: in_a_row(person.user),
}
"""What callbacks of Flask-HTTPAuth return."""

WITHOUT_AN_ID = ("a mapping", "a named tuple", "a row")


class HttpAuth(Way):
    library, carrier, binds = "httpauth", "authorization", 2
    stays = ("renew",)
    returned = "a text"

    def found(self, person):
        return RETURNED[self.returned](person)

    def check(self, view):
        return self.auth.login_required(view)


class Basic(HttpAuth):
    """Flask-HTTPAuth, Basic"""

    def set_up(self, app):
        self.auth = HTTPBasicAuth()
        self.auth.verify_password(lambda name, _: self.found(person_of(name)) if name else None)

    def enter(self, visitor, person):
        name = text_of(person, renewed=False)
        sent = base64.b64encode(f"{name}:{next(_serial)}".encode()).decode()
        visitor.headers["Authorization"] = f"Basic {sent}"


class Digest(HttpAuth):
    """Flask-HTTPAuth, Digest"""

    def set_up(self, app):
        self.auth = HTTPDigestAuth(realm="shop")
        self.auth.get_password(lambda name: "secret")
        self.auth.verify_nonce(lambda nonce: True)
        self.auth.verify_opaque(lambda opaque: True)

    def enter(self, visitor, person):
        def md5(*parts):
            return hashlib.md5(":".join(parts).encode()).hexdigest()

        def signed(path):
            nonce, method = str(next(_serial)), "POST" if path.startswith("/a-") else "GET"
            one = md5(person.user, "shop", "secret")
            answer = md5(one, nonce, "1", "c", "auth", md5(method, path))
            return (
                f'Digest username="{person.user}", realm="shop", nonce="{nonce}", uri="{path}", '
                f'response="{answer}", opaque="o", qop=auth, nc=1, cnonce="c"'
            )

        visitor.headers["Authorization"] = signed


class Token(HttpAuth):
    """Flask-HTTPAuth, Token"""

    def set_up(self, app):
        self.auth = HTTPTokenAuth()
        self.auth.verify_token(lambda text: self.found(person_of(text)) if text else None)

    def enter(self, visitor, person):
        visitor.headers["Authorization"] = f"Bearer {text_of(person)}"


class TokenOfOddId(Token):
    """Flask-HTTPAuth, an object with an id of another type"""

    def found(self, person):
        return Row(self.make_id(person.user))


class Multi(HttpAuth):
    """Flask-HTTPAuth, MultiAuth over two tables"""

    tells = ("user", "table")
    schemes = MappingProxyType({"staff": "Token", "customers": "Bearer"})

    def set_up(self, app):
        tables = [HTTPTokenAuth(scheme=scheme) for scheme in self.schemes.values()]
        for auth in tables:
            auth.verify_token(lambda text: self.found(person_of(text)) if text else None)
        self.auth = MultiAuth(*tables)

    def enter(self, visitor, person):
        visitor.headers["Authorization"] = f"{self.schemes[person.table]} {text_of(person)}"


class MultiByHeaders(Multi):
    """Flask-HTTPAuth, MultiAuth over two headers"""

    carrier, binds = "own header", None
    schemes = MappingProxyType({"staff": "X-Staff-Key", "customers": "X-Customer-Key"})

    def set_up(self, app):
        tables = [HTTPTokenAuth(header=header) for header in self.schemes.values()]
        for auth in tables:
            auth.verify_token(lambda text: self.found(person_of(text)) if text else None)
        self.auth = MultiAuth(*tables)

    def enter(self, visitor, person):
        visitor.headers[self.schemes[person.table]] = text_of(person)


def returning(way, returned):
    tells = ("user", "table") if returned in ("an object with an id", "a proxy") else way.tells
    # Counted by the credentials, in which this changes.
    stays = () if returned in WITHOUT_AN_ID else way.stays
    doc = f"{way.__doc__}, {returned}"
    more = {"returned": returned, "tells": tells, "stays": stays, "__doc__": doc}
    more["by_credentials"] = returned in WITHOUT_AN_ID
    return type(way.__name__, (way,), more)


# Authlib


class Granted:
    """A token as a model: its own id is another one with each token."""

    def __init__(self, person, *, of_client=False):
        self.id = next(_serial)
        self.client_id = person.client
        self.user_id = None if of_client else person.user

    def is_expired(self):
        return False

    def is_revoked(self):
        return False

    def get_scope(self):
        return ""


class Claims(Granted, dict):
    """A token as the claims of a JWT."""

    def __init__(self, person, *, of_client=False):
        sub = person.client if of_client else person.user
        self.update(iss=person.issuer, sub=sub, client_id=person.client, jti=next(_serial))


def introspected(person, *, of_client=False):
    found = {
        "active": True,
        "iss": person.issuer,
        "client_id": person.client,
        "exp": next(_serial),
    }
    return found if of_client else {**found, "sub": person.user}


class AuthlibModel(Way):
    """Authlib, a model"""

    library, carrier, binds = "authlib", "authorization", 2
    tells = ("user", "client")
    stays = ("renew",)
    of_client = False
    make = Granted

    def set_up(self, app):
        protect, way = ResourceProtector(), self

        class Validator(BearerTokenValidator):
            def authenticate_token(self, text):
                return way.made(text)

        class Introspection(IntrospectTokenValidator):
            def introspect_token(self, text):
                return way.made(text)

        kind = Introspection if self.make is introspected else Validator
        protect.register_token_validator(kind())
        self.protect = protect

    def made(self, text):
        return type(self).make(person_of(text), of_client=self.of_client)

    def check(self, view):
        return self.protect()(view)

    def enter(self, visitor, person):
        visitor.headers["Authorization"] = f"Bearer {text_of(person)}"


class AuthlibWithId(AuthlibModel):
    """Authlib, a model with an id"""

    def made(self, text):
        token = Granted(person_of(text))
        token.user_id = self.make_id(token.user_id)
        return token


class AuthlibJwt(AuthlibModel):
    """Authlib, a JWT"""

    tells = ("user", "client", "issuer")
    make = Claims


class AuthlibIntrospection(AuthlibJwt):
    """Authlib, an introspected token"""

    make = staticmethod(introspected)


def of_client(way):
    tells = tuple(field for field in way.tells if field != "user")
    more = {"of_client": True, "tells": tells, "__doc__": f"{way.__doc__}, of a client alone"}
    return type(way.__name__, (way,), more)


# Sessions


class PlainSession(Way):
    """`session["user_id"]`"""

    library, carrier, binds = "session", "session", 1
    admits_guests = True
    tells = ("user", "tenant")
    stays = ("save",)

    def enter(self, visitor, person):
        visitor.do(lambda: session.update(user_id=person.user, tenant_id=person.tenant))


class Cashier(PlainSession):
    """`session["user_id"]` without an account"""

    def enter(self, visitor, person):
        visitor.do(lambda: session.update(user_id=person.user))


class KeptSession(PlainSession):
    """Flask-Session"""

    stays = ("save", "regenerate")

    def set_up(self, app):
        app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=SimpleCache())
        Session(app)

    def regenerate(self, visitor, person):
        """a session under a new id"""
        visitor.do(lambda: self.site.app.session_interface.regenerate(session))


class Userinfo(PlainSession):
    """`session["user"]`, the userinfo of OpenID Connect"""

    tells = ("user", "issuer", "tenant")
    stays = ("save", "renew")

    def enter(self, visitor, person):
        claims = {"sub": person.user, "iss": person.issuer, "tenant_id": person.tenant}
        visitor.do(lambda: session.update(user={**claims, "name": "Ann", "at": next(_serial)}))


class Mapping(PlainSession):
    """`session["user"]`, another mapping"""

    tells = ("user", "tenant")

    def enter(self, visitor, person, **more):
        found = {"name": person.user, "org": person.tenant, **more}
        visitor.do(lambda: session.update(user=found))

    def change(self, visitor, person):
        """Change a field of it, as a view may do."""
        self.enter(visitor, person, seen=next(_serial))


# Identity loaders


class Loader(Way):
    library, carrier, binds, hides = "loader", "loader", 0, True

    def set_up(self, app):
        self.site.idempotence.identity_loader(
            lambda: self.load(Person(*json.loads(sent))) if (sent := self.sent()) else None
        )

    def sent(self):
        return request.headers.get("X-Loaded")

    def enter(self, visitor, person):
        visitor.headers["X-Loaded"] = json.dumps(person)


class LoadedText(Loader):
    """an `identity_loader` that returns a text"""

    def load(self, person):
        return person.user


class LoadedTuple(Loader):
    """an `identity_loader` that returns a tuple"""

    tells = ("user", "tenant")

    def load(self, person):
        return person.tenant, person.user


class LoadedPart(Loader):
    """an `identity_loader` that returns a tuple with None"""

    tells = ("tenant",)
    hides = False

    def load(self, person):
        return person.tenant, None


WAYS = [
    FlaskLogin,
    by_anonymous("None", lambda: None),
    by_anonymous("with an id", Guest),
    by_anonymous("any object", object),
    FlaskSecurity,
    SecurityToken,
    JwtInHeader,
    JwtInCookie,
    JwtOptional,
    JwtOfMapping,
    *[returning(way, each) for each in RETURNED for way in (Basic, Token)],
    Digest,
    *[returning(Multi, each) for each in ("a text", "an object with an id", "a mapping")],
    *[returning(MultiByHeaders, each) for each in ("a text", "a row")],
    *[
        kind(way)
        for way in (AuthlibModel, AuthlibJwt, AuthlibIntrospection)
        for kind in (lambda way: way, of_client)
    ],
    PlainSession,
    KeptSession,
    Userinfo,
    Mapping,
]
WITH_A_CASHIER = [(way, Cashier) for way in (FlaskLogin, FlaskSecurity, JwtOptional)]
WITH_ODD_IDS = [LoginByHeader, AuthlibWithId, TokenOfOddId]


@dataclass
class ObjectId:
    """An id as an object, whose text is no id."""

    value: str

    def __str__(self):
        return "Mr Smith"


ODD_IDS = {"a tuple": lambda id_: ("staff", id_), "an object": ObjectId, "a number": Decimal}
LOADERS = [LoadedText, LoadedTuple, LoadedPart]
_REPRESENTATIVE = [
    way
    for way in WAYS
    if not issubclass(way, HttpAuth)
    or way.__doc__.endswith(("text", "object with an id", "row", "Digest"))
]
PAIRS = [
    (one, other)
    for one, other in itertools.combinations([*LOADERS, *_REPRESENTATIVE], 2)
    if one.library != other.library and one.carrier != other.carrier
]


def _row(ways, tells, stays):
    name, *kinds = itertools.zip_longest(*(way.__doc__.split(", ") for way in ways))
    kinds = [", ".join(dict.fromkeys(filter(None, kind))) for kind in kinds]
    renewed = ", ".join(getattr(ways[0], stay).__doc__ for stay in stays)
    rest = "anything else" if ways[0].hides else "nothing"
    first = f"{name[0]}: {'; '.join(kinds)}" if kinds else name[0]
    return f"| {first} | {', '.join(map(FIELDS.get, tells))} | {renewed or rest} |"


FIELDS = {
    "user": "user",
    "table": "class or table",
    "client": "client",
    "issuer": "issuer",
    "tenant": "account",
}


def table():
    """Return the table of the page on identity: a row for ways that know and renew the same."""
    groups = {}
    for way in [*WAYS, *LOADERS]:
        name = way.__doc__.partition(",")[0]
        groups.setdefault((name, way.tells, way.stays), []).append(way)
    return [_row(ways, tells, stays) for (_, tells, stays), ways in groups.items()]
