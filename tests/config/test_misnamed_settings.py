"""Settings under a wrong name: the right one is told, and the value never."""

import logging

import pytest
from config.test_app_setup import SECRET, guarded_app, posts, refused
from helpers.apps import make_app


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("IDEMPOTENCE_LOCK_INTERVALL", "IDEMPOTENCE_LOCK_INTERVAL"),
        ("IDEMPOTENCE_STORAGE_URL", "IDEMPOTENCE_STORAGE_URI"),
        ("IDEMPOTENCE_TOKENTTL", "IDEMPOTENCE_TOKEN_TTL"),
        ("IDEMPOTENCE_TOKEN_URI", "IDEMPOTENCE_TOKEN_URL"),
        ("IDEMPOTENCE_TTL", "IDEMPOTENCE_KEY_TTL"),
        ("IDEMPOTENCE_HEADER", "IDEMPOTENCE_KEY_HEADER"),
        ("IDEMPOTENCE_TIMEOUT", "IDEMPOTENCE_LEASE"),
        ("IDEMPOTENCE_REDIS_OPTIONS", "IDEMPOTENCE_STORAGE_OPTIONS"),
        *(
            (f"IDEMPOTENCE_{name}", "IDEMPOTENCE_STORAGE_URI")
            for name in (
                *("REDIS_URL", "REDIS_URI", "REDIS", "REDIS_HOST", "URL", "URI", "STORE"),
                *("STORE_URL", "STORAGE", "DATABASE_URL", "DB_URI", "BACKEND", "DSN"),
            )
        ),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(wrong, right):
    assert f"{wrong} is not a setting. Did you mean {right}?" in refused(**{wrong: SECRET})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("IDEMPOTENCY_STORAGE_URI", "IDEMPOTENCE_STORAGE_URI"),
        ("IDEMPOTENCY_KEY_TTL", "IDEMPOTENCE_KEY_TTL"),
        ("IDEMPOTENCY_REDIS_URL", "IDEMPOTENCE_STORAGE_URI"),
        ("IDEMPOTENT_LOCK_INTERVAL", "IDEMPOTENCE_LOCK_INTERVAL"),
        ("FLASK_IDEMPOTENCE_LEASE", "IDEMPOTENCE_LEASE"),
        ("idempotence_lease", "IDEMPOTENCE_LEASE"),
    ],
)
def test_a_setting_under_a_foreign_prefix_is_refused_with_its_right_name(wrong, right):
    text = refused(**{wrong: SECRET})
    assert f"{wrong} is not a setting: settings begin with IDEMPOTENCE_." in text
    assert f"Did you mean {right}?" in text


def test_every_wrong_setting_is_told_at_once():
    text = refused(IDEMPOTENCY_LEASE=5, IDEMPOTENCE_REDIS_URL=SECRET, IDEMPOTENCE_LEASE=SECRET)
    assert "IDEMPOTENCY_LEASE is not" in text
    assert "IDEMPOTENCE_REDIS_URL is not" in text
    assert "IDEMPOTENCE_LEASE: Must be" in text


def test_other_settings_are_none_of_ours():
    make_app(IDEMPOTENT="yes", IDEMPOTENCYX_KEY=1, SHOP_IDEMPOTENCY_KEY=2)


def test_a_misnamed_setting_that_comes_too_late_is_reported_once(caplog):
    app, runs = guarded_app()
    app.config.update(IDEMPOTENCY_LEASE=SECRET)
    assert (posts(app), runs) == ([200, 409], [1])
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.name == "flask_idempotence"
    assert "IDEMPOTENCY_LEASE is not a setting" in told.getMessage()
    assert "Did you mean IDEMPOTENCE_LEASE?" in told.getMessage()
    assert "hunter2" not in caplog.text
