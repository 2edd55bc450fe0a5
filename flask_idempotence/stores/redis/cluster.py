"""The primaries of a Redis Cluster, and its table of slots.

That of redis-py's `RedisCluster` costs a connection when it is made, and a node that does not
answer costs it the whole deadline, while other threads wait for a lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from .deadlines import deadline
from .deployment import Deployment
from .link import MALFORMED, Command, Link, Reply, error_code, pack
from .node import Address, Node, Quorum

_SLOTS, _ASKING = pack("CLUSTER", "SLOTS"), pack("ASKING")

_PAUSE = 0.05  # seconds to wait for a cluster that is changing
_FREE_HOPS = 5  # redirections without a pause; beyond that, two nodes may redirect to each other
_SHARES = 3  # a node gets one share of the time to fetch the table, the operation another


class Cluster(Deployment):
    """The primaries of a cluster. `remap` translates an address that a node returns."""

    def __init__(
        self,
        seeds: Sequence[Address],
        connect: Callable[..., Link],
        remap: Callable[[Address], Address] | None = None,
    ) -> None:
        self._connect_to = connect
        self._remap = remap or (lambda address: address)
        self._known: dict[Address, Node] = {}
        self._seeds = {seed: self._node_at(seed) for seed in seeds}
        self._slots: list[Node | None] = []

    def _node_for(self, key: str | None) -> Node:
        if key is None:
            return self._primaries()[0]
        slot, table = _slot_of(key), self._table()
        while (node := table[slot]) is None:
            if not deadline.pause(_PAUSE):
                raise RedisConnectionError(f"No node of the cluster serves slot {slot}.")
            self._is_stale = True
            table = self._table()
        return node

    def _primaries(self) -> Sequence[Node]:
        found = list(dict.fromkeys(node for node in self._table() if node is not None))
        if not found:
            raise RedisConnectionError("No node of the cluster serves any slot.")
        return found

    def _groups(self, keys: Sequence[str]) -> list[list[int]]:
        table, groups = self._table(), defaultdict(list)
        for index, key in enumerate(keys):
            groups[table[_slot_of(key)]].append(index)
        return [groups[node] for node in sorted(groups, key=_last_failure)]

    def _nodes(self) -> Iterable[Node]:
        return list(self._known.values())

    def _follow(
        self, node: Node, command: Command, reply: Reply, key: str | None, quorum: Quorum | None
    ) -> Reply:
        hops = 0
        while isinstance(reply, ResponseError):
            code, target = error_code(reply), None
            if code in {"ASK", "MOVED"}:
                slot, address = str(reply).split()[-2:]
                host, _, port = address.rpartition(":")
                target = self._node_at(self._address(host, int(port), node))
                if code == "MOVED":
                    self._slots[int(slot)] = target
            elif code not in {"CLUSTERDOWN", "READONLY", "TRYAGAIN"}:
                break
            if code != "ASK":  # an ASK is about a single key
                self._is_stale = True
            if (target is None or hops >= _FREE_HOPS) and not deadline.pause(_PAUSE):
                break
            node = target or self._node_for(key)
            commands = [_ASKING, command] if code == "ASK" else [command]
            reply, hops = node.exchange(commands, quorum)[-1], hops + 1
        return reply

    def _address(self, host: str, port: int, source: Node) -> Address:
        # A node that does not know its own address leaves the host out.
        return self._remap((source.host if host in {"", "?"} else host, port))

    def _node_at(self, address: Address) -> Node:
        if address not in self._known:
            host, port = address
            node = Node(partial(self._connect_to, host=host, port=port), host)
            return self._known.setdefault(address, node)
        return self._known[address]

    def _table(self) -> list[Node | None]:
        # While one thread renews the table, others use the old one; the first table, all fetch.
        if self._slots and not self._is_stale:
            return self._slots
        self._is_stale = False
        problem: Exception = RedisConnectionError("No node of the cluster returns its slots.")
        nodes = sorted(self._nodes(), key=_last_failure)
        before = deadline.now.may_have_arrived  # the operation has not sent this question
        for index, node in enumerate(nodes):
            try:
                with deadline.limit(deadline.left() / (min(len(nodes) - index, _SHARES) + 1)):
                    [ranges] = node.exchange([_SLOTS])
                if isinstance(ranges, list) and ranges:
                    return self._set_table(ranges, node)
                problem = ranges if isinstance(ranges, ResponseError) else problem
            except (RedisError, OSError, *MALFORMED) as error:
                problem = error
                deadline.update(may_have_arrived=before)
        self._is_stale = True
        if not self._slots:
            raise problem
        return self._slots

    def _set_table(self, ranges: Sequence[Reply], source: Node) -> list[Node | None]:
        slots: list[Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        known = dict(self._seeds)
        for first, last, *servers in ranges:
            addresses = [
                self._address((host or b"").decode(), port, source) for host, port, *_ in servers
            ]
            known |= {address: self._node_at(address) for address in addresses}
            slots[first : last + 1] = [known[addresses[0]]] * (last + 1 - first)  # the primary
        for node in set(self._known.values()).difference(slots):
            node.drop_idle()
        self._known, self._slots = known, slots
        return slots


def _slot_of(key: str) -> int:
    return key_slot(key.encode("utf-8", "surrogateescape"))


def _last_failure(node: Node | None) -> float:
    return 0.0 if node is None else node.failed_at
