"""`flask idempotence release`: let one request run again."""

from __future__ import annotations

import logging

import click
from flask.cli import with_appcontext

from ..request.hashing import SHORT_HASH
from ..stores.base import Outcome, inspectable
from .context import this_state
from .inspect import find, request_arguments, show
from .keyspace import Found
from .output import print_aside

_logger = logging.getLogger("flask_idempotence")

_CONSEQUENCES = {
    "live": "Its view may be running, and is not stopped: the next such request runs it a second "
    "time.",
    "ended": "Its view died, at an unknown point: the next such request runs it a second time.",
    "record": "Its view has run: the next such request runs it a second time.",
}


@click.command("release")
@request_arguments
@click.option("--record", is_flag=True, help="Also forget a remembered response.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_appcontext
def command(
    *, record: bool, yes: bool, digest: str | None, method: str, **named: str | None
) -> None:
    """Release a request, so that it may be sent again.

    Name it as in 'inspect'. A claim is removed only if it is still the one that was shown; a
    remembered response stays, unless you give --record.

    An operation of once, named by --scope and --id, is released without --record once it is done.
    A running one is not released.

    The consequence: the guard forgets that the request was ever sent. If its view is still
    running, or did half of its work, the same request runs it a SECOND TIME. Find out first.
    """
    state = this_state()
    found = find(state, digest=digest, method=method, **named)
    name, entry = chosen = _single(found)
    if named["scope"] is None:
        _check_kind(chosen.state, record=record)
    elif chosen.state != "record":
        raise click.ClickException(
            "It is running, and only its owner may end it. If you are sure that its process died, "
            f"release it by its hash, {name.digest[:SHORT_HASH]}."
        )
    show(found)
    print_aside(_CONSEQUENCES[chosen.state])
    if not yes:
        click.confirm("Release it?", abort=True, err=True)
    if inspectable(state.store).discard([(name.key, entry)]) == [Outcome.STALE]:
        raise click.ClickException("It changed in the meantime, and was not released. Inspect it.")
    place = (name.mode, name.endpoint, name.digest[:SHORT_HASH])
    _logger.info("Released by hand: mode=%s endpoint=%s key=%s", *place)
    print_aside("Released.")


def _single(found: list[Found]) -> Found:
    if not found:
        raise click.ClickException("The store has no such entry; there is nothing to release.")
    if len(found) > 1:
        show(found)
        raise click.ClickException("Several keys begin with these digits. Give more of the hash.")
    return found[0]


def _check_kind(kind: str, *, record: bool) -> None:
    if kind == "record" and not record:
        raise click.ClickException(
            "The request was carried out, and its response is remembered. To forget that, and let "
            "it run again, add --record."
        )
    if kind not in _CONSEQUENCES:
        raise click.ClickException(f"Not a claim, but: {kind}. 'purge' removes such entries.")
