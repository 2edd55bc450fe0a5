"""The store in a table of a database, through SQLAlchemy (extra `sql`).

store       the contract, in terms of outcomes
statements  what is asked of the database, on anybody's connection
dialects    what differs between SQLite and PostgreSQL
link        connections of our own, one deadline an operation, errors that say what to do
watchdog    gives up on a server that has fallen silent
pruning     expired rows are removed in small batches
table       the table
schema      creating the table, and telling whether it is the one that is needed
"""

from .store import SqlStore
from .table import metadata, table

__all__ = ["SqlStore", "metadata", "table"]
