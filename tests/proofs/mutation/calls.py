"""A plugin of pytest that notes which functions each test calls, by mutmut's trampolines."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from mutmut.configuration import config
from mutmut.core import MutmutCallStack
from mutmut.mutation import trampoline
from mutmut.state import state

_calls = {}
_seconds = Counter()
_left_out = set()


def pytest_configure() -> None:
    """Switch the trampolines to noting, in this process alone."""
    config()  # read now: some tests change the directory
    trampoline._mutant_under_test = "stats"
    # Which function calls which is not needed; noted in a context variable, it fails some tests.
    MutmutCallStack.set = MutmutCallStack.reset = lambda value: None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    state()._stats.clear()
    result = yield
    _calls[item.nodeid] = sorted(set(state()._stats))
    return result


def pytest_runtest_logreport(report) -> None:
    """Note how long a test takes; one that fails or is skipped here finds nothing."""
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _left_out.add(report.nodeid)


def pytest_sessionfinish() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker or _calls:
        told = {
            test: [round(_seconds[test], 4), calls]
            for test, calls in _calls.items()
            if test not in _left_out
        }
        notes = Path(os.environ["MUTATION_DIRECTORY"], "notes")
        (notes / f"calls-{worker}.json").write_text(json.dumps(told))
