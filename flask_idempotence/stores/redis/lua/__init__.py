"""The Lua scripts, each called by its hash, or in full where the server does not know it."""

from __future__ import annotations

import hashlib
import pkgutil

from ..link import packed


class Script:
    """A file of this folder: its text, and the hash by which a server knows it.

    `called`: the words of a call before its key, packed, and their number. `written`: its replies
    where it has written. `repeatable`: it may be sent twice.
    """

    def __init__(
        self, name: str, *, written: tuple[int, ...] = (), repeatable: bool = True
    ) -> None:
        self.written = written
        self.repeatable = repeatable
        text = pkgutil.get_data(__package__, f"{name}.lua") or b""
        self.source: str = text.decode()
        self.digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        self.called = packed("EVALSHA", self.digest, 1), 3


CLAIM = Script("claim", written=(0,))
RENEW = Script("renew")
COMPLETE = Script("complete", written=(1,))
RELEASE = Script("release")
TAKE_TOKEN = Script("take_token", written=(1, 2), repeatable=False)
DISCARD = Script("discard", repeatable=False)
