"""What type checkers make of the helpers for tests: nothing here runs."""

from datetime import timedelta
from typing import assert_type

from flask import Flask

from flask_idempotence.testing import (
    FakeClock,
    MovableClock,
    assert_ran_once,
    clear_store,
    control_time,
    empty_memory_stores,
    record_signals,
    token_for,
)

app = Flask(__name__)
client = app.test_client()

with control_time() as clock:
    assert_type(clock, MovableClock)
    clock.advance(60)
    clock.advance(timedelta(days=1))
with assert_ran_once(app, "create_order"):
    assert_type(token_for(client, "checkout"), str)
with record_signals(app) as recorder:
    assert_type(recorder.count("completed"), int)
assert_type(clear_store(app), int)
empty_memory_stores()
FakeClock().rule(app)

# Errors, all of them: where mypy finds none, the ignore is unused, which fails.
clock.advance("60")  # type: ignore
token_for(app)  # type: ignore
token_for(client, 7)  # type: ignore
assert_ran_once(client, "create_order")  # type: ignore
assert_ran_once(app)  # type: ignore
recorder.count("complete")  # type: ignore
