"""What the commands share: the application's state, options, and errors in one line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from flask import current_app
from flask.cli import with_appcontext

from ..errors import IdempotenceError, StoreError, StoreNotReady
from ..request.proxies import actual
from .output import aside

if TYPE_CHECKING:
    from flask import Flask

    from ..extension import State
    from ..stores.sql import SqlStore

P = ParamSpec("P")
R = TypeVar("R")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
yes = click.option("--yes", is_flag=True, help="Do it without asking.")


def the_app() -> Flask:
    """Return the application on whose behalf a command runs."""
    return actual(current_app)


def the_state() -> State:
    """Return what belongs to that application; says so where nobody else sees its store."""
    state: State = the_app().extensions["idempotence"]
    if not state.store.shared and not the_app().testing:
        aside(
            "Claims are kept in the memory of each process: this command sees its own, which is "
            "empty, and not those of the running workers."
        )
    return state


def the_sql_store() -> SqlStore:
    """Return the application's store, which must be one in a table."""
    store: Any = the_app().extensions["idempotence"].store
    if not hasattr(store, "create_table"):
        raise click.ClickException(
            f"This is for a store in a database, and IDEMPOTENCE_STORAGE_URI names another "
            f"({type(store).__name__}): there is nothing to do."
        )
    return store  # type: ignore[no-any-return]  # SqlStore itself is an extra


def tool(name: str) -> Callable[[Callable[P, R]], click.Command]:
    """Make a command that runs in the application's context and tells errors in one line."""

    def decorate(function: Callable[P, R]) -> click.Command:
        @functools.wraps(function)
        def plainly(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except StoreNotReady as error:
                raise click.ClickException(error.remedy) from None
            except StoreError as error:
                raise click.ClickException(
                    f"The store does not answer ({kind_of(error)}). Start it, or correct "
                    "IDEMPOTENCE_STORAGE_URI; 'flask idempotence doctor' looks closer."
                ) from None
            except IdempotenceError as error:
                raise click.ClickException(str(error)) from None

        command: Any = click.command(name)(with_appcontext(plainly))
        return command  # type: ignore[no-any-return]  # click's own types differ by release

    return decorate


def kind_of(error: StoreError) -> str:
    """Return what kind of error it is: its text may hold an address."""
    kind = str(error).partition(":")[0]
    return kind if kind.isidentifier() else "StoreError"
