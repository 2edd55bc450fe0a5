"""`flask idempotence`: tools for those who run an application.

A command's module is loaded when the command is called, and not in every worker.
"""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "config": "settings",
    "doctor": "doctor",
    "init-db": "database",
    "inspect": "inspecting",
    "prune": "pruning",
    "purge": "purge",
    "release": "releasing",
    "stats": "stats",
}


class Tools(click.Group):
    """A group whose commands are looked up by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f".{_COMMANDS[cmd_name]}", __package__)
        command: click.Command = module.command
        return command


tools = Tools(
    "idempotence",
    help="""Look after the store of Flask-Idempotence, and after what is set up around it.

    Tables are for people: in a pipe, each row is one line, its columns separated by tabs and
    without a heading. --json is for programs. NO_COLOR is honoured.
    """,
)
"""The group that the extension adds to an application's commands."""
