"""The root imports what every application needs, and nothing else."""

import json
import subprocess
import sys
from typing import get_args

import pytest

import flask_idempotence
from flask_idempotence.signals import ALL_SIGNALS, SignalName

PROGRAM = """
import json, sys
import flask, marshmallow
known = set(sys.modules)
{}
print(json.dumps(sorted(set(sys.modules) - known)))
"""

HEAVY = {
    "redis",
    "sqlalchemy",
    "cryptography",
    "apispec",
    "prometheus_client",
    "opentelemetry",
    "httpx",
    "requests",
}
FOR_FEW = {
    *("cli.doctor", "cli.inspect", "client", "metrics", "openapi", "testing"),
    *("stores.facts", "stores.redis", "stores.sql", "exactly_once.transaction"),
}


def newly_imported(program):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(program)], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


def test_the_root_imports_no_client_of_a_store_and_nothing_for_commands():
    found = newly_imported("import flask_idempotence")
    assert {name.partition(".")[0] for name in found} & HEAVY == set()
    assert {f"flask_idempotence.{name}" for name in FOR_FEW} & found == set()


def test_the_root_imports_little_of_the_standard_library():
    found = newly_imported("import flask_idempotence")
    assert {name for name in found if not name.startswith("flask_idempotence")} == set()


def test_an_application_in_memory_does_without_redis_py():
    found = newly_imported(
        "import flask_idempotence\n"
        "flask_idempotence.Idempotence(flask.Flask('shop', root_path='.'))"
    )
    assert {name.partition(".")[0] for name in found} & HEAVY == set()


def test_opentelemetry_is_imported_as_its_api_only():
    found = newly_imported("import flask_idempotence.opentelemetry")
    assert "opentelemetry.trace" in found
    assert [name for name in found if name.startswith("opentelemetry.sdk")] == []


def test_a_public_name_whose_extra_is_missing_is_an_error_of_its_import_and_of_the_setup():
    newly_imported("""
sys.modules["sqlalchemy"] = None
import flask_idempotence
for expected in (ImportError, flask_idempotence.ConfigurationError):
    try:
        flask_idempotence.SqlStore
    except expected as error:
        assert "flask-idempotence[sql]" in str(error)
    else:
        raise AssertionError
""")


def test_every_public_name_can_be_imported_and_is_listed():
    for name in flask_idempotence.__all__:
        assert getattr(flask_idempotence, name).__name__ if name.endswith("Store") else name
        assert name in dir(flask_idempotence)
    assert flask_idempotence.RedisStore is flask_idempotence.RedisStore
    with pytest.raises(AttributeError, match="has no attribute 'RedisStor'"):
        flask_idempotence.RedisStor  # noqa: B018 - read


def test_the_type_of_signal_names_has_every_signal():
    assert get_args(SignalName) == tuple(signal.name for signal in ALL_SIGNALS)
