"""`flask idempotence`: commands for operators, each in the module of its name.

A command's module is imported when the command is called, and not in every worker. The extension
alone imports this wing.
"""

from __future__ import annotations

import importlib

import click

from ..errors import IdempotenceError, StoreError, StoreNotReady

COMMANDS = (
    *("config", "doctor", "init-db", "inspect", "prune", "purge", "release", "routes", "stats"),
    "watch",
)


class LazyGroup(click.Group):
    """Group that imports its commands on demand, and prints an error of theirs in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name.replace('-', '_')}", __package__)
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except StoreNotReady as error:
            raise click.ClickException(error.remedy) from None
        except StoreError as error:
            raise click.ClickException(
                f"The store does not answer ({kind_of(error)}). Start it, or correct "
                "IDEMPOTENCE_STORAGE_URI; 'flask idempotence doctor' shows more."
            ) from None
        except IdempotenceError as error:
            raise click.ClickException(str(error)) from None


def kind_of(error: StoreError) -> str:
    """Return the class of the driver's error; the rest of the text may hold an address."""
    kind = str(error).partition(":")[0]
    return kind if kind.isidentifier() else "StoreError"


tools = LazyGroup(
    "idempotence",
    help="""Inspect and maintain the store of Flask-Idempotence, and check the deployment.

    A terminal gets tables. In a pipe, each row is one line of tab-separated columns, without a
    heading; --json prints JSON. NO_COLOR is honoured.
    """,
)
"""The group that the extension adds to an application's commands."""
