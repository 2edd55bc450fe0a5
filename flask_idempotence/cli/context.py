"""The application that a command runs for, and the options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from flask import Flask, current_app

from ..request.proxies import actual
from .output import print_aside

if TYPE_CHECKING:
    from ..extension import State

MODES = ("lock", "token", "key", "once")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
by_mode = click.option("--mode", type=click.Choice(MODES), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)


def this_app() -> Flask:
    """Return the application."""
    return actual(current_app)


def this_state() -> State:
    """Return the extension's state; print a warning if no other process sees its store."""
    state: State = this_app().extensions["idempotence"]
    if not state.store.shared and not this_app().testing:
        print_aside(
            "Claims are kept in the memory of each process: this command sees its own, which is "
            "empty, and not those of the running workers."
        )
    return state
