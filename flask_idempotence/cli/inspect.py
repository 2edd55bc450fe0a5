"""`flask idempotence inspect`: what the store holds for one request."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..engine.claim import Attempt
from ..guards.key import name_store_key
from ..request.hashing import SHORT_HASH
from ..request.key_header import parse_key
from ..response.refusals import KeyInvalid
from .common import as_json, the_app, the_state, tool
from .keyspace import Digest, Found, Name, look, names, state_of
from .output import in_terminal, print_json, progress, table

if TYPE_CHECKING:
    from ..extension import State

MEANINGS = {
    "live": "A view runs, or has died less than a lease ago, or a lock's interval is not over.",
    "ended": "The process died in the view. Repeats get 409 outcome-unknown until this expires.",
    "record": "The request was carried out, and its response is remembered for repeats.",
    "token": "This token was issued and is not spent.",
    "unknown": "This is nothing that Flask-Idempotence has written.",
}


def which(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that say which request is meant."""
    for option in (
        click.option("--method", default="POST", show_default=True, help="The request's method."),
        click.option("--key", help="The idempotency key that the client sent; - asks for it."),
        click.option(
            "--identity",
            help="Who sent it, such as 'shop.example ip:192.0.2.1'; - asks for it.",
        ),
        click.option("--endpoint", help="The endpoint of the view."),
        click.argument("digest", metavar="[HASH]", type=Digest(), required=False),
    ):
        function = option(function)
    return function


def find(state: State, *, digest: str | None, **named: str | None) -> list[Found]:
    """Return what is meant, by the beginning of its hash or by what it is made of.

    Raises:
        UsageError: neither is given in full.
    """
    given = {option for option in ("endpoint", "identity", "key") if named[option] is not None}
    if digest is not None and not given:
        return _by_digest(state, digest)
    if digest is None and len(given) == 3:
        return _by_name(state, **{option: value or "" for option, value in named.items()})
    raise click.UsageError(
        "Give the hash that a log line shows as key=..., or --endpoint, --identity and --key."
    )


def _by_digest(state: State, digest: str) -> list[Found]:
    store = state.store
    with progress("Searching", store.count_all()) as bar:
        found = [
            name for name in names(store, state.config, bar) if name.digest.startswith(digest)
        ]
    unique = {name.key: name for name in found}  # a scan may name a key twice
    return [each for batch in look(store, iter(unique.values())) for each in batch]


def _by_name(state: State, *, endpoint: str, identity: str, key: str, method: str) -> list[Found]:
    attempt = Attempt(the_app(), "key", endpoint)
    identity, key = _asked_for("Identity", identity), _asked_for("Key", key)
    with contextlib.suppress(KeyInvalid):  # a function of the application's may find other keys
        key = parse_key(key)
    store_key = name_store_key(state.engine, attempt, identity, method.upper(), key)
    name = Name(store_key, "key", endpoint, store_key.rpartition(":")[2])
    return [each for batch in look(state.store, iter([name])) for each in batch]


def _asked_for(what: str, value: str) -> str:
    # Arguments are seen by everybody on the machine, and an identity may be a credential.
    if value != "-":
        return value
    if sys.stdin.isatty():
        answer: str = click.prompt(what, hide_input=True, err=True)
        return answer
    return sys.stdin.readline().rstrip("\r\n")


def show(found: list[Found]) -> None:
    """Print what was found as a table."""
    table(
        ("KEY", "MODE", "ENDPOINT", "HOLDS", "LEASE LEFT", "EXPIRES IN", "BYTES"),
        [tuple(row.values()) for row in map(described, found)],
    )


def described(found: Found) -> dict[str, Any]:
    """Describe one entry."""
    name, entry = found
    return {
        "key": name.digest[:SHORT_HASH],
        "mode": name.mode,
        "endpoint": name.endpoint,
        "holds": state_of(entry),
        "lease_left": "" if entry.lease is None else round(entry.lease, 1),
        "expires_in": round(entry.expires_in, 1),
        "bytes": entry.size,
    }


@tool("inspect")
@which
@as_json
def command(*, as_json: bool, **named: Any) -> None:
    """Show what the store holds for a request.

    The request is named by the HASH in a log line (key=...), six digits or more; or, if it came
    with an idempotency key, by --endpoint, --identity and --key.

    Times are in seconds. Nothing that is shown tells who sent the request, or what.
    """
    found = find(the_state(), **named)
    if as_json:
        rows = [described(each) for each in found]
        print_json(
            [row | {"lease_left": each[1].lease} for row, each in zip(rows, found, strict=True)]
        )
    if not found:
        raise click.ClickException(
            "The store holds nothing by that name: it has expired, or was "
            "released, or belongs to another prefix or secret."
        )
    if as_json:
        return
    show(found)
    if in_terminal():
        for state in dict.fromkeys(state_of(entry) for _, entry in found):
            click.echo(f"{state}: {MEANINGS[state]}")
