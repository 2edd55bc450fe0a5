"""What is written by hand asks of a table in MySQL or MariaDB, through SQLAlchemy.

The claim is an INSERT; the duplicate key is caught. A connection is taken of the engine's pool for
each statement, which commits by itself.
"""

from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

NOW = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000 AS SIGNED)"

CLAIM = """
INSERT INTO flask_idempotence (`key`, kind, owner, fingerprint, lease_ends, expires)
VALUES (:key, 'claim', :owner, :fingerprint, {now} + :lease, {now} + :lease)
"""
STEAL = """
UPDATE flask_idempotence SET kind = 'claim', owner = :owner, fingerprint = :fingerprint,
  lease_ends = {now} + :lease, expires = {now} + :lease, data = NULL
WHERE `key` = :key AND expires <= {now}
"""
LOOK = """
SELECT kind, fingerprint, data, expires <= {now} AS is_over FROM flask_idempotence
WHERE `key` = :key
"""
COMPLETE = """
UPDATE flask_idempotence SET kind = 'record', lease_ends = NULL, expires = {now} + :ttl,
  data = :data WHERE `key` = :key AND owner = :owner
"""
RECORD = """
INSERT INTO flask_idempotence (`key`, kind, owner, fingerprint, expires, data)
VALUES (:key, 'record', :owner, :fingerprint, {now} + :ttl, :data)
"""
RELEASE = "DELETE FROM flask_idempotence WHERE `key` = :key AND owner = :owner"
PUT_TOKEN = """
INSERT INTO flask_idempotence (`key`, kind, owner, fingerprint, expires)
VALUES (:key, 'token', '', '', {now} + :ttl)
"""
TAKE_TOKEN = """
DELETE FROM flask_idempotence WHERE `key` = :key AND kind = 'token' AND expires > {now}
"""


class InMySql:
    """The extension's table, by statements of one's own."""

    how = "INSERT"

    def __init__(self, uri: str):
        self._engine = create_engine(uri, isolation_level="AUTOCOMMIT")
        names = (CLAIM, STEAL, LOOK, COMPLETE, RECORD, RELEASE, PUT_TOKEN, TAKE_TOKEN)
        (
            self._claim,
            self._steal,
            self._look,
            self._complete,
            self._record,
            self._release,
            self._put,
            self._take,
        ) = (text(statement.format(now=NOW)) for statement in names)

    def claim(self, key, owner, fingerprint, lease):
        values = {"key": key, "owner": owner, "fingerprint": fingerprint}
        values["lease"] = round(lease * 1000)
        with self._engine.connect() as connection:
            try:
                connection.execute(self._claim, values)
            except IntegrityError:
                found = self._found(connection, key, fingerprint)
                if found is None and connection.execute(self._steal, values).rowcount:
                    return 0
                return found or self._found(connection, key, fingerprint)
            return 0

    def look(self, key, owner, fingerprint, lease):
        del owner, lease  # it does not claim
        with self._engine.connect() as connection:
            return self._found(connection, key, fingerprint)

    def _found(self, connection, key, fingerprint):
        row = connection.execute(self._look, {"key": key}).first()
        if row is None or row.is_over:
            return None
        is_done = row.kind == "record"
        return [2 if is_done else 1, bytes(row.fingerprint) == fingerprint, row.data]

    def complete(self, key, owner, fingerprint, record, ttl):
        values = {"key": key, "owner": owner, "fingerprint": fingerprint, "data": record}
        values["ttl"] = round(ttl * 1000)
        if not self._run(self._complete, values):
            self._run(self._record, values)

    def release(self, key, owner):
        self._run(self._release, {"key": key, "owner": owner})

    def put_tokens(self, keys, ttl):
        with self._engine.begin() as connection:
            connection.execute(self._put, [{"key": key, "ttl": ttl * 1000} for key in keys])

    def take_token(self, key):
        return self._run(self._take, {"key": key}) == 1

    def _run(self, statement, values):
        with self._engine.connect() as connection:
            return connection.execute(statement, values).rowcount
