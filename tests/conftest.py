"""Fixtures shared by all tests."""

import importlib.util
import shutil
from collections.abc import Iterator

import pytest
from servers import RedisServer, redis_binary, redis_version

pytest.register_assert_rewrite("flask_idempotence.testing.contract")


HAS_GEVENT = importlib.util.find_spec("gevent") is not None
collect_ignore = [] if HAS_GEVENT else ["test_gevent.py"]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the server that the tests run against, and what is left out."""
    lines = [] if HAS_GEVENT else ["gevent: not installed, its tests are left out"]
    if not shutil.which("node"):
        lines.append("node: not found, the tests of the script are left out")
    if not asks_for_a_browser(config):
        lines.append("browser: its tests are left out, -m browser runs them")
    try:
        binary = redis_binary()
        return [f"redis server: {binary} {redis_version(binary)}", *lines]
    except Exception as error:
        return [f"redis server: none ({error})", *lines]


def asks_for_a_browser(config: pytest.Config) -> bool:
    """Whether the expression of marks says anything about the tests in a browser."""
    return "browser" in config.option.markexpr


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests in a browser out, unless they are asked for."""
    if not asks_for_a_browser(config):
        left_out = [item for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if not item.get_closest_marker("browser")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for the whole run; a test that breaks or configures it takes fresh_redis."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of the shared server, which is empty."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def fresh_redis() -> Iterator[RedisServer]:
    """A server of the test's own, to pause, kill or configure."""
    with RedisServer() as server:
        yield server
