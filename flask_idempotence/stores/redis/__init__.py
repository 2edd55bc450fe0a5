"""The store on Redis or Valkey.

store       the contract, by the scripts in `lua`; keys and servers for commands
clients     a URI, or the application's client, becomes a deployment
deployment  sends commands and scripts to a server, or to the primary that sentinels name
cluster     the primaries of a cluster
node        one server: its idle connections and its circuit breakers
link        connections of redis-py, whose waits end at the deadline; the codes of error replies
names       connects by a host's name: its look-up and its addresses
deadlines   the deadline of an operation
"""

from .store import RedisStore

__all__ = ["RedisStore"]
