"""`flask idempotence config`: show the settings in force."""

from __future__ import annotations

from collections.abc import Mapping

import click
from flask.cli import with_appcontext

from ..config.settings import SETTINGS
from .context import as_json, state_of, this_app
from .output import print_json, print_table

HIDDEN = "(hidden)"


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
def config(*, as_json: bool) -> None:
    """Show the settings in force.

    The origin shows which of them were set.

    Secrets are hidden: keys, options of the store, and all of its URI but the scheme.
    """
    state, settings = state_of(this_app()), []
    for name, field in SETTINGS.items():
        live = field.metadata["live"]
        value = this_app().config[name] if live else getattr(state.config, field.name)
        is_set = name in state.given or (live and value != field.default)
        shown = json_value(value)
        if is_set and field.metadata["secret"]:
            # A URI's scheme names the kind of store; the rest may hold a password and an address.
            scheme, separator, _ = str(value).partition("://")
            is_uri = name == "IDEMPOTENCE_STORAGE_URI" and separator
            shown = f"{scheme}://{HIDDEN}" if is_uri else HIDDEN
        settings.append((name, shown, "set" if is_set else "default"))
    store = type(state.store).__name__
    if as_json:
        named = [dict(zip(("name", "value", "origin"), row, strict=True)) for row in settings]
        print_json({"settings": named, "store": store})
        return
    rows = [(name, v if v == HIDDEN else repr(v), origin) for name, v, origin in settings]
    print_table(("SETTING", "VALUE", "ORIGIN"), [*rows, ("(the store in use)", store, "")])
