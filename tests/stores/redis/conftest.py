"""A server of Redis's protocol that says what a test tells it to."""

import pytest
from helpers.servers.faults import ScriptedServer


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server
