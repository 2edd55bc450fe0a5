"""The doctor: each check of the application on what is wrong and on what is right; its report."""

import json

import pytest
from flask.views import MethodView
from flask_jwt_extended import JWTManager
from flask_login import LoginManager, fresh_login_required, login_required
from helpers.applications.doctor_apps import GOOD, found_by, production_app, severity
from helpers.apps import make_app
from helpers.cli_shell import Shell, invoke
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import Idempotence, exempt, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.cli.doctor import collect, examine


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch):
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)


@pytest.mark.parametrize(
    ("arguments", "concurrency", "expected"),
    [
        ("", None, "warning"),
        ("--workers 1", None, "ok"),
        ("--workers 4", None, "error"),
        ("", "3", "error"),
        ("--workers 1", "3", "ok"),
        ("", "1", "ok"),
        ("", "", "warning"),
    ],
)
def test_memory_with_several_workers(arguments, concurrency, expected):
    environment = {"WEB_CONCURRENCY": concurrency}
    done = invoke(production_app(), "doctor", *arguments.split(), env=environment)
    assert f"{expected}\tworkers\t" in done.stdout


def test_workers_that_share_a_store_or_that_are_tested(redis_url):
    shared = production_app(IDEMPOTENCE_STORAGE_URI=redis_url)
    assert severity("workers", shared, workers=8) == "ok"
    assert severity("workers", make_app()) == "ok"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ok"),
        ({"SECRET_KEY": None}, "error"),
        ({"SECRET_KEY": "dev"}, "error"),
        ({"SECRET_KEY": b"short"}, "error"),
        ({"SECRET_KEY": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "error"),
        ({"SECRET_KEY": b"0101010101010101"}, "error"),
        ({"SECRET_KEY": "dev", "TESTING": True}, "warning"),
        ({"SECRET_KEY": None, "IDEMPOTENCE_HASH_KEY": GOOD}, "ok"),
        ({"SECRET_KEY": "dev", "IDEMPOTENCE_HASH_KEY": GOOD}, "error"),
        ({"SECRET_KEY_FALLBACKS": ["an old one"]}, "error"),
        ({"SECRET_KEY_FALLBACKS": [GOOD[::-1]]}, "ok"),
    ],
    ids=str,
)
def test_secrets_that_are_missing_or_can_be_guessed(settings, expected):
    assert severity("secret", production_app(**settings)) == expected


def test_no_secret_is_shown():
    secrets = {"SECRET_KEY": "short-but-meme", "SECRET_KEY_FALLBACKS": ["older-and-meme"]}
    secrets["IDEMPOTENCE_HASH_KEY"] = "meme" * 4
    told = str(list(examine(collect(production_app(**secrets)))))
    assert "SECRET_KEY and IDEMPOTENCE_HASH_KEY and SECRET_KEY_FALLBACKS can be guessed" in told
    assert "meme" not in told


@pytest.mark.parametrize(
    ("settings", "wrapped", "expected"),
    [
        ({}, False, "note"),
        ({}, True, "ok"),
        ({"IDEMPOTENCE_IDENTITY": ["session"]}, False, "ok"),
        ({"IDEMPOTENCE_IP_HEADER": "X-Real-IP"}, False, "note"),
        ({"IDEMPOTENCE_IP_HEADER": "X-Real-IP"}, True, "warning"),
        ({"IDEMPOTENCE_IP_HEADER": "X-Forwarded-For"}, False, "error"),
    ],
    ids=str,
)
def test_addresses_behind_proxies(settings, wrapped, expected):
    app = production_app(**settings)
    if wrapped:
        app.wsgi_app = ProxyFix(app.wsgi_app)
    assert severity("address", app) == expected


def test_a_proxy_fix_is_found_below_other_layers():
    class Layer:
        def __init__(self, app):
            self.app = app

    app = production_app()
    app.wsgi_app = Layer(ProxyFix(Layer(app.wsgi_app)))
    assert severity("address", app) == "ok"
    app.wsgi_app = Layer(None)
    app.wsgi_app.app = app.wsgi_app  # a ring
    assert severity("address", app) == "note"


ROTATING = ["authorization", "ip"]


@pytest.mark.parametrize(
    ("library", "settings", "expected"),
    [
        (JWTManager, {}, "ok"),
        (JWTManager, {"IDENTITY": ROTATING}, "warning"),
        (JWTManager, {"IDENTITY": ["user", "ip"]}, "note"),
        # Users who are told apart by their address.
        (JWTManager, {"IDENTITY": ["session", "credentials", "ip"]}, "warning"),
        (LoginManager, {"IDENTITY": ["authorization", "credentials"]}, "warning"),
        (LoginManager, {"IDENTITY": ["session"]}, "note"),
        (LoginManager, {}, "ok"),
        # Sources that are left out.
        (None, {}, "ok"),
        (None, {"IDENTITY": ["session", "ip"]}, "note"),
        (None, {"IDENTITY": ["ip"]}, "note"),
        (None, {"IDENTITY_HEADERS": [], "IDENTITY_COOKIES": []}, "note"),
        (None, {"IDENTITY_HOST": False}, "note"),
    ],
    ids=str,
)
def test_identities_that_change_or_that_two_users_share(library, settings, expected):
    app = production_app(**{f"IDEMPOTENCE_{name}": given for name, given in settings.items()})
    if library:
        library(app)
    assert severity("identity", app) == expected


