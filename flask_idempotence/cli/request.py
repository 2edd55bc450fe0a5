"""`flask idempotence inspect` and `release`: show the entry of one request, or remove it."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import click
from flask.cli import with_appcontext

from ..errors import ConfigurationError
from ..guards.blocks import name_of as name_of_block
from ..guards.key import KeyGuard, name_of
from ..guards.once import OnceGuard, checked_scope, forget_steps
from ..request.key_header import parse_key
from ..response.refusals import KeyInvalid, Running
from ..stores.base import Outcome, inspectable
from .context import BATCH, Found, State, as_json, peek, scan, this_app, this_state
from .output import echo, escaped, in_terminal, print_aside, print_json, print_table

_logger = logging.getLogger("flask_idempotence")

F = TypeVar("F", bound=Callable[..., object])

_MEANINGS = {
    "live": "The view runs, or died less than a lease ago.",
    "held": "A lock: its view runs, or died less than a lease ago, or its interval is not over.",
    "ended": "The process died in its view. Repeats get 409 outcome-unknown until this expires.",
    "record": "The request was carried out, and its response is remembered for repeats.",
    "token": "This token was issued and is not spent.",
    "unknown": "This value was not written by Flask-Idempotence.",
}

_CONSEQUENCES = {
    "live": "Its view may be running, and is not stopped: the next such request runs it a second "
    "time.",
    "ended": "Its view died, at an unknown point: the next such request runs it a second time.",
    "record": "Its view has run: the next such request runs it a second time.",
}

_HOST = re.compile(r"(\[[^]]*\]|[^\s:/\[]+)([/ ].+)", re.DOTALL)
"""An identity with a host that has no port, and the rest."""

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


def _find(state: State, *, digest: str | None, method: str, **named: str | None) -> list[Found]:
    """Return the entries with the first digits of a hash, of a keyed request, or of an operation.

    Raises:
        UsageError: neither is given in full.
    """
    given = {option: value for option, value in named.items() if value is not None}
    if digest is not None and not given:
        batches = scan(state, "Searching", digest=digest)
        return list({found.key: found for batch in batches for found in batch}.values())
    if digest is None and given.keys() == {"endpoint", "identity", "key"}:
        identity, key = _prompted("Identity", given["identity"]), _prompted("Key", given["key"])
        with contextlib.suppress(KeyInvalid):  # an application's own function may take other keys
            key = parse_key(key)
        return _find_keyed(state, identity, method.upper(), given["endpoint"], key)
    if digest is None and given.keys() in ({"scope", "id"}, {"scope", "id_json"}):
        name = _operation_name(given["scope"], given.get("id"), given.get("id_json"))
        return _find_named(state, OnceGuard.mode, given["scope"], [name])
    raise click.UsageError(
        "Give the hash that a log line shows as key=..., or --endpoint, --identity and --key, "
        "or --scope and --id (or --id-json)."
    )


def _find_keyed(state: State, identity: str, *rest: str) -> list[Found]:
    """Return the entry of a keyed request; where the host has no port, of any port."""
    endpoint = rest[1]
    if found := _find_named(state, KeyGuard.mode, endpoint, [name_of(identity, *rest)]):
        return found
    if (host := _HOST.fullmatch(identity)) is None:
        return []
    names = [name_of(f"{host[1]}:{port}{host[2]}", *rest) for port in range(1, 1 << 16)]
    if found := _find_named(state, KeyGuard.mode, endpoint, names):
        print_aside(
            "Found at a host with a port: an identity has it, as in 'localhost:5000 ip:...'."
        )
    return found


def _find_named(state: State, mode: str, place: str, names: list[bytes]) -> list[Found]:
    keyring, app, found = state.engine.services.keyring, this_app(), []
    for first in range(0, len(names), BATCH):
        keys = [keyring.store_key(app, mode, place, name) for name in names[first : first + BATCH]]
        batch = [(key, mode, place, key.rpartition(":")[2]) for key in keys]
        found += peek(inspectable(state.store), batch)
    return found


def _find_running(state: State, endpoint: str | None, age: float) -> list[Found]:
    """Return the claims that are live, the oldest first; one of unknown age counts as older."""
    batches, until = scan(state, "Searching", endpoint=endpoint), time.time() - age
    live = {each.key: each for batch in batches for each in batch if each.state == "live"}
    found = (each for each in live.values() if (each.began or 0.0) <= until or not age)
    return sorted(found, key=lambda each: (each.began or 0.0, each.key))


def _operation_name(scope: str, id_: str | None, id_json: str | None) -> bytes:
    given = _prompted("Id", id_ or id_json or "")
    try:
        value = _as_id(json.loads(given)) if id_ is None else given
    except (ValueError, RecursionError):
        raise click.UsageError("--id-json: not an id in JSON.") from None
    try:
        return name_of_block("once", checked_scope("once", scope), id=value)
    except (ConfigurationError, TypeError) as error:
        raise click.UsageError(str(error)) from None


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


def _row(found: Found) -> dict[str, str | float | None]:
    return {
        "key": found.short,
        "mode": found.mode,
        "endpoint": found.endpoint,
        "holds": found.holds,
        "age": None if found.age is None else round(found.age, 1),
        "lease_left": found.entry.lease,
        "expires_in": round(found.entry.expires_in, 1),
        "bytes": found.entry.size,
    }


def _show(found: list[Found]) -> None:
    header = ("KEY", "MODE", "ENDPOINT", "HOLDS", "AGE", "LEASE LEFT", "EXPIRES IN", "BYTES")
    rows = [_row(each).values() for each in found]
    print_table(header, [["" if cell is None else cell for cell in row] for row in rows])


@click.command("inspect")
@request_arguments
@click.option("--running", is_flag=True, help="All claims that are held now, the oldest first.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Of these, only those that began so long ago.",
)
@as_json
@with_appcontext
def inspect(
    *,
    running: bool,
    older_than: float | None,
    as_json: bool,
    digest: str | None,
    method: str,
    **named: str | None,
) -> None:
    """Show the entry of a request, or all claims that are held now.

    The request is named by the HASH in a log line (key=...), six digits or more; or, if it came
    with an idempotency key, by --endpoint, --identity and --key. An operation of once is named by
    --scope and --id (or --id-json).

    With --running, all claims are listed, or those of --endpoint.

    Times are in seconds. The output shows neither the sender nor the content of the request.
    """
    if running:
        if digest is not None or any(
            named[each] is not None for each in named.keys() - {"endpoint"}
        ):
            raise click.UsageError("--running lists all claims, or those of --endpoint.")
        found = _find_running(this_state(), named["endpoint"], older_than or 0.0)
    elif older_than is not None:
        raise click.UsageError("--older-than belongs to --running.")
    else:
        found = _find(this_state(), digest=digest, method=method, **named)
    if as_json:
        print_json([_row(each) for each in found])
    if running and not found:
        print_aside("No claim is held.")
    elif not found:
        raise click.ClickException(
            "The store has no such entry: it expired, was released, or belongs to another prefix "
            "or secret."
        )
    if as_json:
        return
    _show(found)
    if in_terminal():
        for holds in dict.fromkeys(each.holds for each in found):
            echo(f"{holds}: {_MEANINGS[holds]}")


@click.command("release")
@request_arguments
@click.option("--record", is_flag=True, help="Also forget a remembered response.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_appcontext
def release(
    *, record: bool, yes: bool, digest: str | None, method: str, **named: str | None
) -> None:
    """Release a request, so that it may be sent again.

    Name it as in 'inspect'. A claim is removed only if it is still the one that was shown; a
    remembered response stays, unless you give --record.

    An operation of once, named by --scope and --id, is released without --record once it is done.
    A running one is not released. With a record, those of its steps are forgotten, too.

    The consequence: the guard forgets that the request was ever sent. If its view is still
    running, or did half of its work, the same request runs it a SECOND TIME. Find out first.
    """
    state = this_state()
    found = _find(state, digest=digest, method=method, **named)
    # The hash of an operation finds its steps, too.
    found = [each for each in found if each.mode != "step"] or found
    if fault := _unreleasable(found, record=record, by_scope=named["scope"] is not None):
        raise click.ClickException(fault)
    [chosen] = found
    _show(found)
    print_aside(_CONSEQUENCES[chosen.state])
    if not yes:
        click.confirm("Release it?", abort=True, err=True)
    if chosen.state == "record" and chosen.mode != "step":
        try:
            forget_steps(state.engine, chosen.key)
        except Running:
            raise click.ClickException("One of its steps is running. Inspect it.") from None
    if inspectable(state.store).discard([(chosen.key, chosen.entry)]) == [Outcome.STALE]:
        raise click.ClickException("It changed in the meantime, and was not released. Inspect it.")
    place = (escaped(chosen.mode), escaped(chosen.endpoint), chosen.short)
    _logger.info("Released by hand: mode=%s endpoint=%s key=%s", *place)
    print_aside("Released.")


def _unreleasable(found: list[Found], *, record: bool, by_scope: bool) -> str | None:
    """Return the reason why the entries are not to be released, if there is one."""
    if not found:
        return "The store has no such entry; there is nothing to release."
    if len(found) > 1:
        _show(found)
        return "There are several. Give more of the hash."
    [chosen] = found
    if by_scope and chosen.state != "record":
        return (
            "It is running, and only its owner may end it. If you are sure that its process died, "
            f"release it by its hash, {chosen.short}."
        )
    if chosen.state == "record" and not (record or by_scope):
        return (
            "The request was carried out, and its response is remembered. To forget that, and let "
            "it run again, add --record."
        )
    if chosen.state not in _CONSEQUENCES:
        return f"Not a claim, but: {chosen.state}. 'purge' removes such entries."
    return None
