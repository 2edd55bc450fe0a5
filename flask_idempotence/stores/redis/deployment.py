"""Sending commands to the right servers, within the deadline of the thread's operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...errors import StoreError
from .link import Command, Link, Reply, deadline, error_code, pack
from .lua import Script
from .node import CircuitOpenError, Node, Quorum

_ATTEMPTS = 2
"""Of a repeatable command: the server may have closed the idle connection of the first one."""

_ASKING = pack("ASKING")

Item = TypeVar("Item")
T = TypeVar("T")


class Redirection(NamedTuple):
    """Where a refused command goes next: to a node, or to the one that has the key by now."""

    node: Node | None = None
    asking: bool = False  # with ASKING before it: the slot is on its way there
    pause: float = 0.0  # seconds to wait before


class Deployment:
    """A server at one address; subclasses: one that sentinels name, the primaries of a cluster.

    `deadline.begin` goes before each operation, which may be several calls. Its time is for
    discovery, connecting and redirections, too. (The look-up of a host name is the operating
    system's and not bounded by it.) The methods that subclasses override raise RedisError or
    OSError where no server answers.
    """

    def __init__(self, connect: Callable[..., Link]) -> None:
        self._node = Node(connect)

    def _node_for(self, key: str | None) -> Node:  # noqa: ARG002 - a cluster's has a use for it
        return self._node

    def _groups(self, keys: Sequence[str]) -> list[list[int]]:
        return [list(range(len(keys)))]

    def _primaries(self) -> Sequence[Node]:
        return (self._node,)

    def _nodes(self) -> Iterable[Node]:
        return (self._node,)

    def _redirect(self, node: Node, error: ResponseError, tries: int) -> Redirection | None:
        """Return the next place of a command that `node` refused; None if the error counts."""
        code = error_code(error)
        if tries or code not in {"READONLY", "NOREPLICAS"}:
            return None
        # It became a replica, or lost its own: a new connection may lead to the new primary.
        node.drop_idle()
        return Redirection() if code == "READONLY" else None

    def _note_failure(self) -> None:
        pass

    def send(
        self,
        commands: Sequence[Command],
        *,
        key: str | None = None,
        node: Node | None = None,
        repeatable: bool = True,
        follow: bool = True,
        quorum: Quorum | None = None,
    ) -> list[Reply]:
        """Send commands to a node, that of a key, or any, and return the replies, errors included.

        A command that a server refuses without effect (it became a replica, the slot is elsewhere)
        is sent to the right one, unless `follow` is false. Repeatable commands are sent again if
        they may not have arrived. For a quorum see `Node.exchange`.
        """
        attempts = _ATTEMPTS if repeatable else 1
        while True:
            attempts -= 1
            server = node
            try:
                if server is None:
                    server = self._node_for(key)
                # A connection that the server has closed costs one of two attempts, and a check
                # of each connection more than that.
                replies = server.exchange(commands, quorum, check=not attempts)
                for index, reply in enumerate(replies):
                    if follow and isinstance(reply, ResponseError):
                        replies[index] = self._follow(server, commands[index], reply, key, quorum)
                return replies
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                # An open circuit has asked no server: it must not cost a new table of slots.
                if server is not None and not isinstance(error, CircuitOpenError):
                    self._note_failure()
                if not attempts or deadline.is_over:
                    raise _no_reply(error) from error
            except RedisError as error:  # refused in the handshake: credentials, no such database
                raise _no_reply(error) from error

    def run(
        self,
        script: Script,
        calls: Sequence[tuple[str | bytes | int, ...]],
        *,
        key: str,
        repeatable: bool = True,
        quorum: Quorum | None = None,
    ) -> list[Reply]:
        """Call a script, with a key and arguments each; in full where the server knows it not."""
        commands = [pack("EVALSHA", script.digest, 1, *call) for call in calls]
        replies = self.send(commands, key=key, repeatable=repeatable, quorum=quorum)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server was restarted or replaced; it has not run these
            commands = [pack("EVAL", script.source, 1, *calls[n]) for n in unknown]
            fresh = self.send(commands, key=key, repeatable=repeatable, quorum=quorum)
            for n, reply in zip(unknown, fresh, strict=True):
                replies[n] = reply
        return replies

    def _follow(
        self, node: Node, command: Command, reply: Reply, key: str | None, quorum: Quorum | None
    ) -> Reply:
        """Send a command that a node refused to where it belongs, and return the last reply."""
        tries = 0
        while isinstance(reply, ResponseError):
            target = self._redirect(node, reply, tries)
            if target is None or (target.pause and not deadline.pause(target.pause)):
                break
            node = target.node or self._node_for(key)
            reply = node.exchange([_ASKING, command] if target.asking else [command], quorum)[-1]
            tries += 1
        return reply

    def gather(
        self,
        items: Sequence[Item],
        keys: Sequence[str],
        call: Callable[[Sequence[Item]], Sequence[T]],
    ) -> list[T]:
        """Call a function with the items of each server; return its results in their order.

        Each call has its share of the deadline, also after a server that does not answer. The
        `answers` of its StoreError hold the results of the others.
        """
        results: dict[int, T] = {}
        problem = None
        try:
            groups = self._groups(keys) if items else []
        except (RedisError, OSError) as error:
            raise _no_reply(error) from error
        for index, group in enumerate(groups):
            found: Sequence[T] = ()
            try:
                with deadline.limit(deadline.left() / (len(groups) - index)):
                    found = call([items[n] for n in group])
            except StoreError as error:
                problem, found = problem or error, error.answers or ()
            except RedisTimeoutError as error:
                problem = problem or StoreError(f"TimeoutError: {error}")
            results.update(zip(group, found, strict=False))
        if problem is not None:
            problem.answers = [results.get(n) for n in range(len(items))] if results else None
            raise problem
        return [results[n] for n in range(len(items))]

    def primaries(self) -> Sequence[Node]:
        try:
            return self._primaries()
        except (RedisError, OSError) as error:
            raise _no_reply(error) from error

    def dedicated(self) -> Link:
        """Return a connection in RESP2 to any server that answers, for the caller alone."""
        nodes = self.primaries()
        for index, node in enumerate(nodes):
            try:
                with deadline.limit(deadline.left() / (len(nodes) - index)):
                    return node.connect(protocol=2)
            except (RedisError, OSError) as error:
                problem = _no_reply(error)
        raise problem

    def forget(self) -> None:
        """Drop all connections without closing them: in a child process they are the parent's."""
        for node in self._nodes():
            node.forget()

    def close(self) -> None:
        for node in self._nodes():
            node.drop_idle()


def _no_reply(error: Exception) -> StoreError:
    return StoreError(f"{type(error).__name__}: {error}", sent=deadline.may_have_arrived)
