"""SQL that the databases share: values, conditions and statements of the operations.

Parameters are `this_key`, `this_owner` (of a token: its subject), `this_fingerprint`, `this_kind`,
`record`, and in milliseconds `lease` and `keep`. Each statement changes one row under a condition,
or none; the rows that come back show which.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .table import CLAIM, KEY, RECORD, TOKEN, TOKEN_AGAIN, is_a, now, table, word

Columns = dict[str, sa.ColumnElement[Any]]

_row = table.c
_is_live = _row.expires > now()
_key = sa.bindparam("this_key", type_=KEY)
_owner = sa.bindparam("this_owner", type_=sa.LargeBinary())
_fingerprint = sa.bindparam("this_fingerprint", type_=sa.LargeBinary())
_keep = sa.bindparam("keep", type_=sa.BigInteger())
LEASE = sa.bindparam("lease", type_=sa.BigInteger())

NEW_CLAIM: Columns = {
    "key": _key,
    "kind": word(CLAIM),
    "owner": _owner,
    "fingerprint": _fingerprint,
    "lease_ends": now() + LEASE,
    "expires": now() + LEASE + _keep,
    "data": sa.null(),
}
"""A row that claims a key."""

MAY_CLAIM = sa.or_(~_is_live, sa.and_(is_a(CLAIM), _row.owner == _owner))
"""Whether an existing row gives way to a claim: it has ended, or is the owner's own."""

_left = (_row.lease_ends - now()).label("left")
IN_THE_WAY = sa.select(_row.kind, _row.fingerprint, _left, _row.data).where(
    _row.key == _key, ~MAY_CLAIM
)

HAS_CLAIM = sa.and_(_row.key == _key, is_a(CLAIM), _row.owner == _owner)
IS_RENEWABLE = sa.and_(HAS_CLAIM, _row.lease_ends > now())

COMPLETED: Columns = NEW_CLAIM | {
    "kind": word(RECORD),
    "lease_ends": sa.null(),
    "expires": now() + _keep,
    "data": sa.bindparam("record", type_=sa.LargeBinary()),
}
MAY_COMPLETE = sa.or_(~_is_live, sa.and_(is_a(CLAIM, RECORD), _row.owner == _owner))
NEW_TOKEN: Columns = NEW_CLAIM | {
    "kind": sa.bindparam("this_kind", type_=sa.Text()),
    "fingerprint": sa.literal(b"", sa.LargeBinary()),
    "lease_ends": sa.null(),
    "expires": now() + _keep,
}

RELEASE = sa.delete(table).where(HAS_CLAIM).returning(_row.key)
EXISTS = sa.select(_row.key).where(_row.key == _key, _is_live)
IS_TOKEN = EXISTS.where(is_a(TOKEN, TOKEN_AGAIN))
_IS_FOR_SUBJECT = sa.or_(_row.owner == b"", _row.owner == _owner)
MAY_TAKE = sa.and_(_row.key == _key, _IS_FOR_SUBJECT, _is_live)
TAKE = sa.delete(table).where(MAY_TAKE, is_a(TOKEN, TOKEN_AGAIN)).returning(_row.kind)

# Waits for a transaction that has locked the row: for its COMMIT, or its end.
LOOK_UP = (
    sa.select(_row.kind).where(_row.key == _key, _row.owner == _owner, _is_live).with_for_update()
)


def claimed_anew(new: sa.ColumnCollection[str, Any]) -> Columns:
    """Return the times of a row that has given way to a claim.

    A claim that was sent twice may arrive after the keeper has raised its lease, which must not
    end earlier by that. Every other row that gives way has expired.

    Args:
        new: the columns of the row that would have been inserted.
    """
    lease_ends = sa.case((_row.lease_ends > new.lease_ends, _row.lease_ends), else_=new.lease_ends)
    return {"lease_ends": lease_ends, "expires": lease_ends + _keep}


def renewed(lease: sa.ColumnElement[int]) -> dict[str, sa.ColumnElement[int]]:
    """Return the new values of a claim whose lease restarts."""
    kept = _row.expires - _row.lease_ends
    return {"lease_ends": now() + lease, "expires": now() + lease + kept}
