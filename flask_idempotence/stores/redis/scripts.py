"""The Lua scripts, each called by its hash, or in full where the server does not know it."""

from __future__ import annotations

import hashlib
from importlib import resources

from redis.exceptions import NoScriptError

from .connection.deployment import Deployment
from .connection.node import Quorum
from .connection.wire import Command, Reply


class Script:
    """A file of the folder `lua`."""

    def __init__(self, name: str) -> None:
        file = resources.files(__package__) / "lua" / f"{name}.lua"
        self.source: str = file.read_text(encoding="utf-8")
        self.digest: str = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def by_hash(self, key: str, *arguments: bytes | int) -> Command:
        """Return the command that runs it on a key."""
        return ("EVALSHA", self.digest, 1, key, *arguments)

    def in_full(self, by_hash: Command) -> Command:
        """Return the same command with the text of the script."""
        return ("EVAL", self.source, *by_hash[2:])

    def run(
        self,
        deployment: Deployment,
        calls: list[Command],
        key: str,
        *,
        repeatable: bool = True,
        quorum: Quorum | None = None,
    ) -> list[Reply]:
        """Send commands that `by_hash` made to the server of `key`, as `Deployment.send` does."""
        replies = deployment.send(calls, key=key, repeatable=repeatable, quorum=quorum)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server was restarted or replaced; it has not run these
            again = [self.in_full(calls[n]) for n in unknown]
            fresh = deployment.send(again, key=key, repeatable=repeatable, quorum=quorum)
            for n, reply in zip(unknown, fresh, strict=False):
                replies[n] = reply
            replies[len(calls) :] = fresh[len(again) :]  # the reply that a quorum adds
        return replies


CLAIM = Script("claim")
RENEW = Script("renew")
COMPLETE = Script("complete")
RELEASE = Script("release")
TAKE_TOKEN = Script("take_token")
DISCARD = Script("discard")
