"""The application that a command runs for, and the options that several commands share."""

from __future__ import annotations

from typing import Protocol

import click
from flask import Flask, current_app

from ..config.settings import Config
from ..engine.engine import Engine
from ..request.proxies import actual
from ..stores.base import Store
from .output import print_aside

MODES = ("lock", "token", "key", "once", "mutex")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
by_mode = click.option("--mode", type=click.Choice(MODES), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)


class State(Protocol):
    """The extension's state of an application."""

    config: Config
    store: Store
    engine: Engine
    given: frozenset[str]


def this_app() -> Flask:
    """Return the application."""
    return actual(current_app)


def state_of(app: Flask) -> State:
    """Return the extension's state of an application."""
    state: State = app.extensions["idempotence"]
    return state


def this_state() -> State:
    """Return the state of the application; print a warning if no other process sees its store."""
    state = state_of(this_app())
    if not state.store.shared and not this_app().testing:
        print_aside(
            "Claims are kept in the memory of each process: this command has an empty store of "
            "its own, and cannot see those of the running workers."
        )
    return state
