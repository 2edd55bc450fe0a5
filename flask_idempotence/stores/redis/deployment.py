"""Sending commands to the right servers, within the deadline of the thread's operation."""

from __future__ import annotations

import copy
import hashlib
import pkgutil
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...errors import StoreError
from .deadlines import deadline
from .link import MALFORMED, Command, ConnectionFactory, Link, Reply, error_code, pack, packed
from .node import Address, CircuitOpenError, Node, Quorum

_ATTEMPTS = 2  # to send a repeatable command: the first idle connection may be lost already

_SHARES = 3  # a sentinel gets one share of the time, the next ones and the primary two

# After so many seconds the sentinel is asked again: a primary that was frozen and wakes up may
# not know yet that another one has taken its place.
_MOST_AGE = 1.0

P = ParamSpec("P")
T = TypeVar("T")

Call = tuple[str, *tuple[str | bytes | int, ...]]  # a key, and the arguments behind it


class Script:
    """A file of the folder `lua`: its text, and the hash by which a server knows it.

    `called`: the words of a call before its key, packed, and their number. `written`: its replies
    where it has written. `repeatable`: it may be sent twice.
    """

    def __init__(
        self, name: str, *, written: tuple[int, ...] = (), repeatable: bool = True
    ) -> None:
        self.written = written
        self.repeatable = repeatable
        text = pkgutil.get_data(__package__, f"lua/{name}.lua") or b""
        self.source: str = text.decode()
        self.digest: str = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        self.called = packed("EVALSHA", self.digest, 1), 3


class Deployment:
    """A server at one address; subclasses: one that sentinels name, the primaries of a cluster.

    `operation` marks the methods of a store, which may be several calls. Its time is for
    discovery, connecting and redirections, too. The methods that subclasses override raise
    RedisError or OSError where no server answers.

    Attributes:
        replicas: how many must have the write of a script before its reply counts.
    """

    replicas: int = 0
    _is_stale: bool = True  # a cluster's table of slots: a replica may be a primary by now

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
                replies = server.exchange(commands, quorum)
                for index, reply in enumerate(replies if follow else ()):
                    if isinstance(reply, ResponseError):
                        replies[index] = self._follow(server, commands[index], reply, key, quorum)
                return replies
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                # An open circuit has asked no server: it must not cost a new table of slots.
                if server is not None and not isinstance(error, CircuitOpenError):
                    self._is_stale = True
                if not attempts or time.monotonic() >= deadline.at:
                    raise _no_reply(error) from error
            # Refused in the handshake (credentials, no such database), or no valid answer.
            except (RedisError, *MALFORMED) as error:
                raise _no_reply(error) from error

    def run(self, script: Script, calls: Sequence[Call]) -> list[Reply]:
        """Call a script on keys of one server; in full where it does not know the script."""
        wanted = self.replicas if script.written else 0
        quorum = Quorum(wanted, script.written) if wanted else None
        send = partial(self.send, key=calls[0][0], repeatable=script.repeatable, quorum=quorum)
        replies = send([pack(*call, behind=script.called) for call in calls])
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server was restarted or replaced; it has not run these
            fresh = send([pack("EVAL", script.source, 1, *calls[n]) for n in unknown])
            for n, reply in zip(unknown, fresh, strict=True):
                replies[n] = reply
        return replies

    def _follow(
        self,
        node: Node,
        command: Command,
        reply: ResponseError,
        key: str | None,  # noqa: ARG002 - a cluster's has a use for it
        quorum: Quorum | None,
    ) -> Reply:
        """Send a command that a node refused to where it belongs, and return the last reply."""
        code = error_code(reply)
        if code in {"READONLY", "NOREPLICAS"}:
            # It became a replica, or lost its own: a new connection may lead to the new primary.
            node.drop_idle()
        return node.exchange([command], quorum)[-1] if code == "READONLY" else reply

    def gather(
        self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Reply]]
    ) -> Sequence[Reply]:
        """Send the calls of each server, and return the replies in the order of the calls.

        Each server has its share of the deadline, also after one that does not answer: a
        StoreError is in place of each reply of that one.
        """
        try:
            groups = self._groups([call[0] for call in calls]) if calls else []
        except (RedisError, OSError) as error:
            raise _no_reply(error) from error
        replies: dict[int, Reply] = {}
        for index, group in enumerate(groups):
            found = _in_share([calls[n] for n in group], send, len(groups) - index)
            replies.update(zip(group, found, strict=True))
        return [replies[n] for n in range(len(calls))]

    def primaries(self) -> Sequence[Node]:
        try:
            return self._primaries()
        except (RedisError, OSError) as error:
            raise _no_reply(error) from error

    def forget(self) -> None:
        for node in self._nodes():
            node.forget()

    def close(self) -> None:
        for node in self._nodes():
            node.drop_idle()


