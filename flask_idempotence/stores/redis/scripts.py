"""The Lua files beside this one, as commands."""

from __future__ import annotations

import hashlib
from importlib import resources

from .connection import Command


class Script:
    """A Lua file of ours, called by its hash, or in full where the server does not know it."""

    def __init__(self, name: str) -> None:
        folder = resources.files(__package__)
        self.source: str = (folder / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        self.digest: str = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def by_hash(self, key: str, *arguments: bytes | int) -> Command:
        """Return the call of it for one key."""
        return ("EVALSHA", self.digest, 1, key, *arguments)

    def in_full(self, by_hash: Command) -> Command:
        """Return the same call with the text of the script."""
        return ("EVAL", self.source, *by_hash[2:])


CLAIM = Script("claim")
RENEW = Script("renew")
COMPLETE = Script("complete")
RELEASE = Script("release")
TAKE_TOKEN = Script("take_token")
DISCARD = Script("discard")
