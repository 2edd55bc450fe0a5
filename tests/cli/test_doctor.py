"""The doctor: each check of the application on what is wrong and on what is right; its report."""

import json

import pytest
from flask.views import MethodView
from flask_jwt_extended import JWTManager
from flask_login import LoginManager, fresh_login_required, login_required
from helpers.applications.doctor_apps import GOOD, found_by, production_app, severity
from helpers.apps import bare_app, make_app
from helpers.cli_shell import Shell
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    exempt,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.cli.doctor import collect, examine
from flask_idempotence.cli.doctor.app import APP_CHECKS


@pytest.fixture(autouse=True)
def no_surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WEB_CONCURRENCY", "GUNICORN_CMD_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def app(redis_url):
    return production_app(IDEMPOTENCE_STORAGE_URI=redis_url)


@pytest.mark.parametrize(
    ("environment", "workers", "expected"),
    [
        ({}, None, "warning"),
        ({}, 1, "ok"),
        ({}, 4, "error"),
        ({"WEB_CONCURRENCY": "3"}, None, "error"),
        ({"WEB_CONCURRENCY": "3"}, 1, "ok"),
        ({"WEB_CONCURRENCY": "1"}, None, "ok"),
        ({"WEB_CONCURRENCY": "many"}, None, "warning"),
        ({"WEB_CONCURRENCY": ""}, None, "warning"),
    ],
    ids=str,
)
def test_memory_with_several_workers(monkeypatch, environment, workers, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert severity("workers", production_app(), workers=workers) == expected


def test_workers_that_share_a_store(app):
    assert severity("workers", app, workers=8) == "ok"


def test_memory_is_fine_for_tests_and_for_debugging():
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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ok"),
        ({"IDEMPOTENCE_IDENTITY": ["authorization", "ip"]}, "warning"),
        (
            {"IDEMPOTENCE_IDENTITY": ["authorization", "ip"], "JWT_ACCESS_TOKEN_EXPIRES": False},
            "note",
        ),
        ({"IDEMPOTENCE_IDENTITY": ["credentials"], "JWT_TOKEN_LOCATION": ["cookies"]}, "warning"),
    ],
    ids=str,
)
def test_credentials_that_rotate(settings, expected):
    app = production_app(**settings)
    JWTManager(app)
    assert severity("identity", app) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ok"),
        ({"IDEMPOTENCE_IDENTITY": ["session", "ip"]}, "note"),
        ({"IDEMPOTENCE_IDENTITY": ["ip"]}, "note"),
        ({"IDEMPOTENCE_IDENTITY_HEADERS": [], "IDEMPOTENCE_IDENTITY_COOKIES": []}, "note"),
        ({"IDEMPOTENCE_IDENTITY_HOST": False}, "note"),
    ],
    ids=str,
)
def test_sources_that_are_left_out(settings, expected):
    assert severity("identity", production_app(**settings)) == expected


@pytest.mark.parametrize(
    ("library", "settings", "expected"),
    [
        (JWTManager, {"IDEMPOTENCE_IDENTITY": ["session", "credentials", "ip"]}, "warning"),
        (
            JWTManager,
            {
                "IDEMPOTENCE_IDENTITY": ["session", "authorization", "ip"],
                "JWT_TOKEN_LOCATION": ["cookies"],
            },
            "warning",
        ),
        (LoginManager, {"IDEMPOTENCE_IDENTITY": ["authorization", "credentials"]}, "warning"),
        (LoginManager, {"IDEMPOTENCE_IDENTITY": ["session"]}, "note"),
        (LoginManager, {}, "ok"),
    ],
    ids=str,
)
def test_users_of_a_login_library_that_are_told_apart_by_address(library, settings, expected):
    app = production_app(**settings)
    library(app)
    assert severity("identity", app) == expected


def test_credentials_that_rotate_do_not_matter_where_the_identity_is_loaded():
    app, idempotence = bare_app(SECRET_KEY=GOOD), Idempotence()
    idempotence.init_app(app)
    JWTManager(app)
    idempotence.identity_loader(lambda: "somebody")
    assert severity("identity", app) == "ok"


