"""The Lua scripts, each called by its hash, or in full where the server does not know it."""

from __future__ import annotations

import hashlib
import pkgutil


class Script:
    """A file of this folder.

    Attributes:
        source: its text.
        digest: the hash by which a server knows it.
        call: a call in Redis' protocol, by the hash, to be formatted with the size and the bytes
            of the key and of each argument.
        head: how each call begins.
        head_in_full: the same of a call that contains the text.

    Args:
        name: the file's.
        arguments: how many a call has beside the key.
    """

    def __init__(self, name: str, arguments: int) -> None:
        text = pkgutil.get_data(__package__, f"{name}.lua") or b""
        self.source: str = text.decode()
        self.digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        words = 4 + arguments
        self.head: bytes = _head(words, "EVALSHA", self.digest)
        self.head_in_full: bytes = _head(words, "EVAL", self.source)
        self.call: bytes = self.head + (1 + arguments) * b"$%d\r\n%b\r\n"


def _head(words: int, command: str, script: str) -> bytes:
    called = f"${len(command)}\r\n{command}\r\n${len(script.encode())}\r\n{script}\r\n"
    return f"*{words}\r\n{called}$1\r\n1\r\n".encode()


CLAIM = Script("claim", arguments=4)
RENEW = Script("renew", arguments=2)
COMPLETE = Script("complete", arguments=4)
RELEASE = Script("release", arguments=1)
TAKE_TOKEN = Script("take_token", arguments=1)
DISCARD = Script("discard", arguments=1)
