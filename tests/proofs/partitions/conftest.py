"""Where partitions cannot be made, their tests are skipped; in CI that is a failure."""

import os

import pytest
from helpers.servers.network import missing


@pytest.fixture(scope="session")
def needs_network():
    if lacking := missing():
        reason = f"a network of namespaces needs {', '.join(lacking)}"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
