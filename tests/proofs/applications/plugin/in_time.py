"""A plugin of pytest that skips the tests for which no time is left, so that a run has results."""

import os
import time

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    if time.monotonic() > float(os.environ["SUITE_ENDS"]):
        pytest.skip("no time is left")
