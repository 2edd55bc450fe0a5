"""The Lua scripts, each called by its hash, or in full where the server does not know it."""

from __future__ import annotations

import hashlib
import pkgutil


class Script:
    """A file of this folder: its text, and the hash by which a server knows it."""

    def __init__(self, name: str) -> None:
        text = pkgutil.get_data(__package__, f"{name}.lua") or b""
        self.source: str = text.decode()
        self.digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()


CLAIM = Script("claim")
RENEW = Script("renew")
COMPLETE = Script("complete")
RELEASE = Script("release")
TAKE_TOKEN = Script("take_token")
DISCARD = Script("discard")
