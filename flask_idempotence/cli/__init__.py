"""`flask idempotence`: commands for operators.

Their modules are imported when a command is called, and not in every worker. The extension alone
imports this wing.
"""

from __future__ import annotations

import importlib

import click
from flask.cli import with_appcontext

from ..errors import IdempotenceError

MODULES = ("doctor", "entries", "request", "routes")  # they define the commands


class LazyGroup(click.Group):
    """Group that imports its commands on demand, and prints an error of theirs in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        for name in MODULES:
            for each in vars(importlib.import_module(f".{name}", __package__)).values():
                if isinstance(each, click.Command):
                    self.add_command(each)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        from .causes import text_of  # noqa: PLC0415 - no worker needs it

        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise click.UsageError(text_of(error), error.ctx) from None
        except (click.ClickException, IdempotenceError) as error:
            raise click.ClickException(text_of(error)) from None


@click.group("idempotence", cls=LazyGroup)
@with_appcontext
def tools() -> None:
    """Inspect and maintain the store of Flask-Idempotence, and check the deployment.

    A terminal gets tables. In a pipe, each row is one line of tab-separated columns, without a
    heading; --json prints JSON. NO_COLOR is honoured.
    """
