"""The nodes of a Redis Cluster, and which of them serves which slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from .deadline import deadline
from .node import Address, Node
from .refusals import is_read_only
from .topology import Detour, Topology

PAUSE = 0.05
"""Seconds before a cluster that is rearranging itself is asked again."""

HOPS = 5
"""After so many detours each further one waits: two nodes may send us to one another."""

_CODES: dict[type, str] = {
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
}


class Cluster(Topology):
    """The primaries of a cluster. The table of slots is asked for when it is needed.

    Args:
        seeds: addresses of some of its nodes.
        connect_to: makes a connection to a host and port that is ready to be used.
        remap: translates an address that a node gives.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        connect_to: Callable[[str, int], Any],
        remap: Callable[[Address], Address],
    ) -> None:
        self._connect_to = connect_to
        self._remap = remap
        self._seeds = {seed: self._node_at(seed) for seed in seeds}
        self._nodes: dict[Address, Node] = {}
        self._slots: list[Node | None] = []
        self._is_stale = True

    def node_for(self, key: str | None) -> Node:
        """Return the primary that serves the key's slot."""
        self._know_the_slots()
        if key is None:
            return self.primaries()[0]
        slot = _slot_of(key)
        while (node := self._slots[slot]) is None:
            if not deadline.pause(PAUSE):
                raise RedisConnectionError(f"No node of the cluster serves slot {slot}.")
            self._refresh()
        return node

    def groups(self, keys: Sequence[str]) -> Iterable[list[int]]:
        """Return the indices of keys, in groups of one primary each."""
        self._know_the_slots()
        groups = defaultdict(list)
        for index, key in enumerate(keys):
            groups[self._slots[_slot_of(key)]].append(index)
        # Whoever failed last is asked last, so that it does not keep the others waiting.
        return [groups[node] for node in sorted(groups, key=_by_failure)]

    def primaries(self) -> Sequence[Node]:
        """Return all primaries that serve slots."""
        self._know_the_slots()
        found = list(dict.fromkeys(node for node in self._slots if node is not None))
        if not found:
            raise RedisConnectionError("No node of the cluster serves any slot.")
        return found

    def failed(self, node: Node) -> None:
        """Ask for the table anew: a replica may have taken the node's place."""
        super().failed(node)
        self._is_stale = True

    def nodes(self) -> Iterable[Node]:
        """Return those that the address names, and those of the table."""
        return {*self._seeds.values(), *self._nodes.values()}

    def detour(self, node: Node, error: ResponseError, tries: int) -> Detour | None:
        """Follow the cluster to where a slot is now, or wait until it knows."""
        code, rest = _told_by(error)
        if code == "ASK":
            return Detour(self._told_node(node, rest), asking=True)
        if code == "MOVED":
            moved_to = self._told_node(node, rest)
            self._slots[int(rest.partition(" ")[0])] = moved_to
            self._is_stale = True
            return Detour(moved_to, pause=PAUSE if tries >= HOPS else 0.0)
        if code == "TRYAGAIN":
            return Detour(node, pause=PAUSE)
        if code == "CLUSTERDOWN" or is_read_only(error):
            self._is_stale = True
            return Detour(pause=PAUSE)
        return None

    def _told_node(self, teller: Node, rest: str) -> Node:
        host, _, port = rest.partition(" ")[2].rpartition(":")
        if not host or host == "?":  # the teller's own host
            host = next((at[0] for at, node in self._known() if node is teller), "")
        return self._known_at(self._remap((host, int(port))))

    def _known(self) -> list[tuple[Address, Node]]:
        return [*self._nodes.items(), *self._seeds.items()]

    def _known_at(self, address: Address) -> Node:
        node = self._nodes.get(address) or self._seeds.get(address) or self._node_at(address)
        return self._nodes.setdefault(address, node)

    def _node_at(self, address: Address) -> Node:
        return Node(lambda: self._connect_to(*address))

    def _know_the_slots(self) -> None:
        # While one thread asks anew the others use what is known; the first time, all ask.
        if self._is_stale or not self._slots:
            self._refresh()

    def _refresh(self) -> None:
        """Ask the nodes for the table, those that failed last at the end.

        Raises:
            RedisError, OSError: no node tells, and there is no older table.
        """
        self._is_stale = False
        problem: Exception = RedisConnectionError("No node of the cluster tells its slots.")
        known = {node: address for address, node in self._known()}
        candidates = sorted(known, key=_by_failure)
        for asked, node in enumerate(candidates):
            try:
                with deadline.share(min(len(candidates) - asked, 3) + 1):
                    table = node.ask("CLUSTER", "SLOTS")
            except (RedisError, OSError) as error:
                problem = error
                continue
            if table:
                self._learn(table, known[node][0])
                return
        self._is_stale = True
        if not self._slots:
            raise problem

    def _learn(self, table: Sequence[Any], host: str) -> None:
        slots: list[Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        known, primaries = {}, set()
        for first, last, *servers in table:
            for place, server in enumerate(servers):
                # A node that does not know how others see it gives no host: the one we asked.
                told = (server[0] or b"").decode()
                address = self._remap((host if told in {"", "?"} else told, server[1]))
                known[address] = node = self._known_at(address)
                if place == 0:  # the others are its replicas
                    primaries.add(node)
                    slots[first : last + 1] = [node] * (last + 1 - first)
        for node in set(self._nodes.values()).difference(primaries):
            node.drop_idle()
        self._nodes, self._slots = known, slots


def _slot_of(key: str) -> int:
    return key_slot(key.encode("utf-8", "surrogateescape"))


def _by_failure(node: Node | None) -> float:
    return 0.0 if node is None else node.failed_at


def _told_by(error: ResponseError) -> tuple[str, str]:
    """Return the code of an error and what follows; older releases of redis-py have no classes."""
    code = _CODES.get(type(error))
    if code is not None:
        return code, str(error)
    code, _, rest = str(error).partition(" ")
    return code, rest
