"""What is written by hand asks of a table in a database: one statement a step, through SQLAlchemy.

A connection is taken of the engine's pool for each statement, which commits by itself.
"""

from sqlalchemy import create_engine, text

CLOCKS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
}
"""Milliseconds since 1970, by the database."""

CLAIM = """
INSERT INTO flask_idempotence (key, kind, owner, fingerprint, lease_ends, expires)
VALUES (:key, 'claim', :owner, :fingerprint, {now} + :lease, {now} + :lease)
ON CONFLICT (key) DO UPDATE SET kind = 'claim', owner = excluded.owner,
  fingerprint = excluded.fingerprint, lease_ends = excluded.lease_ends,
  expires = excluded.expires, data = NULL
WHERE flask_idempotence.expires <= {now} RETURNING key
"""
LOOK = "SELECT kind, fingerprint, data FROM flask_idempotence WHERE key = :key AND expires > {now}"
COMPLETE = """
INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires, data)
VALUES (:key, 'record', :owner, :fingerprint, {now} + :ttl, :data)
ON CONFLICT (key) DO UPDATE SET kind = 'record', lease_ends = NULL,
  expires = excluded.expires, data = excluded.data
WHERE flask_idempotence.owner = excluded.owner RETURNING key
"""
RELEASE = "DELETE FROM flask_idempotence WHERE key = :key AND owner = :owner"
PUT_TOKEN = """
INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires)
VALUES (:key, 'token', :nothing, :nothing, {now} + :ttl)
"""
TAKE_TOKEN = """
DELETE FROM flask_idempotence WHERE key = :key AND kind = 'token' AND expires > {now}
RETURNING key
"""


class InTable:
    """The extension's table, by statements of one's own."""

    how = "INSERT"

    def __init__(self, uri: str):
        self._engine = create_engine(uri, isolation_level="AUTOCOMMIT")
        now = CLOCKS[self._engine.dialect.name]
        self._claim, self._look, self._complete, self._release, self._put, self._take = (
            text(statement.format(now=now))
            for statement in (CLAIM, LOOK, COMPLETE, RELEASE, PUT_TOKEN, TAKE_TOKEN)
        )

    def claim(self, key, owner, fingerprint, lease):
        values = {"key": key, "owner": owner, "fingerprint": fingerprint}
        values["lease"] = round(lease * 1000)
        with self._engine.connect() as connection:
            if connection.execute(self._claim, values).first() is not None:
                return 0
            return self._found(connection, key, fingerprint)

    def look(self, key, owner, fingerprint, lease):
        del owner, lease  # it does not claim
        with self._engine.connect() as connection:
            return self._found(connection, key, fingerprint)

    def _found(self, connection, key, fingerprint):
        row = connection.execute(self._look, {"key": key}).first()
        if row is None:
            raise RuntimeError(f"nothing stands at {key!r}")
        is_done = row.kind == "record"
        return [2 if is_done else 1, bytes(row.fingerprint) == fingerprint, row.data]

    def complete(self, key, owner, fingerprint, record, ttl):
        values = {"key": key, "owner": owner, "fingerprint": fingerprint, "data": record}
        self._run(self._complete, values | {"ttl": round(ttl * 1000)})

    def release(self, key, owner):
        with self._engine.connect() as connection:
            connection.execute(self._release, {"key": key, "owner": owner})

    def put_tokens(self, keys, ttl):
        rows = [{"key": key, "nothing": b"", "ttl": ttl * 1000} for key in keys]
        with self._engine.begin() as connection:
            connection.execute(self._put, rows)

    def take_token(self, key):
        return self._run(self._take, {"key": key}) is not None

    def _run(self, statement, values):
        with self._engine.connect() as connection:
            return connection.execute(statement, values).first()
