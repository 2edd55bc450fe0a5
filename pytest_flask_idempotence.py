"""The pytest plugin of Flask-Idempotence: `-p no:flask_idempotence` switches it off.

It lies beside the package, since pytest imports it in every run: the package, with Flask, is
imported by the tests that need it, after the measuring of coverage has begun.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flask import Flask

    from flask_idempotence.testing import MovableClock

KEEP = "idempotence_keep"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers", f"{KEEP}: keep the keys that earlier tests have left in memory stores"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Empty the memory stores before the fixtures of a test begin."""
    memory = sys.modules.get("flask_idempotence.stores.memory")
    if memory is not None and item.get_closest_marker(KEEP) is None:
        memory.empty_memory_stores()


@pytest.fixture
def idempotence_clock() -> Iterator[MovableClock]:
    """The clock of every application: `idempotence_clock.advance(seconds)` lets time pass."""
    from flask_idempotence.testing import control_time

    with control_time() as clock:
        yield clock


@pytest.fixture
def idempotence_token() -> Callable[..., str]:
    """A function that gives a test client a one-time token: `(client, purpose=None)`."""
    from flask_idempotence.testing import token_for

    return token_for


@pytest.fixture
def idempotence_ran_once() -> Callable[[Flask, str], AbstractContextManager[None]]:
    """The assertion that a view runs once: a context manager of an application and endpoint."""
    from flask_idempotence.testing import assert_ran_once

    return assert_ran_once


@pytest.fixture
def idempotence_database() -> Iterator[str]:
    """The URL of a new SQLite file with the extension's table, for a session and its store."""
    from flask_idempotence.testing import temporary_database

    with temporary_database() as url:
        yield url
