"""What the tests of several topologies ask of a store."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from flask_idempotence import StoreError
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal
from flask_idempotence.stores.redis.connection.wire import pack

KEYSPACE = Path(__file__).parents[2] / "docs" / "reference" / "keyspace.md"


def documented_user():
    """Return what the documentation says after ACL SETUSER; the password is `password`."""
    return re.search(r"(?m)^ACL SETUSER (.*)$", KEYSPACE.read_text())[1].split(" ")


def owner():
    return os.urandom(16)


def claim(store, key="k", lease=10):
    return store.claim(key, owner(), NO_FINGERPRINT, lease, 0)


def timed_failure(call):
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value, time.monotonic() - started


def works(store):
    mine = owner()
    assert store.claim("k", mine, NO_FINGERPRINT, 10, 0) == Claimed()
    assert store.renew([Renewal("k", mine, 10)]) == [Outcome.OK]
    assert store.release("k", mine) is Outcome.OK


def assert_fork_safe(store):
    def connections():
        ids = []
        for node in store._begin().primaries():
            ids += store._begin().send([pack("CLIENT", "ID")], node=node)
        return ids

    ours = connections()
    assert connections() == ours
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(1 if set(connections()) & set(ours) else 0)
    assert os.waitpid(child, 0)[1] == 0


def values_of(store):
    """Return all values that a memory store holds, also those that have expired."""
    return {key: held for part in store._parts for key, held in part.values.items()}
