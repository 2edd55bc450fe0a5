"""How the extension is set up on an application, and what it says where that went wrong."""

import itertools
import logging

import pytest
from flask import Flask
from helpers.apps import bare_app, make_app
from helpers.servers.processes import HOST, free_port

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.engine.engine import LATE_SETTINGS_EVERY

SECRET = "hunter2-hunter2"


def guarded_app(guard=None, **settings):
    """Return an application with a guarded view at /, and the list of its runs."""
    app, runs = make_app(**settings), []
    guard = guard or no_repeat_submit(interval=60)
    app.add_url_rule("/", "pay", guard(lambda: runs.append(1) or "paid"), methods=["POST"])
    return app, runs


def posts(app, times=2, **options):
    return [app.test_client().post("/", **options).status_code for _ in range(times)]


def refused(**settings):
    """Return what a registration with these settings says, and check what it must never say."""
    with pytest.raises(ConfigurationError) as caught:
        make_app(**settings)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def test_a_factory_registers_one_object_on_two_apps_with_settings_of_their_own():
    idempotence = Idempotence()
    one, runs_of_one = guarded_app(idempotence=idempotence)
    two, runs_of_two = guarded_app(idempotence=idempotence, IDEMPOTENCE_DUPLICATE_STATUS=429)
    assert (posts(one), posts(two)) == ([200, 409], [200, 429])
    assert (runs_of_one, runs_of_two) == ([1], [1])
    states = [app.extensions["idempotence"] for app in (one, two)]
    assert states[0].store is not states[1].store


def test_a_token_of_one_app_is_worth_nothing_on_another():
    idempotence = Idempotence()
    apps = [guarded_app(one_time_token(), idempotence=idempotence)[0] for _ in range(2)]
    token = apps[0].test_client().get("/token").json["token"]
    headers = {"Idempotence-Token": token}
    assert [posts(app, headers=headers) for app in reversed(apps)] == [[409, 409], [200, 409]]


def test_a_second_registration_says_what_to_do():
    app = bare_app()
    idempotence = Idempotence(app)
    for register in (idempotence.init_app, Idempotence):
        with pytest.raises(ConfigurationError, match=r"already registered.*once, not both"):
            register(app)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("STORAGE_URI", f"postgres://user:{SECRET}@host/shop", "postgresql+psycopg://"),
        ("STORAGE_URI", f"redis://:{SECRET}@host/zero", "is a number"),
        ("STORAGE_URI", f"redis://:pa#{SECRET}@host/0", "%23"),
        ("STORAGE_URI", SECRET, "memory://, redis://"),
        ("STORAGE_URI", f"ftp://user:{SECRET}@host", "memory://, redis://"),
        ("STORAGE_URI", f"redis://:{SECRET}@host:{SECRET}/0", "cannot be read"),
        ("STORAGE_URI", f"redis://:{SECRET}@[host/0", "STORAGE_URI"),
        ("STORAGE_URI", f"redis://h/0?socket_timeout={SECRET}", "cannot be read"),
        ("STORAGE_OPTIONS", {"no_such_option": SECRET}, "no_such_option"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed_and_never_repeated(name, value, allowed):
    text = refused(**{f"IDEMPOTENCE_{name}": value})
    assert f"IDEMPOTENCE_{name}" in text
    assert allowed in text


def test_settings_are_checked_though_all_is_disabled():
    assert "IDEMPOTENCE_LEASE" in refused(IDEMPOTENCE_ENABLED=False, IDEMPOTENCE_LEASE=SECRET)


def test_all_settings_may_come_from_the_environment(monkeypatch):
    given = {
        "ENABLED": "false",
        "LOCK_ENABLED": "no",
        "IDENTITY": '["ip"]',
        "IGNORED_ARGS": '["nonce", "csrf"]',
        "LEASE": "2.5",
        "LOCK_INTERVAL": "5",
        "DUPLICATE_STATUS": "429",
        "TOKEN_URL": "null",
        "HASH_KEY": "0123456789abcdef",
        "STORAGE_OPTIONS__max_entries": "7",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"SHOP_IDEMPOTENCE_{name}", value)
    app = Flask("shop")
    app.config.from_prefixed_env("SHOP")
    Idempotence(app)
    config = app.extensions["idempotence"].config
    assert (config.enabled, config.lock_enabled, config.token_url) == (False, False, None)
    assert (config.identity, config.ignored_args) == (("ip",), ("nonce", "csrf"))
    assert (config.lease, config.lock_interval, config.duplicate_status) == (2.5, 5.0, 429)
    assert config.hash_key == b"0123456789abcdef"
    assert config.storage_options == {"max_entries": 7}


@pytest.mark.parametrize(
    ("guard", "name"),
    [
        (no_repeat_submit(60), "ENABLED"),
        (no_repeat_submit(60), "LOCK_ENABLED"),
        (idempotent(on_repeat="reject"), "ENABLED"),
        (idempotent(on_repeat="reject"), "KEY_ENABLED"),
        (one_time_token(), "ENABLED"),
        (one_time_token(), "TOKEN_ENABLED"),
    ],
)
@pytest.mark.parametrize("off", [False, "false"])
def test_a_toggle_may_be_flipped_at_any_time(guard, name, off):
    app, runs = guarded_app(guard)
    token = app.test_client().get("/token").json["token"]
    sent = {"headers": {"Idempotency-Key": "k", "Idempotence-Token": token}}
    assert posts(app, **sent) == [200, 409]
    app.config[f"IDEMPOTENCE_{name}"] = off
    assert posts(app, **sent) == [200, 200]
    app.config[f"IDEMPOTENCE_{name}"] = True
    assert posts(app, **sent) == [409, 409]
    assert len(runs) == 3


def test_any_other_late_change_is_ignored_and_reported_once(caplog):
    app, runs = guarded_app()
    late = {"IDEMPOTENCE_DUPLICATE_STATUS": 200, "IDEMPOTENCE_STORAGE_URI": SECRET}
    app.config.update(late, IDEMPOTENCY_LEASE=SECRET)
    assert posts(app, 4) == [200, 409, 409, 409]
    told = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.name for each in told] == ["flask_idempotence"] * 2
    misnamed, changed = (each.getMessage() for each in told)
    assert all(name in changed for name in ("changed after", *late))
    assert "IDEMPOTENCY_LEASE is not a setting" in misnamed
    assert "Did you mean IDEMPOTENCE_LEASE?" in misnamed
    assert "hunter2" not in caplog.text
    assert runs == [1]


