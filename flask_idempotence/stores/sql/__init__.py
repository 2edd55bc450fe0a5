"""The store in a table of a database, through SQLAlchemy (extra `sql`).

store       the store: one deadline an operation, retries, pruning
statements  the table, and the operations as statements on it
connection  statements on a connection, compiled once and sent by the driver's cursor
dialect     the base class of a database: one subclass a file (`mysql`, `sqlite`, …); errors
pool        connections of the store's own; a watchdog gives up on a server that does not answer
"""

from .statements import metadata, table
from .store import SqlStore

__all__ = ["SqlStore", "metadata", "table"]
