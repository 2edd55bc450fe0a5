"""What the tests of several topologies ask of a store."""

import contextlib
import itertools
import os
import re
import signal
import threading
import time

import pytest

from flask_idempotence import StoreError
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal
from flask_idempotence.stores.redis.link import pack
from helpers.repository import REFERENCE, text_of
from helpers.servers.processes import until


def documented_user():
    """Return what the documentation says after ACL SETUSER; the password is `password`."""
    return re.search(r"(?m)^ACL SETUSER (.*)$", text_of(REFERENCE / "keyspace.md"))[1].split(" ")


def owner():
    return os.urandom(16)


def claim(store, key="k", lease=10):
    return store.claim(key, owner(), NO_FINGERPRINT, lease, 0)


def timed_failure(call):
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value, time.monotonic() - started


def answers(store):
    with contextlib.suppress(StoreError):
        store.ping()
        return True
    return False


def is_granted(store):
    with contextlib.suppress(StoreError):
        return claim(store, os.urandom(8).hex()) == Claimed()
    return False


def works(store):
    mine = owner()
    assert store.claim("k", mine, NO_FINGERPRINT, 10, 0) == Claimed()
    assert store.renew([Renewal("k", mine, 10)]) == [Outcome.OK]
    assert store.release("k", mine) is Outcome.OK


def is_true_in_a_child(question, seconds=20):
    """Return what is found in a fork of this process, which ends after so many seconds at most."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            os._exit(0 if question() else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def assert_fork_safe(store):
    def connections():
        return [store._ask(node, pack("CLIENT", "ID")) for node in store._primaries()]

    ours = connections()
    assert connections() == ours
    # Each server numbers its own.
    assert is_true_in_a_child(lambda: not any(map(int.__eq__, connections(), ours)))


def values_of(store):
    return dict(store._values)


def complete_until_it_is_killed(server, store, at_least):
    """Load a store until its server has confirmed so many completions, and kill the server.

    Returns:
        The keys whose completion was confirmed.
    """
    confirmed = []

    def work(name):
        for number in itertools.count():
            key, mine = f"{name}:{number}", owner()
            try:
                assert store.claim(key, mine, NO_FINGERPRINT, 60, 0) == Claimed()
                store.complete(key, mine, NO_FINGERPRINT, key.encode(), 60)
            except StoreError:
                return
            confirmed.append(key)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    assert until(lambda: len(confirmed) > at_least, 30)
    server.kill()
    for thread in threads:
        thread.join()
    return confirmed


def fill(store, number=3):
    """Leave idle connections in the store's pool, as threads do at the same time."""
    with contextlib.ExitStack() as all_at_once:
        for _ in range(number):
            all_at_once.enter_context(store._pool.connection(time.monotonic() + 5))


@contextlib.contextmanager
def packets(behind):
    """Count the packets that a server reads in this block; yields a function that returns them.

    Commands that are sent at once arrive in one packet, if they are short.
    """
    before = _reads(behind)
    after = []
    yield lambda: after[0] - before - 1  # the command that looks is one, too
    after.append(_reads(behind))


def _reads(behind):
    return behind.info("stats")["total_reads_processed"]