def test_a_whole_application_whose_replays_nobody_checks():
    assert severity("whole app", production_app()) == "ok"
    app = production_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    assert severity("whole app", app) == "warning"
    app.before_request(lambda: None)
    assert severity("whole app", app) == "ok"
    app, idempotence = production_app(IDEMPOTENCE_KEY_ALL_ROUTES=True), Idempotence()
    other = bare_app(SECRET_KEY=GOOD, IDEMPOTENCE_KEY_ALL_ROUTES=True)
    idempotence.init_app(other)
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


@pytest.mark.parametrize("place", ["class", "method"])
def test_a_login_check_inside_a_guard_of_a_class(place):
    class Payment(MethodView):
        @(login_required if place == "method" else undecorated)
        def post(self):
            return "paid"

    Payment.decorators = [idempotent()] if place == "method" else [login_required, idempotent()]
    app = production_app()
    app.add_url_rule("/pay", view_func=Payment.as_view("pay"))
    assert severity("logins", app) == "warning"
    Payment.decorators = [idempotent(), login_required]
    app = production_app()
    app.add_url_rule("/pay", view_func=Payment.as_view("pay"))
    assert severity("logins", app) == ("warning" if place == "method" else "ok")


def test_a_guard_above_its_route():
    app = production_app()
    no_repeat_submit(app.post("/orders")(lambda: "ordered"))
    assert severity("views", app) == "error"
    assert severity("views", production_app()) == "ok"


def test_a_guard_against_the_settings_is_named_once():
    app = production_app()
    app.post("/pay")(idempotent(guarantee="at-most-once", remember="success")(lambda: "paid"))
    output = invoke(app, "--json").output
    (found,) = [f for f in json.loads(output)["findings"] if f["check"] == "views"]
    assert found["reason"] == "Every request to '<lambda>' gets 500."


def invoke(app, *arguments):
    return app.test_cli_runner().invoke(args=["idempotence", "doctor", *arguments])


@pytest.mark.parametrize(
    ("settings", "arguments", "code"),
    [
        ({}, ("--workers", "1"), 0),
        ({}, ("--workers", "1", "--strict"), 0),
        ({}, (), 0),
        ({}, ("--strict",), 1),
        ({"SECRET_KEY": "dev"}, ("--workers", "1"), 1),
        ({}, ("--workers", "0"), 2),
    ],
    ids=str,
)
def test_the_exit_code_is_for_scripts(settings, arguments, code):
    assert invoke(production_app(**settings), *arguments).exit_code == code
    if code < 2:
        assert invoke(production_app(**settings), *arguments, "--json").exit_code == code


def test_the_report_for_programs():
    done = invoke(production_app(SECRET_KEY="dev"), "--json")
    report = json.loads(done.output)
    assert (report["errors"], report["warnings"], report["notes"]) == (1, 1, 1)
    [wrong] = [each for each in report["findings"] if each["severity"] == "error"]
    assert set(wrong) == {"severity", "check", "finding", "reason", "remedy"}
    assert wrong["check"] == "secret"


def test_in_a_pipe_a_finding_is_a_line():
    lines = invoke(production_app()).output.splitlines()
    assert [line.count("\t") for line in lines] == [4] * len(lines)
    assert [line.split("\t")[1] for line in lines] == ["store", *APP_CHECKS]


def test_in_a_terminal_the_worst_is_explained_first(tmp_path):
    done = Shell(tmp_path).terminal("doctor", NO_COLOR="1", FLASK_SECRET_KEY="dev")
    assert done.code == 1
    table, *explained = done.out.split("\n\n")
    assert table.splitlines()[0].split() == ["SEVERITY", "CHECK", "FINDING"]
    assert [text.split()[0] for text in explained[:-1]] == ["error", "warning", "note"]
    assert explained[-1] == "errors: 1, warnings: 1, notes: 1.\n"
    assert max(map(len, done.out.splitlines())) <= 99


def test_a_store_of_ones_own_has_no_servers_to_examine():
    app = bare_app(SECRET_KEY=GOOD)
    Idempotence(app, store=MemoryStore())
    assert {each.check for each in examine(collect(app))} == {"store", *APP_CHECKS}
