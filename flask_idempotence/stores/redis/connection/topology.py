"""Who is asked: one server, the primary that sentinels name, or the nodes of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from .connections import read
from .deadline import deadline
from .node import Address, Node
from .refusals import is_read_only


class Detour(NamedTuple):
    """Where a command goes that a server has turned away without carrying it out.

    Attributes:
        node: the server that is to be asked; None for the one that the key belongs to by now.
        asking: whether that server must be told that we know it does not own the slot yet.
        pause: seconds to wait before.
    """

    node: Node | None = None
    asking: bool = False
    pause: float = 0.0


class Topology(ABC):
    """Finds the server for a key, within the deadline of the operation."""

    @abstractmethod
    def node_for(self, key: str | None) -> Node:
        """Return the server that holds a key; for None, any.

        Raises:
            RedisError, OSError: it could not be found out.
        """

    @abstractmethod
    def detour(self, node: Node, error: ResponseError, tries: int) -> Detour | None:
        """Say where to go where a server has turned a command away.

        Args:
            node: that server.
            error: its reply.
            tries: how many detours the command has made already.

        Returns:
            None where the error is the answer.
        """

    def failed(self, node: Node) -> None:
        """Note that a server has failed: its other connections may be as dead, and look alive."""
        node.drop_idle()

    @abstractmethod
    def primaries(self) -> Sequence[Node]:
        """Return the servers that hold all keys between them.

        Raises:
            RedisError, OSError: it could not be found out.
        """

    def groups(self, keys: Sequence[str]) -> Iterable[list[int]]:
        """Return the indices of keys, in groups of one server each.

        Raises:
            RedisError, OSError: it could not be found out.
        """
        return [list(range(len(keys)))]

    @abstractmethod
    def nodes(self) -> Iterable[Node]:
        """Return every server that there may be connections to."""

    def forget(self) -> None:
        """Forget all connections: in a child process they are the parent's."""
        for node in self.nodes():
            node.forget()

    def close(self) -> None:
        """Close all connections that are idle."""
        for node in self.nodes():
            node.drop_idle()


class SingleServer(Topology):
    """One server, at one address.

    Args:
        connect: makes a connection that is ready to be used.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._node = Node(connect)

    def node_for(self, key: str | None) -> Node:
        """Return the server."""
        del key
        return self._node

    def primaries(self) -> Sequence[Node]:
        """Return the server."""
        return (self._node,)

    def detour(self, node: Node, error: ResponseError, tries: int) -> Detour | None:
        """Connect anew where the server has become a replica: its name may lead elsewhere now."""
        if tries or not is_read_only(error):
            return None
        node.drop_idle()
        return Detour()

    def nodes(self) -> Iterable[Node]:
        """Return the server."""
        return (self._node,)


class SentinelService(SingleServer):
    """The primary of a service, as the sentinels name it.

    They are asked for every new connection, and connections are kept: a failover closes those of
    the old primary, and one that fails takes all others with it.

    Args:
        service: the name of the service.
        sentinels: the sentinels.
        connect_to: makes a connection to a host and port that is ready to be used.
        remap: translates an address that a sentinel gives.
    """

    def __init__(
        self,
        service: str,
        sentinels: Sequence[Node],
        connect_to: Callable[[str, int], Any],
        remap: Callable[[Address], Address],
    ) -> None:
        super().__init__(self._connect)
        self._service = service
        self._sentinels = list(sentinels)
        self._connect_to = connect_to
        self._remap = remap
        self._primary: Address | None = None

    def nodes(self) -> Iterable[Node]:
        """Return the primary and the sentinels."""
        return (self._node, *self._sentinels)

    def _connect(self) -> Any:
        problem: Exception = RedisConnectionError(f"No sentinel knows {self._service!r}.")
        tried = set()
        sentinels = self._sentinels
        for asked, sentinel in enumerate(sentinels):
            try:
                with deadline.share(len(sentinels) - asked + 1):
                    address = self._ask(sentinel)
                if address is None or address in tried:
                    continue
                tried.add(address)
                connection = self._connect_to_primary(address)
            except (RedisError, OSError) as error:
                problem = error
            else:
                self._found(sentinel, address)
                return connection
        raise problem

    def _ask(self, sentinel: Node) -> Address | None:
        answer = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        if answer is None:
            return None
        host, port = answer
        return self._remap((host.decode(), int(port)))

    def _connect_to_primary(self, address: Address) -> Any:
        # Sentinels learn of a failover one after the other: what one of them says may be over.
        # https://redis.io/docs/latest/develop/reference/sentinel-clients/
        with deadline.share(2):
            connection = self._connect_to(*address)
            try:
                connection.send_command("ROLE", check_health=False)
                role = read(connection)
                if isinstance(role, NoPermissionError):  # then it goes without
                    return connection
                if isinstance(role, Exception):
                    raise role
                if role[0] != b"master":
                    raise RedisConnectionError("The server that a sentinel named is no primary.")
            except BaseException:
                connection.disconnect()
                raise
            return connection

    def _found(self, sentinel: Node, address: Address) -> None:
        if address != self._primary:
            self._primary = address
            self._node.drop_idle()
        if sentinel is not self._sentinels[0]:
            self._sentinels = [sentinel, *(s for s in self._sentinels if s is not sentinel)]
