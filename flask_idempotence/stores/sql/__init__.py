"""The store in a table of a database, through SQLAlchemy (extra `sql`).

store       the store: one deadline an operation, retries, pruning
statements  the table, and the operations as statements on it
dialect     a connection, and the base class of a database (`mysql`, `sqlite`, …); errors
pool        lends connections, which helper threads open; a timer ends overdue operations
"""

from .statements import metadata, table
from .store import SqlStore

__all__ = ["SqlStore", "metadata", "table"]