class _Asked(Redis):
    """A sentinel, for redis-py's `Sentinel`: a question has a connection and a deadline."""

    def __init__(self, client: Redis) -> None:
        super().__init__(protocol=2)  # how its replies are parsed
        self._connect = ConnectionFactory(client.connection_pool).connect
        self._address = "{host}:{port}".format_map(client.connection_pool.connection_kwargs)

    def __repr__(self) -> str:  # the error that no sentinel answers shows it
        return self._address

    def execute_command(self, *words: Reply, **options: Reply) -> Reply:
        with deadline.limit(deadline.left() / _SHARES):
            connection: Any = self._connect()
            try:
                connection.send_command(*words)
                return self.parse_response(connection, words[0], **options)  # type: ignore[no-untyped-call]
            except MALFORMED as error:  # the next sentinel is asked
                raise RedisConnectionError(f"No valid answer: {error}") from error
            finally:
                connection.disconnect()


class SentinelService(Deployment):
    """The primary of a service. Sentinels name it for each new connection."""

    def __init__(self, manager: Any, service: str, connect: Callable[..., Link]) -> None:
        super().__init__(self._connect)
        # A manager has its own way to choose, and may force an address.
        self._manager = copy.copy(manager)
        self._manager.sentinels = [_Asked(each) for each in manager.sentinels]
        self._service = service
        self._connect_to = connect
        self._primary: Address | None = None

    def _connect(self) -> Link:
        # It reorders its list while it goes through it: not one that other threads go through.
        manager = copy.copy(self._manager)
        sentinels = manager.sentinels = list(manager.sentinels)
        refused: dict[Address, Exception] = {}
        for _ in range(len(sentinels)):
            try:
                address = manager.discover_master(self._service)
            except RedisConnectionError as error:
                # Its message alone tells, and the circuit breaker has to count what costs time.
                if "TimeoutError" not in str(error):
                    raise
                raise RedisTimeoutError(str(error)) from error
            if address not in refused:
                try:
                    connection = self._connect_while_named(address, manager)
                except (RedisError, OSError) as error:
                    refused[address] = error
                else:
                    self._manager.sentinels = sentinels  # the one that answered is the first
                    if address != self._primary:
                        self._primary = address
                        self._node.drop_idle()
                    return connection
            # Sentinels learn of a failover one after the other.
            sentinels.append(sentinels.pop(0))
        raise refused[address]

    def _connect_while_named(self, address: Address, manager: Any) -> Link:
        started = time.monotonic()
        with deadline.limit(deadline.left() / 2):
            connection = self._connect_to(host=address[0], port=address[1])
        try:
            self._check_role(connection)
            is_old = time.monotonic() - started > _MOST_AGE
            if is_old and manager.discover_master(self._service) != address:
                raise RedisConnectionError("There has been a failover while connecting.")
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _check_role(self, connection: Link) -> None:
        # https://redis.io/docs/latest/develop/reference/sentinel-clients/
        [role] = connection.exchange(pack("ROLE"), 1)
        if isinstance(role, ResponseError):
            if error_code(role) != "NOPERM":  # a user without the permission checks nothing
                raise role
        elif role[:1] != [b"master"]:
            raise RedisConnectionError("The server that a sentinel named is no primary.")


def operation(method: Callable[P, T]) -> Callable[P, T]:
    """Give a store's method a deadline; close the connections after a reply that is no answer."""

    @wraps(method)
    def timed(*arguments: P.args, **options: P.kwargs) -> T:
        store: Any = arguments[0]
        token = deadline.begin(store._deadline)  # noqa: SLF001 - of this package
        try:
            return method(*arguments, **options)
        except MALFORMED as error:
            store._deployment.close()  # noqa: SLF001
            raise StoreError(f"InvalidResponse: {type(error).__name__}") from error
        finally:
            deadline.end(token)

    return timed


def _in_share(
    calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Reply]], servers: int
) -> Sequence[Reply]:
    """Send the calls of one server, of so many that have the time that is left."""
    try:
        with deadline.limit(deadline.left() / servers):
            return send(calls)
    except StoreError as error:
        return [error] * len(calls)
    except RedisTimeoutError as error:
        return [StoreError(f"TimeoutError: {error}")] * len(calls)


def _no_reply(error: Exception) -> StoreError:
    return StoreError(f"{type(error).__name__}: {error}", sent=deadline.now.may_have_arrived)