def test_without_a_secret_every_mode_says_what_to_set():
    idempotence = Idempotence()
    for guard in (no_repeat_submit(), idempotent(), one_time_token()):
        app, runs = guarded_app(guard, idempotence=idempotence, SECRET_KEY=None)
        with pytest.raises(ConfigurationError, match=r"SECRET_KEY.*IDEMPOTENCE_HASH_KEY"):
            posts(app, headers={"Idempotence-Token": "x", "Idempotency-Key": "k"})
        assert runs == []
    with pytest.raises(ConfigurationError, match="SECRET_KEY"):
        app.test_client().get("/token")
    with app.app_context(), pytest.raises(ConfigurationError, match="SECRET_KEY"):
        idempotence.issue_token()


def test_the_token_url_may_be_another_one_or_none():
    assert make_app().test_client().get("/token").status_code == 200
    other = make_app(IDEMPOTENCE_TOKEN_URL="/once/ticket").test_client()
    assert [other.get(path).status_code for path in ("/token", "/once/ticket")] == [404, 200]
    idempotence = Idempotence()
    none = make_app(idempotence=idempotence, IDEMPOTENCE_TOKEN_URL=None)
    assert none.test_client().get("/token").status_code == 404
    with none.app_context():
        idempotence.redeem_token(idempotence.issue_token())


@pytest.mark.parametrize(
    "guard", [no_repeat_submit(interval=60), idempotent(required=True), one_time_token()]
)
def test_disabled_lets_everything_through_without_asking_the_store(guard):
    uri = f"redis://{HOST}:{free_port()}/0"
    app, runs = guarded_app(guard, IDEMPOTENCE_ENABLED=False, IDEMPOTENCE_STORAGE_URI=uri)
    assert (posts(app), runs) == ([200, 200], [1, 1])
    assert app.test_client().get("/token").json["token"]  # for pages


@pytest.mark.parametrize("toggle", ["ENABLED", "TOKEN_ENABLED"])
def test_pages_get_tokens_while_disabled_and_may_spend_them_later(toggle):
    app, runs = guarded_app(one_time_token(), **{f"IDEMPOTENCE_{toggle}": False})
    headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
    app.config[f"IDEMPOTENCE_{toggle}"] = True
    assert (posts(app, headers=headers), runs) == ([200, 409], [1])


