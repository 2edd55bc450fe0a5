"""A guarded application beside its bare twin, which get the same drawn requests."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.twins import differences_of_enforcing, differences_of_observing

KINDS = {"observing": differences_of_observing, "enforcing": differences_of_enforcing}

# Werkzeug leaves its files open where a form breaks off.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed file:ResourceWarning")


@pytest.fixture(autouse=True)
def left_files():
    yield
    gc.collect()


ON_A_FULL_DISK = """
import logging, resource, sys
from helpers.twins import differences_of_observing
logging.disable()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, most))
found = list(differences_of_observing(range(*map(int, sys.argv[1:])), long=True))
sys.exit(repr(found) if found else 0)
"""


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_requests(kind, part):
    assert not list(KINDS[kind](range(part * 250, part * 250 + 250)))


FOUND = {
    "observing": (5639, 6275),  # kept, and read as a form by a function of the application
    "enforcing": (
        *(3390, 4753, 9675),  # broken off behind a decoder of the application
        10288,  # decoded by a middleware, and looked at by a hook
    ),
}
"""Drawn requests that were answered otherwise behind a guard once."""


@pytest.mark.parametrize("kind", FOUND)
def test_drawn_requests_that_differed_once(kind):
    assert not list(KINDS[kind](FOUND[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_requests_with_long_bodies(kind):
    assert not list(KINDS[kind](range(50), long=True))


def find_on_a_full_disk(*numbers):
    """Let a child process without room for temporary files compare, as users' workers would."""
    command = [sys.executable, "-W", "ignore", "-c", ON_A_FULL_DISK, *map(str, numbers)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_drawn_requests_on_a_full_disk():
    find_on_a_full_disk(0, 50)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_drawn_requests(kind, part):
    first = 1000 + part * 1000
    assert not list(KINDS[kind](range(first, first + 1000)))
    assert not list(KINDS[kind](range(first, first + 50), long=True))
    find_on_a_full_disk(first, first + 50)
