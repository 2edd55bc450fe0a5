"""`flask idempotence inspect`: show the entry of one request."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import click
from flask.cli import with_appcontext

from ..errors import ConfigurationError
from ..guards.key import name_of
from ..guards.operation import OnceGuard, checked_scope
from ..request.hashing import SHORT_HASH
from ..request.key_header import parse_key
from ..response.refusals import KeyInvalid
from ..stores.base import inspectable
from .context import State, as_json, this_app, this_state
from .keyspace import Found, Name, peek, scan
from .output import in_terminal, print_json, print_table

F = TypeVar("F", bound=Callable[..., object])

MEANINGS = {
    "live": "The view runs, or died less than a lease ago, or a lock's interval is not over.",
    "ended": "The process died in its view. Repeats get 409 outcome-unknown until this expires.",
    "record": "The request was carried out, and its response is remembered for repeats.",
    "token": "This token was issued and is not spent.",
    "unknown": "This value was not written by Flask-Idempotence.",
}

_DIGITS = re.compile(r"[0-9a-f]{6,32}")


def _digits(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    del ctx, param
    digest = value and value.strip().removeprefix("key=").lower()
    if digest is not None and not _DIGITS.fullmatch(digest):
        raise click.BadParameter("give at least six hexadecimal digits of a log line's key=...")
    return digest


def request_arguments(function: F) -> F:
    """Add the arguments that name a request."""
    for option in (
        click.option("--method", default="POST", show_default=True, help="The request's method."),
        click.option("--key", help="The client's idempotency key; - prompts for it."),
        click.option(
            "--identity", help="The sender, such as 'shop.example ip:192.0.2.1'; - prompts for it."
        ),
        click.option("--endpoint", help="The endpoint of the view."),
        click.option("--scope", help="The scope of an operation of once."),
        click.option("--id", help="The operation's id, a string; - prompts for it."),
        click.option(
            "--id-json",
            help='The id as JSON: 7, an integer; [7, "monday"], a tuple; {"uuid": "..."}, a UUID.',
        ),
        click.argument("digest", metavar="[HASH]", callback=_digits, required=False),
    ):
        function = option(function)
    return function


def find(state: State, *, digest: str | None, method: str, **named: str | None) -> list[Found]:
    """Return the entries with the first digits of a hash, of a keyed request, or of an operation.

    Raises:
        UsageError: neither is given in full.
    """
    given = {option: value for option, value in named.items() if value is not None}
    if digest is not None and not given:
        batches = scan(state, "Searching", mode=None, endpoint=None, digest=digest)
        return list({found.name.key: found for batch in batches for found in batch}.values())
    if digest is None and given.keys() == {"endpoint", "identity", "key"}:
        return peek(inspectable(state.store), [_name_of(state, method=method, **given)])
    if digest is None and given.keys() in ({"scope", "id"}, {"scope", "id_json"}):
        return peek(inspectable(state.store), [_operation(state, **given)])
    raise click.UsageError(
        "Give the hash that a log line shows as key=..., or --endpoint, --identity and --key, or "
        "--scope and --id (or --id-json)."
    )


def _name_of(state: State, *, endpoint: str, identity: str, key: str, method: str) -> Name:
    identity, key = _prompted("Identity", identity), _prompted("Key", key)
    with contextlib.suppress(KeyInvalid):  # an application's own function may take other keys
        key = parse_key(key)
    name = name_of(identity, method.upper(), endpoint, key)
    store_key = state.engine.services.keyring.store_key(this_app(), "key", endpoint, name)
    return Name(store_key, "key", endpoint, store_key.rpartition(":")[2])


def _operation(state: State, *, scope: str, **given: str) -> Name:
    id_ = _prompted("Id", given["id"]) if "id" in given else _from_json(given["id_json"])
    try:
        plan = OnceGuard().plan(state.engine.services, None)
        question = plan.question_of(checked_scope("once", scope), id_)
    except (ConfigurationError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    store_key = state.engine.services.keyring.store_key(
        this_app(), OnceGuard.mode, scope, question.name
    )
    return Name(store_key, OnceGuard.mode, scope, store_key.rpartition(":")[2])


def _from_json(text: str) -> object:
    try:
        return _as_id(json.loads(_prompted("Id", text)))
    except (ValueError, RecursionError):
        raise click.UsageError("--id-json: not an id in JSON.") from None


def _as_id(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_as_id, value))
    if isinstance(value, dict) and value.keys() == {"uuid"}:
        return UUID(str(value["uuid"]))
    return value


def _prompted(label: str, value: str) -> str:
    # Every user of the machine sees arguments, and an identity may be a credential.
    if value != "-":
        return value
    if sys.stdin.isatty():
        answer: str = click.prompt(label, hide_input=True, err=True)
        return answer
    return sys.stdin.readline().rstrip("\r\n")


def show(found: list[Found]) -> None:
    """Print entries as a table."""
    header = ("KEY", "MODE", "ENDPOINT", "HOLDS", "LEASE LEFT", "EXPIRES IN", "BYTES")
    rows = [_row(each).values() for each in found]
    print_table(header, [["" if cell is None else cell for cell in row] for row in rows])


def _row(found: Found) -> dict[str, str | float | None]:
    name, entry = found
    return {
        "key": name.digest[:SHORT_HASH],
        "mode": name.mode,
        "endpoint": name.endpoint,
        "holds": found.state,
        "lease_left": entry.lease,
        "expires_in": round(entry.expires_in, 1),
        "bytes": entry.size,
    }


@click.command("inspect")
@request_arguments
@as_json
@with_appcontext
def command(*, as_json: bool, digest: str | None, method: str, **named: str | None) -> None:
    """Show the entry of a request.

    The request is named by the HASH in a log line (key=...), six digits or more; or, if it came
    with an idempotency key, by --endpoint, --identity and --key. An operation of once is named by
    --scope and --id (or --id-json).

    Times are in seconds. The output shows neither the sender nor the content of the request.
    """
    found = find(this_state(), digest=digest, method=method, **named)
    if as_json:
        print_json([_row(each) for each in found])
    if not found:
        raise click.ClickException(
            "The store has no such entry: it expired, was released, or belongs to another prefix "
            "or secret."
        )
    if as_json:
        return
    show(found)
    if in_terminal():
        for state in dict.fromkeys(each.state for each in found):
            click.echo(f"{state}: {MEANINGS[state]}")
