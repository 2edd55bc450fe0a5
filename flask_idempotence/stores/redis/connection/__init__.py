"""Connections to Redis: commands sent within one deadline.

clients     a URI, or the application's client, becomes a deployment
deployment  sends commands to the right servers: attempts, redirections, batches
primary     one server, or the primary that sentinels name
cluster     the primaries of a cluster
node        one server: its idle connections and its circuit breaker
wire        the bytes of a round trip; factory and tls make such connections
replies     the codes of error replies
deadline    the time that is left to the thread's operation
"""

from .clients import SCHEMES, deployment_at, deployment_of
from .deadline import deadline
from .deployment import Deployment
from .node import Node, Quorum
from .replies import error_code, failure
from .wire import Command, Reply

__all__ = [
    "SCHEMES",
    "Command",
    "Deployment",
    "Node",
    "Quorum",
    "Reply",
    "deadline",
    "deployment_at",
    "deployment_of",
    "error_code",
    "failure",
]
