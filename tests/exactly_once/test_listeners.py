"""Listeners of the application at every event of SQLAlchemy, beside `within=`."""

from contextlib import closing

import pytest
from helpers.listeners import EVENTS, KINDS, ListeningApp, faults_at

AT_A_COMMIT = [
    *(("session", each) for each in ("after_begin", "before_commit", "after_commit")),
    *(("engine", "commit"), ("pool", "checkin")),
]
CASES = [
    *((*each, kind, 201) for each in AT_A_COMMIT for kind in KINDS),
    *(
        pytest.param(*each, "key", status, marks=pytest.mark.deep)
        for each in EVENTS
        for status in (201, 422)
    ),
]
"""Every event is in -m deep; on databases, in proofs/databases/exactly_once/test_listeners.py."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listeners")
    urls = (f"sqlite:///{folder}/{name}.db" for name in ("books", "elsewhere"))
    with closing(ListeningApp(*urls, connect_args={"timeout": 0.2})) as site:
        yield site


@pytest.mark.parametrize(("to", "name", "kind", "status"), CASES)
# Of an object whose listener has raised.
@pytest.mark.filterwarnings("ignore:Exception ignored.*InstanceState._cleanup")
def test_a_listener_may_do_what_it_may_without_a_guard(site, to, name, kind, status):
    assert faults_at(site, to, name, kind, status) == {}
