"""The store in a table of a database, through SQLAlchemy (extra `sql`).

store       the store, and the databases that it knows
statements  the operations as statements
connection  statements on a connection, compiled once and sent by the driver's cursor
dialect     the base class of a database: one subclass a file (`mysql`, `sqlite`, …)
executor    one deadline an operation, retries, errors
pool        connections of the store's own; a watchdog gives up on a server that does not answer
table       the table, and its creation
"""

from .store import SqlStore
from .table import metadata, table

__all__ = ["SqlStore", "metadata", "table"]
