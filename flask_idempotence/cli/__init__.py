"""`flask idempotence`: commands for operators.

A command's module is imported when the command is called, and not in every worker. The extension
alone imports this wing.
"""

from __future__ import annotations

import importlib

import click
from flask.cli import with_appcontext

from ..errors import IdempotenceError

MODULES = {
    "config": "routes",
    "doctor": "doctor",
    "init-db": "entries",
    "inspect": "request",
    "prune": "entries",
    "purge": "entries",
    "release": "request",
    "routes": "routes",
    "stats": "entries",
    "watch": "watch",
}
"""The module of each command."""


class LazyGroup(click.Group):
    """Group that imports its commands on demand, and prints an error of theirs in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in MODULES:
            return None
        module = importlib.import_module(f".{MODULES[cmd_name]}", __package__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

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
