"""`within=`: a session, its transaction, and the completion of a claim in it.

Needs the extra `sql`. The engine and the guards import it; it imports the SQL store.
"""
