"""Where partitions cannot be made, their tests are skipped; in CI that is a failure."""

import pytest
from helpers.servers.network import missing
from helpers.servers.processes import needed


@pytest.fixture(scope="session")
def needs_network():
    lacking = missing()
    reason = f"a network of namespaces needs {', '.join(lacking)}"
    needed(None if lacking else "all", reason)
