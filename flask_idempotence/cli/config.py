"""`flask idempotence config`: show the settings in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from flask.cli import with_appcontext

from ..config.settings import SETTINGS
from .context import as_json, this_app
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..extension import State

HIDDEN = "(hidden)"


def _settings(state: State, current: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    """Return the value of each setting and its origin; toggles are read from `current`."""
    settings = {}
    for name, field in SETTINGS.items():
        live, secret = field.metadata["live"], field.metadata["secret"]
        value = current[name] if live else getattr(state.config, field.name)
        is_set = name in state.given or (live and value != field.default)
        shown = _hidden(name, value) if secret and is_set else _json_value(value)
        settings[name] = shown, "set" if is_set else "default"
    return settings


def _hidden(name: str, value: object) -> str:
    # A URI's scheme names the kind of store; the rest may hold a password and an address.
    scheme, separator, _ = str(value).partition("://")
    is_uri = name == "IDEMPOTENCE_STORAGE_URI" and separator
    return f"{scheme}://{HIDDEN}" if is_uri else HIDDEN


def _json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return dict(value)
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
    app = this_app()
    state: State = app.extensions["idempotence"]
    settings, store = _settings(state, app.config), type(state.store).__name__
    if as_json:
        rows = [
            {"name": name, "value": value, "origin": origin}
            for name, (value, origin) in settings.items()
        ]
        print_json({"settings": rows, "store": store})
        return
    shown = [
        (name, HIDDEN if value == HIDDEN else repr(value), origin)
        for name, (value, origin) in settings.items()
    ]
    print_table(("SETTING", "VALUE", "ORIGIN"), [*shown, ("(the store in use)", store, "")])
