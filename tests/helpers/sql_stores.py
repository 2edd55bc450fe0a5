"""Stores in tables of databases, opened and closed again."""

import signal
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore


@contextmanager
def sql_store(url, *, create=True, deadline=5, **options):
    """Open a store at a URL, with its table unless it is not to be made; options: the engine's."""
    engine = create_engine(url, **options)
    store = SqlStore(engine, deadline=deadline)
    if create:
        store.create_table()
    yield store
    store.close()
    engine.dispose()


class TimeLimit(BaseException):
    """As servers and task queues raise it by a signal."""


@contextmanager
def interrupted_after(seconds):
    """Expect that the block is still busy after so many seconds, and end it then by a signal."""

    def interrupt(*_):
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with pytest.raises(TimeLimit):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
