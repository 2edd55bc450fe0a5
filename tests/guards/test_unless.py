"""`unless=`: a function that lets a request pass without its guard."""

import pytest
from flask import request
from helpers.apps import make_app

from flask_idempotence import (
    ConfigurationError,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

KEY = {"Idempotency-Key": "0b3d3f0e-6d1c-4c43-9d6e-8c8c3b8d5c11"}
DECORATORS = {
    "lock": lambda **more: no_repeat_submit(5, **more),
    "token": one_time_token,
    "key": lambda **more: idempotent(required=True, on_repeat="reject", **more),
}

in_each_mode = pytest.mark.parametrize("mode", DECORATORS)


def is_dry_run():
    return "dry" in request.args


def app_with(decorate):
    app = make_app()
    app.runs = []

    @app.post("/pay")
    @decorate
    def pay():
        app.runs.append(current_guard.mode)
        return "paid"

    return app


@in_each_mode
def test_the_view_runs_unguarded_where_it_returns_true(mode):
    app = app_with(DECORATORS[mode](unless=is_dry_run))
    client = app.test_client()
    for _ in range(3):
        assert client.post("/pay?dry=1", headers=KEY).status_code == 200
    assert app.runs == [None] * 3
    refused = {"lock": [200, 409], "token": [400, 400], "key": [200, 409]}[mode]
    assert [client.post("/pay", headers=KEY).status_code for _ in range(2)] == refused


@in_each_mode
def test_it_is_called_once_a_request_before_the_sender_is_identified(mode):
    called = []

    def note():
        called.append("unless")
        return len(called) > 2

    app = app_with(DECORATORS[mode](unless=note))
    app.extensions["idempotence"].engine.services.callbacks.load_identity = lambda: called.append(
        "identity"
    )
    app.test_client().post("/pay", headers=KEY)
    assert called[0] == "unless"
    assert called.count("unless") == 1
    called[:] = ["unless", "unless"]
    assert app.test_client().post("/pay").status_code == 200
    assert called == ["unless"] * 3


@in_each_mode
def test_an_error_of_it_goes_through_and_the_view_does_not_run(mode):
    app = app_with(DECORATORS[mode](unless=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        app.test_client().post("/pay", headers=KEY)
    assert app.runs == []


@in_each_mode
def test_it_is_no_async_function(mode):
    async def later():
        return True

    with pytest.raises(ConfigurationError, match=r"\(unless=...\) cannot be an async function"):
        DECORATORS[mode](unless=later)

    class Later:
        async def __call__(self):
            return True

    with pytest.raises(ConfigurationError, match=r"\(unless=...\) cannot be an async function"):
        DECORATORS[mode](unless=Later())
