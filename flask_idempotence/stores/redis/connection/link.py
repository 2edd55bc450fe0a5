"""Sending commands to Redis within one deadline."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ....errors import StoreError
from ...process import call_in_children
from .connections import Command, Reply
from .deadline import deadline
from .node import Node, Quorum
from .topology import Detour, Topology

_ATTEMPTS = 2
"""How often a repeatable command is sent at most: an idle connection may have been closed by the
server long ago, and the first command on it is how one finds out."""

Item = TypeVar("Item")
T = TypeVar("T")

_ASKING = ("ASKING",)


class Link:
    """Sends commands and returns their replies, each call within one deadline.

    Args:
        topology: finds the server for a key.
        seconds: the deadline of a call in all: finding the server, connecting, and following it
            elsewhere included. (The look-up of a host name is the operating system's and not
            bounded by it.)
    """

    def __init__(self, topology: Topology, seconds: float) -> None:
        self.seconds = seconds
        self._topology = topology
        call_in_children(topology.forget)
        # A connection that is simply forgotten makes Python warn of its socket. At the end of the
        # process nobody does, and who has threads then had better leave them alone.
        weakref.finalize(self, topology.close).atexit = False

    def send(
        self,
        commands: Sequence[Command],
        *,
        key: str | None = None,
        repeatable: bool = True,
        quorum: Quorum | None = None,
        goes_on: bool = False,
        node: Node | None = None,
    ) -> list[Reply]:
        """Send commands in one round trip and return their replies.

        What a server has turned away without carrying it out (it became a replica, the slot is
        elsewhere) is sent to the right one, whether it is repeatable or not.

        Args:
            commands: each a tuple of its words.
            key: whose server is meant; None for any.
            repeatable: whether the commands may be sent again where it is unknown if they arrived.
            quorum: how many replicas must have what the last command wrote: one reply more says
                how many have it, after waiting for them.
            goes_on: whether this is still the operation of this thread's last call, so that the
                deadline of that one holds.
            node: the server itself, in place of `key`.

        Returns:
            A reply each; an error reply is returned, not raised.

        Raises:
            StoreError: no answer within the deadline.
        """
        attempts = _ATTEMPTS if repeatable else 1
        if not goes_on:
            deadline.begin(self.seconds)
        topology = self._topology
        while True:
            attempts -= 1
            server = node
            try:
                if server is None:
                    server = topology.node_for(key)
                replies = self._exchange(server, commands, quorum)
                for reply in replies:
                    if isinstance(reply, ResponseError):
                        return self._follow(server, commands, replies, key, quorum)
                return replies
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                if server is not None:
                    topology.failed(server)
                if not attempts or deadline.is_over:
                    raise _unanswered(error) from error
            except RedisError as error:  # refused in the handshake: credentials, no such database
                raise _unanswered(error) from error

    @staticmethod
    def _exchange(server: Node, commands: Sequence[Command], quorum: Quorum | None) -> list[Reply]:
        connection = server.take()
        try:
            return server.exchange(connection, commands, quorum)
        except BusyLoadingError:  # the server has no data yet, and refuses everything
            raise
        except BaseException:
            deadline.may_have_arrived = True
            raise

    def _follow(
        self,
        server: Node,
        commands: Sequence[Command],
        replies: list[Reply],
        key: str | None,
        quorum: Quorum | None,
    ) -> list[Reply]:
        """Send what was turned away to where it belongs, each command by itself."""
        for index, command in enumerate(commands):
            at, tries = server, 0
            while isinstance(replies[index], ResponseError):
                detour = self._topology.detour(at, replies[index], tries)
                if detour is None or (detour.pause and not deadline.pause(detour.pause)):
                    break
                at = detour.node or self._topology.node_for(key)
                replies[index], *counts = self._take_detour(at, detour, command, quorum)
                replies[len(commands) :] = counts
                tries += 1
        return replies

    def _take_detour(
        self, at: Node, detour: Detour, command: Command, quorum: Quorum | None
    ) -> list[Reply]:
        commands = [_ASKING, command] if detour.asking else [command]
        return self._exchange(at, commands, quorum)[len(commands) - 1 :]

    def scatter(self, keys: Sequence[str], call: Callable[[list[int]], None]) -> None:
        """Call something for the keys of each server, with a fair share of one deadline.

        A server that does not answer keeps no other from being asked.

        Args:
            keys: the keys.
            call: is given the indices of one server's keys, and sends with `goes_on=True`.

        Raises:
            StoreError: a server did not answer; all have been asked.
        """
        deadline.begin(self.seconds)
        problem = None
        groups = list(self._find(lambda: self._topology.groups(keys)))
        for asked, group in enumerate(groups):
            try:
                with deadline.share(len(groups) - asked):
                    call(group)
            except StoreError as error:
                problem = problem or error
            except RedisTimeoutError as error:
                problem = problem or StoreError(f"TimeoutError: {error}")
        if problem is not None:
            raise problem

    def gather(
        self,
        items: Sequence[Item],
        keys: Sequence[str],
        ask: Callable[[Sequence[Item]], Sequence[T]],
    ) -> list[T]:
        """Ask each server about the items whose keys it has; return the answers in order.

        Raises:
            StoreError: a server did not answer. `answers` holds those of the others.
        """
        answers: dict[int, T] = {}

        def ask_one(indices: list[int]) -> None:
            try:
                answers.update(zip(indices, ask([items[n] for n in indices]), strict=True))
            except StoreError as error:
                answers.update(zip(indices, error.answers or (), strict=False))
                raise

        try:
            if items:
                self.scatter(keys, ask_one)
        except StoreError as error:
            error.answers = [answers.get(n) for n in range(len(items))] if answers else None
            raise
        return [answers[n] for n in range(len(items))]

    @staticmethod
    def at_most(seconds: float) -> AbstractContextManager[None]:
        """Allow each operation of this thread so many seconds, where that is less than usual."""
        return deadline.at_most(seconds)

    def primaries(self) -> Sequence[Node]:
        """Return the servers that hold all keys between them.

        Raises:
            StoreError: it could not be found out within the deadline.
        """
        deadline.begin(self.seconds)
        return self._find(self._topology.primaries)

    @staticmethod
    def _find(look: Callable[[], T]) -> T:
        try:
            return look()
        except (RedisError, OSError) as error:
            raise StoreError(f"{type(error).__name__}: {error}", sent=False) from error


def _unanswered(error: Exception) -> StoreError:
    return StoreError(f"{type(error).__name__}: {error}", sent=deadline.may_have_arrived)
