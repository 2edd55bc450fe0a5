"""`flask idempotence config`: show the settings in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click
from flask.cli import with_appcontext

from ..config.settings import SETTINGS
from .context import State, as_json, state_of, this_app
from .output import print_json, print_table

HIDDEN = "(hidden)"


class Setting(NamedTuple):
    """A setting as it is shown; its origin is `set` or `default`."""

    name: str
    value: object
    origin: str


def _settings(state: State, current: Mapping[str, object]) -> list[Setting]:
    """Return the settings in force; toggles are read from the application's current ones."""
    settings = []
    for name, field in SETTINGS.items():
        live, secret = field.metadata["live"], field.metadata["secret"]
        value = current[name] if live else getattr(state.config, field.name)
        is_set = name in state.given or (live and value != field.default)
        shown = _hidden(name, value) if secret and is_set else json_value(value)
        settings.append(Setting(name, shown, "set" if is_set else "default"))
    return settings


def _hidden(name: str, value: object) -> str:
    # A URI's scheme names the kind of store; the rest may hold a password and an address.
    scheme, separator, _ = str(value).partition("://")
    is_uri = name == "IDEMPOTENCE_STORAGE_URI" and separator
    return f"{scheme}://{HIDDEN}" if is_uri else HIDDEN


def json_value(value: object) -> object:
    """Return a value as JSON can hold it."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int | float | list):
        return value
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a lazy translation may need a request
        return f"({type(value).__name__})"


@click.command("config")
@as_json
@with_appcontext
def command(*, as_json: bool) -> None:
    """Show the settings in force.

    The origin shows which of them were set.

    Secrets are hidden: keys, options of the store, and all of its URI but the scheme.
    """
    state = state_of(this_app())
    settings, store = _settings(state, this_app().config), type(state.store).__name__
    if as_json:
        print_json({"settings": [setting._asdict() for setting in settings], "store": store})
        return
    rows = [(s.name, HIDDEN if s.value == HIDDEN else repr(s.value), s.origin) for s in settings]
    print_table(("SETTING", "VALUE", "ORIGIN"), [*rows, ("(the store in use)", store, "")])
