"""The link to Redis: sends commands within one deadline, over connections of its own.

link        one deadline a call; what may be sent again, and where to
topology    which server: one, the primary that sentinels name, a node of a cluster
node        the idle connections to one server, and whether it has fallen silent
refusals    what an error reply says of the command that it answers
connections those of the application's client, made anew under our deadline
clients     a URI, or a ready client, becomes a topology
"""

from .clients import SCHEMES, split_options, topology_at, topology_of
from .connections import Command, Reply
from .link import Link
from .node import Node, Quorum
from .refusals import failure, is_of_another_type
from .topology import Topology

__all__ = [
    "SCHEMES",
    "Command",
    "Link",
    "Node",
    "Quorum",
    "Reply",
    "Topology",
    "failure",
    "is_of_another_type",
    "split_options",
    "topology_at",
    "topology_of",
]
