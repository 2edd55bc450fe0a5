"""`flask idempotence config`: the settings in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..config.settings import SETTINGS
from .common import as_json, the_app, tool
from .output import print_json, table

if TYPE_CHECKING:
    from ..extension import State

HIDDEN = "(hidden)"


def effective(state: State, values: Any) -> list[dict[str, Any]]:
    """Return every setting with its value in force and where that comes from.

    Args:
        state: what belongs to the application.
        values: the application's configuration, in which the toggles may be flipped at any time.
    """
    settings = []
    for name, field in SETTINGS.items():
        live, secret = field.metadata["live"], field.metadata["secret"]
        value = values[name] if live else getattr(state.config, field.name)
        is_set = name in state.given
        if live and value != field.default:
            is_set = True
        settings.append(
            {
                "name": name,
                "value": _shown(name, value, secret=secret and is_set),
                "origin": "set" if is_set else "default",
            }
        )
    return settings


def _shown(name: str, value: Any, *, secret: bool) -> Any:
    if secret:
        # A URI's scheme tells which store it is; the rest may hold a password and an address.
        scheme = value.partition("://")[0] if name == "IDEMPOTENCE_STORAGE_URI" else ""
        return f"{scheme}://{HIDDEN}" if scheme else HIDDEN
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return dict(value)
    return _text_of(value)


def _text_of(message: Any) -> str:
    try:
        return str(message)
    except Exception:  # noqa: BLE001 - a lazy translation may need a request
        return f"({type(message).__name__})"


@tool("config")
@as_json
def command(*, as_json: bool) -> None:
    """Show the settings in force.

    The origin tells which of them were set.

    Secrets are hidden: keys, options of the store, and all of its URI but the scheme.
    """
    app = the_app()
    state: State = app.extensions["idempotence"]
    settings, store = effective(state, app.config), type(state.store).__name__
    if as_json:
        print_json({"settings": settings, "store": store})
        return
    rows = [(row["name"], _written(row["value"]), row["origin"]) for row in settings]
    table(("SETTING", "VALUE", "ORIGIN"), [*rows, ("(the store in use)", store, "")])


def _written(value: Any) -> str:
    return value if value == HIDDEN else repr(value)