@pytest.mark.parametrize("quiet", ["DEBUG", "TESTING", None])
def test_the_store_in_memory_is_reported_once_where_it_matters(caplog, quiet):
    flags = {"DEBUG": False, "TESTING": False} | ({quiet: True} if quiet else {})
    app, _ = guarded_app(**flags)
    posts(app, 3)
    told = [record for record in caplog.records if "memory of this process" in record.message]
    assert all(record.message.startswith("Flask-Idempotence: ") for record in told)
    assert [record.levelno for record in told] == ([] if quiet else [logging.WARNING])


def test_a_shared_store_is_not_reported(caplog, redis_url):
    app, runs = guarded_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=redis_url)
    assert (posts(app), runs, caplog.text) == ([200, 409], [1], "")


# Settings under a wrong name


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("IDEMPOTENCE_LOCK_INTERVALL", "IDEMPOTENCE_LOCK_INTERVAL"),
        ("IDEMPOTENCE_STORAGE_URL", "IDEMPOTENCE_STORAGE_URI"),
        ("IDEMPOTENCE_TOKENTTL", "IDEMPOTENCE_TOKEN_TTL"),
        ("IDEMPOTENCE_TOKEN_URI", "IDEMPOTENCE_TOKEN_URL"),
        ("IDEMPOTENCE_TTL", "IDEMPOTENCE_KEY_TTL"),
        ("IDEMPOTENCE_REDIS_OPTIONS", "IDEMPOTENCE_STORAGE_OPTIONS"),
        # Under another prefix
        ("IDEMPOTENCY_STORAGE_URI", "IDEMPOTENCE_STORAGE_URI"),
        ("IDEMPOTENCY_KEY_TTL", "IDEMPOTENCE_KEY_TTL"),
        ("IDEMPOTENT_LOCK_INTERVAL", "IDEMPOTENCE_LOCK_INTERVAL"),
        ("FLASK_IDEMPOTENCE_LEASE", "IDEMPOTENCE_LEASE"),
        ("idempotence_lease", "IDEMPOTENCE_LEASE"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(wrong, right):
    is_ours = wrong.startswith("IDEMPOTENCE_")
    rule = "" if is_ours else ": settings begin with IDEMPOTENCE_"
    assert f"{wrong} is not a setting{rule}. Did you mean {right}?" in refused(**{wrong: SECRET})


@pytest.mark.parametrize("name", ["REDIS_URL", "DATABASE_URL", "URI", "BACKEND", "DSN", "TIMEOUT"])
def test_a_name_that_is_like_no_setting_is_refused_with_that_of_the_store(name):
    text = refused(**{f"IDEMPOTENCE_{name}": SECRET})
    assert f"IDEMPOTENCE_{name} is not a setting. The address of a store is " in text
    assert "IDEMPOTENCE_STORAGE_URI" in text


def test_every_wrong_setting_is_told_at_once():
    text = refused(IDEMPOTENCY_LEASE=5, IDEMPOTENCE_REDIS_URL=SECRET, IDEMPOTENCE_LEASE=SECRET)
    assert "IDEMPOTENCY_LEASE is not" in text
    assert "IDEMPOTENCE_REDIS_URL is not" in text
    assert "IDEMPOTENCE_LEASE: Must be" in text


def test_other_settings_are_none_of_ours():
    make_app(IDEMPOTENT="yes", IDEMPOTENCYX_KEY=1, SHOP_IDEMPOTENCY_KEY=2)


@pytest.mark.parametrize("seen", [1, 40, 64])
def test_each_later_change_is_reported_once_within_64_guarded_requests(caplog, seen):
    app = make_app()
    view = no_repeat_submit(60)(lambda n: "done")
    app.add_url_rule("/<int:n>", "guarded", view, methods=["POST"])
    numbers = itertools.count()

    def reports_after(times):
        for n in itertools.islice(numbers, times):
            assert app.test_client().post(f"/{n}").status_code == 200
        told = [each.getMessage() for each in caplog.records]
        return [text for text in told if "changed after" in text]

    assert LATE_SETTINGS_EVERY == 64
    assert reports_after(seen) == []
    app.config["IDEMPOTENCE_LEASE"] = 5
    assert reports_after(64 - seen) == []
    [lease] = reports_after(1)
    assert "IDEMPOTENCE_LEASE" in lease
    assert reports_after(2 * 64) == [lease]
    app.config["IDEMPOTENCE_MAX_HOLD"] = 5
    [_, hold] = reports_after(64)
    assert "IDEMPOTENCE_MAX_HOLD" in hold
