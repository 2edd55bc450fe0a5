"""The public API stays as it is, unless a change says so in `public_api.json`."""

import sys

import pytest
from helpers.public_api import COMMAND, difference, written
from helpers.repository import ROOT
from helpers.servers.processes import run_to_end


def test_the_public_api_is_the_one_that_is_written_down():
    """A process of its own sees the defaults of users, not those of the tests."""
    command = [sys.executable, "-m", "helpers.public_api", "--check"]
    done = run_to_end(command, cwd=ROOT / "tests")
    if done.returncode:
        pytest.fail(
            "The public API differs from tests/public_api.json. If users shall notice that, write "
            f"it into the pages and the changelog, and run\n\n    {COMMAND}\n\n"
            + done.stdout
            + done.stderr,
            pytrace=False,
        )


def test_a_difference_is_shown_below_its_headings():
    old = {"names": {"a": {"()": ["x"]}, "b": {"()": ["x", "y"]}}, "settings": {"A": "1"}}
    new = {"names": {"a": {"()": ["x"]}, "b": {"()": ["x"]}}, "settings": {"A": "2"}}
    shown = [line.replace(" ", "") for line in difference(written(old), written(new)).splitlines()]
    assert shown == [
        *("{", '"names":{', '"b":{', '"()":[', '-"y"', '"settings":{', '-"A":"1"', '+"A":"2"')
    ]
