"""Waits of every kind where the functions of `time` are replaced: by gevent, or by a frozen clock.

Each runs in a process of its own, whose modules stay replaced.
"""

import json
import subprocess
import sys

import pytest
from helpers.servers.processes import environment


@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize(
    "when",
    [
        *(pytest.param(each, marks=pytest.mark.gevent) for each in ("before", "after")),
        "frozen",
    ],
)
def test_repeats_wait_for_the_first_after_the_clock_was_replaced(when, store, redis_url):
    uri = redis_url if store == "redis" else "memory://"
    command = [sys.executable, "-m", "helpers.applications.waits", when, uri]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    created = [201] * 4
    assert json.loads(ended.stdout) == {
        "answers": {"key": created, "lock": created, "once": [1] * 4, "named": [1] * 4},
        "runs": {"key": 1, "lock": 4, "once": 1, "named": 4},
        "ended": [True],
    }
