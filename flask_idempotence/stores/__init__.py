"""Stores of claims, records and tokens; every other wing may import it.

base     the contract, and the optional interface for commands
uris     a URI becomes a store
memory   in this process; `redis` on a server, `sql` in a table
pruning  removes expired rows in small batches; it needs no SQLAlchemy
facts    servers' versions, settings and state; `process` forks, exit and threads
"""

from .base import Store
from .memory import MemoryStore
from .redis.store import RedisStore
from .uris import open_store

__all__ = ["MemoryStore", "RedisStore", "Store", "open_store"]
