"""Guards that only observe load no user, and leave sessions and cookies alone."""

import re
from functools import partial

import pytest
from cachelib import SimpleCache
from flask import Response, request, session
from flask_login import LoginManager, UserMixin, login_required, login_user
from flask_security import Security, UserDatastore, auth_required
from flask_security.utils import login_user as login_by_security
from flask_session import Session
from helpers.apps import DECORATORS, KEY, bare_app, make_app

from flask_idempotence import Idempotence, observed

MODES = pytest.mark.parametrize("mode", DECORATORS)


class User(UserMixin):
    active = is_active = True
    fs_uniquifier = None

    def __init__(self, id_):
        self.id = self.fs_uniquifier = id_


class Users(UserDatastore):
    """The users of Flask-Security, of which only the look-up is needed."""

    def __init__(self, loads):
        super().__init__(User, None)
        self._loads = loads

    def find_user(self, **named):
        self._loads.append(named)
        return User(next(iter(named.values())))

    def commit(self):
        pass

    put = commit


def set_up_login(app, loads, protection):
    manager = LoginManager(app)
    manager.session_protection = protection

    @manager.user_loader
    def load(id_):
        loads.append(id_)
        return User(id_)

    return login_user, login_required


def set_up_security(app, loads, _):
    app.config.update(
        SECURITY_PASSWORD_SALT="salt", SECURITY_PASSWORD_HASH="plaintext", WTF_CSRF_ENABLED=False
    )
    Security(app, Users(loads), register_blueprint=False)
    app.add_url_rule("/login", "security.login", lambda: "sign in")
    return login_by_security, auth_required("session")


LIBRARIES = {
    "Flask-Login": (set_up_login, "basic"),
    "Flask-Login, strong protection": (set_up_login, "strong"),
    "Flask-Security": (set_up_security, None),
}


class Site:
    """A shop where a user signs in, and the users that are loaded."""

    def __init__(self, make, library, guard, *, is_on_server=False, **settings):
        self.loads, self.reasons = [], []
        self.app = app = make(**settings)
        if is_on_server:
            app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=SimpleCache())
            Session(app)
        set_up, protection = LIBRARIES[library]
        sign_in, self.required = set_up(app, self.loads, protection)
        self.client = app.test_client()

        @app.post("/sign-in")
        def log_in():
            sign_in(User("17"), remember="remember" in request.args)
            return "signed in"

        app.add_url_rule("/public", "public", guard(lambda: "done"), methods=["POST"])
        app.add_url_rule("/changed", "changed", guard(self.change), methods=["POST"])
        own = guard(self.required(lambda: "done"))
        app.add_url_rule("/inside", "inside", own, methods=["POST"])
        own = self.required(guard(lambda: "done"))
        app.add_url_rule("/outside", "outside", own, methods=["POST"])
        observed.connect(self._note, app)

    def _note(self, _, reason, **__):
        self.reasons.append(reason)

    @staticmethod
    def change():
        session["cart"] = 1
        return Response("changed")

    def answers(self, agents=("one", "one", "other"), forget=None):
        """Send requests of a signed-in user; return what the client gets and whom they load."""
        told = []
        for remember in ("", "?remember=1"):
            self.client = self.app.test_client()
            self.client.post(f"/sign-in{remember}", headers={"User-Agent": "one"})
            if forget:
                self.client.delete_cookie("session")
            for path in ("/public", "/inside", "/outside", "/changed", "/public"):
                for agent in agents:
                    self.loads.clear()
                    answer = self.client.post(path, headers=KEY | {"User-Agent": agent})
                    told.append((path, answer.status_code, named(answer), len(self.loads)))
        return told


def named(answer):
    """Return the headers, without the random and signed part of a cookie, and its time."""
    return [
        (name, re.sub(r"^(\w+)=[^;]*|=[^;]*GMT", r"\1", text)) for name, text in answer.headers
    ]


@pytest.mark.parametrize("is_on_server", [False, True], ids=["cookie", "Flask-Session"])
@pytest.mark.parametrize("forget", [False, True], ids=["session", "remembered only"])
@pytest.mark.parametrize("library", LIBRARIES)
@MODES
def test_users_sessions_and_cookies_are_as_without_guards(mode, library, forget, is_on_server):
    bare = Site(bare_app, library, lambda view: view, is_on_server=is_on_server)
    guard = DECORATORS[mode]()
    site = Site(make_app, library, guard, is_on_server=is_on_server, IDEMPOTENCE_OBSERVE=True)
    assert site.answers(forget=forget) == bare.answers(forget=forget)
    if mode != "token":
        assert set(site.reasons) & {"replay", "repeat-submit"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_user_who_is_not_loaded_is_told_apart_by_the_session(library):
    site = Site(make_app, library, DECORATORS["lock"](), IDEMPOTENCE_OBSERVE=True)
    for _ in range(2):  # two senders at one address, then a guest
        site.client = site.app.test_client()
        site.client.post("/sign-in")
        with site.client.session_transaction() as held:
            held["_user_id"] = f"{held['_user_id']}{len(site.reasons)}"
        site.client.post("/public")
        assert site.client.post("/public").status_code == 200
    site.app.test_client().post("/public")
    assert site.reasons == ["repeat-submit"] * 2


def test_a_page_with_a_token_loads_no_user():
    idempotence, pages = Idempotence(), []
    guarded = partial(make_app, idempotence=idempotence, IDEMPOTENCE_OBSERVE=True)
    for make, page in ((bare_app, str), (guarded, idempotence.issue_token)):
        site = Site(make, "Flask-Login", lambda view: view)
        site.app.add_url_rule("/page", "page", lambda page=page: [page()] and "page")
        for forget in (False, True):
            site.client.post("/sign-in?remember=1")
            if forget:
                site.client.delete_cookie("session")
            site.loads.clear()
            answer = site.client.get("/page")
            pages.append((site.loads[:], named(answer)))
    assert pages[:2] == pages[2:]
    assert [loads for loads, _ in pages] == [[]] * 4
