"""The Lua scripts, each called by its hash, or in full where the server does not know it."""

from __future__ import annotations

import hashlib
from importlib import resources


class Script:
    """A file of this folder.

    Attributes:
        source: its text.
        digest: the hash by which a server knows it.
    """

    def __init__(self, name: str) -> None:
        file = resources.files(__package__) / f"{name}.lua"
        self.source: str = file.read_text(encoding="utf-8")
        self.digest: str = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


CLAIM = Script("claim")
RENEW = Script("renew")
COMPLETE = Script("complete")
RELEASE = Script("release")
TAKE_TOKEN = Script("take_token")
DISCARD = Script("discard")
