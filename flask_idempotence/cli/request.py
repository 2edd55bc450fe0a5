"""`flask idempotence inspect` and `release`: show the entry of one request, or remove it."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import time
from uuid import UUID

import click

from ..engine.engine import Engine
from ..engine.guard import MODES, Guard
from ..errors import ConfigurationError
from ..guards.blocks import name_of as name_of_block
from ..guards.key import KeyGuard, name_of
from ..guards.once import OnceGuard, checked_scope, forget_steps
from ..request.key_header import parse_key
from ..response.refusals import KeyInvalid, Running
from ..stores.base import Outcome, inspectable
from .entries import Found, scan, this_engine
from .output import as_json, echo, escaped, in_terminal, print_aside, print_json, print_table

_logger = logging.getLogger("flask_idempotence")

_MEANINGS = {
    "live": "The view runs, or died less than a lease ago.",
    "held": "Its view runs, or died less than a lease ago, or its interval is not over.",
    "ended": "The process died in its view. Repeats get 409 outcome-unknown until this expires.",
    "record": "The request was carried out, and its response is remembered for repeats.",
    "token": "This token was issued and is not spent.",
    "unknown": "This value was not written by Flask-Idempotence.",
}

_CONSEQUENCES = {
    "live": "Its view may be running, and is not stopped",
    "ended": "Its view died, at an unknown point",
    "record": "Its view has run",
}

# The host of such an identity has no port.
_WITHOUT_PORT = re.compile(r"(\[[^]]*\]|[^\s:/\[]+)[/ ].")


def _digits(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    digest = value and value.strip().removeprefix("key=").lower()
    if digest is not None and not re.fullmatch("[0-9a-f]{6,32}", digest):
        raise click.BadParameter("give at least six hexadecimal digits of a log line's key=...")
    return digest


_NAMING = (
    click.Argument(["digest"], metavar="[HASH]", callback=_digits, required=False),
    click.Option(
        ["--id-json"],
        help='The id as JSON: 7, an integer; [7, "monday"], a tuple; {"uuid": "..."}, a UUID.',
    ),
    click.Option(["--id"], help="The operation's id, a string; - prompts for it."),
    click.Option(["--scope"], help="The scope of an operation of once."),
    click.Option(["--endpoint"], help="The endpoint of the view."),
    click.Option(
        ["--identity"], help="The sender, such as 'shop.example ip:192.0.2.1'; - prompts for it."
    ),
    click.Option(["--key"], help="The client's idempotency key; - prompts for it."),
    click.Option(["--method"], default="POST", show_default=True, help="The request's method."),
)


def _find(
    engine: Engine, method: str, named: dict[str, str | None], besides: str = ""
) -> list[Found]:
    """Return the entries of a hash (by its first digits), a keyed request, or an operation."""
    given = {option: value for option, value in named.items() if value is not None}
    if given.keys() == {"digest"}:
        scanned = scan(engine, digest=given["digest"])
        return list({each.key: each for each in scanned}.values())
    if given.keys() == {"endpoint", "identity", "key"}:
        identity, key = _prompted("Identity", given["identity"]), _prompted("Key", given["key"])
        with contextlib.suppress(KeyInvalid):  # an application's own function may take other keys
            key = parse_key(key)
        endpoint = given["endpoint"]
        name = name_of(identity, method.upper(), endpoint, key)
        found = _find_named(engine, KeyGuard.mode, endpoint, name)
        if not found and _WITHOUT_PORT.match(identity):
            print_aside(
                "The host of an identity has its port, as in 'localhost:5000 ip:...', unless that "
                "is 80 for HTTP or 443 for HTTPS."
            )
        return found
    if given.keys() in ({"scope", "id"}, {"scope", "id_json"}):
        name = _operation_name(given["scope"], given.get("id"), given.get("id_json"))
        return _find_named(engine, OnceGuard.mode, given["scope"], name)
    raise click.UsageError(
        f"Give {besides}the hash that a log line shows as key=..., or --endpoint, --identity and "
        "--key, or --scope and --id (or --id-json)."
    )


def _find_named(engine: Engine, mode: str, place: str, name: bytes) -> list[Found]:
    services = engine.services
    key = services.keyring.store_key(services.app, mode, place, name)
    entry = inspectable(engine.store).peek(key)
    return [Found(key, mode, place, entry)] if entry else []


def _find_running(engine: Engine, endpoint: str | None, age: float) -> list[Found]:
    """Return the claims that are live, the oldest first; one of unknown age counts as older."""
    found, until = scan(engine, endpoint=endpoint), time.time() - age
    live = {each.key: each for each in found if each.state == "live"}
    older = [each for each in live.values() if each.began <= until or not age]
    return sorted(older, key=lambda each: (each.began, each.key))


def _operation_name(scope: str, id_: str | None, id_json: str | None) -> bytes:
    given = _prompted("Id", id_ or id_json or "")
    try:
        value = _as_id(json.loads(given)) if id_ is None else given
        return name_of_block("once", checked_scope("once", scope), id=value)
    except (ValueError, RecursionError):
        raise click.UsageError("--id-json: not an id in JSON.") from None
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
        return str(click.prompt(label, hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _row(found: Found) -> dict[str, str | float | None]:
    # The claim of a lock may only wait for its interval.
    is_held = found.state == "live" and MODES.get(found.mode, Guard).outlasts_view
    return {
        "key": found.short,
        "mode": found.mode,
        "endpoint": found.endpoint,
        "holds": "held" if is_held else found.state,
        "age": round(max(0.0, time.time() - found.began), 1) if found.began else None,
        "lease_left": found.entry.lease,
        "expires_in": round(found.entry.expires_in, 1),
        "bytes": found.entry.size,
    }


@click.command("inspect", params=[*_NAMING])
@click.option("--running", is_flag=True, help="All claims that are held now, the oldest first.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Of these, only those that began so long ago.",
)
@as_json
def inspect(
    *, running: bool, older_than: float | None, as_json: bool, method: str, **named: str | None
) -> None:
    """Show the entry of a request, or all claims that are held now.

    The request is named by the HASH in a log line (key=...), six digits or more; or, if it came
    with an idempotency key, by --endpoint, --identity and --key. An operation of once is named by
    --scope and --id (or --id-json).

    With --running, all claims are listed, or those of --endpoint.

    Times are in seconds. The output shows neither the sender nor the content of the request.
    """
    given = {name for name, value in named.items() if value is not None}
    if running:
        if given - {"endpoint"}:
            raise click.UsageError("--running lists all claims, or those of --endpoint.")
        found = _find_running(this_engine(), named["endpoint"], older_than or 0.0)
    elif older_than is not None:
        raise click.UsageError("--older-than belongs to --running.")
    else:
        found = _find(this_engine(), method, named, "--running for all held claims, or ")
    rows = [_row(each) for each in found]
    if as_json:
        print_json(rows)
    if running and not found:
        print_aside("No claim is held.")
    elif not found:
        raise click.ClickException(
            "The store has no such entry: it expired, was released, or belongs to another prefix "
            "or secret."
        )
    elif not as_json:
        print_table(rows)
        if in_terminal():
            for holds in dict.fromkeys(str(row["holds"]) for row in rows):
                echo(f"{holds}: {_MEANINGS[holds]}")


@click.command("release", params=[*_NAMING])
@click.option("--record", is_flag=True, help="Also forget a remembered response.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def release(*, record: bool, yes: bool, method: str, **named: str | None) -> None:
    """Release a request, so that it may be sent again.

    Name it as in 'inspect'. A claim is removed only if it is still the one that was shown; a
    remembered response stays, unless you give --record.

    An operation of once, named by --scope and --id, is released without --record once it is done.
    A running one is not released. With a record, those of its steps are forgotten, too.

    The consequence: the guard forgets that the request was ever sent. If its view is still
    running, or did half of its work, the same request runs it a SECOND TIME. Find out first.
    """
    engine = this_engine()
    found = _find(engine, method, named)
    # The hash of an operation finds its steps, too.
    found = [each for each in found if each.mode != "step"] or found
    chosen = _releasable(found, record=record, by_scope=named["scope"] is not None)
    print_table([_row(chosen)])
    print_aside(f"{_CONSEQUENCES[chosen.state]}: the next such request runs it a second time.")
    if not yes:
        click.confirm("Release it?", abort=True, err=True)
    if chosen.state == "record" and chosen.mode != "step":
        try:
            forget_steps(engine, chosen.key)
        except Running:
            raise click.ClickException("One of its steps is running. Inspect it.") from None
    if inspectable(engine.store).discard([(chosen.key, chosen.entry)]) == [Outcome.STALE]:
        raise click.ClickException("It changed in the meantime, and was not released. Inspect it.")
    place = (escaped(chosen.mode), escaped(chosen.endpoint), chosen.short)
    _logger.info("Released by hand: mode=%s endpoint=%s key=%s", *place)
    print_aside("Released.")


def _releasable(found: list[Found], *, record: bool, by_scope: bool) -> Found:
    if not found:
        raise click.ClickException("The store has no such entry; there is nothing to release.")
    if len(found) > 1:
        print_table([_row(each) for each in found])
        raise click.ClickException("There are several. Give more of the hash.")
    [chosen] = found
    if by_scope and chosen.state != "record":
        raise click.ClickException(
            "It is running, and only its owner may end it. If you are sure that its process died, "
            f"release it by its hash, {chosen.short}."
        )
    if chosen.state == "record" and not (record or by_scope):
        raise click.ClickException(
            "The request was carried out, and its response is remembered. To forget that, and let "
            "it run again, add --record."
        )
    if chosen.state not in _CONSEQUENCES:
        raise click.ClickException(
            f"Not a claim, but: {chosen.state}. 'purge' removes such entries."
        )
    return chosen
