"""`flask idempotence release`: give a request free by hand."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from ..request.hashing import SHORT_HASH
from ..stores.base import Outcome
from .common import the_state, tool, yes
from .inspecting import find, show, which
from .keyspace import Found, state_of

if TYPE_CHECKING:
    from ..extension import State

_logger = logging.getLogger("flask_idempotence")

_CONSEQUENCES = {
    "live": "Its view may be running now, and is not stopped: the next such request runs it a "
    "second time.",
    "ended": "Its view has died, and what it had done is unknown: the next such request runs it a "
    "second time.",
    "record": "Its view has run: the next such request runs it a second time.",
}


@tool("release")
@which
@click.option("--record", is_flag=True, help="Also forget a remembered response.")
@yes
def command(*, record: bool, yes: bool, **named: Any) -> None:
    """Give a request free to be sent again.

    It is named as in 'inspect'. A claim is removed only if it is still the one that was looked at;
    a remembered response stays, unless --record is given.

    What it means: the guard forgets that the request was ever sent. If its view is still running,
    or has done half of its work, the same request runs it a SECOND TIME. Find out first.
    """
    state = the_state()
    found = find(state, **named)
    chosen = _the_only(found)
    what = state_of(chosen[1])
    _check(what, record=record)
    show(found)
    click.echo(_CONSEQUENCES[what], err=True)
    if not yes:
        click.confirm("Release it?", abort=True, err=True)
    _release(state, chosen)
    click.echo("Released.", err=True)


def _the_only(found: list[Found]) -> Found:
    if not found:
        raise click.ClickException("The store holds nothing by that name: there is no need to.")
    if len(found) > 1:
        show(found)
        raise click.ClickException("These are several. Give more digits of the hash.")
    return found[0]


def _check(what: str, *, record: bool) -> None:
    if what == "record" and not record:
        raise click.ClickException(
            "The request was carried out, and its response is remembered. To forget that, and let "
            "it run again, add --record."
        )
    if what not in _CONSEQUENCES:
        raise click.ClickException(f"This is a {what}, and no claim. 'purge' removes others.")


def _release(state: State, chosen: Found) -> None:
    name, entry = chosen
    if state.store.discard([(name.key, entry)]) == [Outcome.STALE]:
        raise click.ClickException("It has changed meanwhile, and was left alone. Look again.")
    _logger.info(
        "Released by hand: mode=%s endpoint=%s key=%s",
        name.mode,
        name.endpoint,
        name.digest[:SHORT_HASH],
    )