def test_credentials_that_rotate_do_not_matter_where_the_identity_is_loaded():
    app = make_app(idempotence=(idempotence := Idempotence()), SECRET_KEY=GOOD, TESTING=False)
    JWTManager(app)
    idempotence.identity_loader(lambda: "somebody")
    assert severity("identity", app) == "ok"


def test_a_whole_application_whose_replays_nobody_checks():
    assert severity("whole app", production_app()) == "ok"
    app = production_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    assert severity("whole app", app) == "warning"
    app.before_request(lambda: None)
    assert severity("whole app", app) == "ok"
    settings = {"SECRET_KEY": GOOD, "IDEMPOTENCE_KEY_ALL_ROUTES": True}
    other = make_app(idempotence=(idempotence := Idempotence()), **settings)
    idempotence.identity_loader(lambda: "somebody")
    assert severity("whole app", other) == "ok"


def undecorated(view):
    return view


LOGINS = {"login": login_required, "fresh": fresh_login_required}
GUARDS = {"key": idempotent(), "lock": no_repeat_submit(9), "token": one_time_token()}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("whole_app", [False, True], ids=["by route", "whole app"])
@pytest.mark.parametrize(
    ("outer", "inner", "where"),
    [
        ("key", "{login}", {"by route", "whole app"}),
        ("lock", "{login}", {"by route", "whole app"}),
        ("token", "{login}", {"by route", "whole app"}),
        ("{login}", "key", set()),
        ("{login}", "lock", {"whole app"}),
        ("{login}", "", {"whole app"}),
        ("exempt", "{login}", set()),
        ("{login}", "exempt", set()),
        ("", "", set()),
    ],
)
def test_a_login_check_inside_a_guard(login, whole_app, outer, inner, where):
    decorators = {**LOGINS, **GUARDS, "exempt": exempt, "": undecorated}
    outermost, innermost = (decorators[name.format(login=login)] for name in (outer, inner))
    app = production_app(IDEMPOTENCE_KEY_ALL_ROUTES=whole_app)
    app.get("/history")(outermost(innermost(lambda: "read")))
    app.post("/pay", endpoint="pay")(outermost(innermost(lambda: "paid")))
    found = found_by("logins", app)
    is_named = ("whole app" if whole_app else "by route") in where
    assert found.severity == ("warning" if is_named else "ok")
    assert ("'pay'" in found.finding) == is_named
    assert "'<lambda>'" not in found.finding  # which only reads


@pytest.mark.parametrize(
    ("method", "decorators", "expected"),
    [
        (undecorated, [login_required, idempotent()], "warning"),
        (undecorated, [idempotent(), login_required], "ok"),  # the last one is outermost
        (login_required, [idempotent()], "warning"),
    ],
)
def test_a_login_check_inside_a_guard_of_a_class(method, decorators, expected):
    post = method(lambda self: "paid")
    payment = type("Payment", (MethodView,), {"decorators": decorators, "post": post})
    app = production_app()
    app.add_url_rule("/pay", view_func=payment.as_view("pay"))
    assert severity("logins", app) == expected


def test_a_guard_above_its_route():
    app = production_app()
    no_repeat_submit(app.post("/orders")(lambda: "ordered"))
    assert severity("views", app) == "error"
    assert severity("views", production_app()) == "ok"


@pytest.mark.parametrize(
    ("settings", "arguments", "code"),
    [
        ({}, "--workers 1 --strict", 0),
        ({}, "", 0),
        ({}, "--strict", 1),
        ({}, "--strict --json", 1),
        ({"SECRET_KEY": "dev"}, "--workers 1", 1),
        ({}, "--workers 0", 2),
    ],
    ids=str,
)
def test_the_exit_code_is_for_scripts(settings, arguments, code):
    assert invoke(production_app(**settings), "doctor", *arguments.split()).exit_code == code


def test_the_report_for_programs():
    app = production_app(SECRET_KEY="dev")
    app.post("/pay")(idempotent(guarantee="at-most-once", remember="success")(lambda: "paid"))
    report = json.loads(invoke(app, "doctor", "--json").output)
    assert (report["errors"], report["warnings"], report["notes"]) == (2, 1, 1)
    wrong, views = [each for each in report["findings"] if each["severity"] == "error"]
    assert set(wrong) == {"severity", "check", "finding", "reason", "remedy"}
    assert wrong["check"] == "secret"
    assert views["reason"] == "Every request to '<lambda>' gets 500."  # named once


def test_in_a_terminal_the_worst_is_explained_first(tmp_path):
    done = Shell(tmp_path).terminal("doctor", NO_COLOR="1", FLASK_SECRET_KEY="dev")
    assert done.code == 1
    table, *explained = done.out.split("\n\n")
    assert table.splitlines()[0].split() == ["SEVERITY", "CHECK", "FINDING"]
    assert [text.split()[0] for text in explained[:-1]] == ["error", "warning", "note"]
    assert explained[-1] == "errors: 1, warnings: 1, notes: 1.\n"
    assert max(map(len, done.out.splitlines())) <= 99
