"""Stores of claims, records and tokens; every other wing may import it.

base     the contract, and the optional interface for commands
uris     a URI becomes a store
memory   in this process; `redis` on a server and `sql` in a table, both imported when used
facts    servers' versions, settings and state
process  clocks, forks, exit, threads, the circuit breaker
"""

from .base import Store
from .memory import MemoryStore
from .uris import open_store

__all__ = ["MemoryStore", "Store", "open_store"]
