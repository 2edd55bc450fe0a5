"""What holds while the network splits.

`python -m partitions` runs all faults with and without `wait_replicas`, and for longer.
"""

import pytest

from .checks import CHECKS, NOT_PROMISED
from .cluster import ClusterHosts
from .faults import FAULTS
from .report import COLUMNS, figures_of, line, row
from .scenario import Safety, play

pytestmark = [pytest.mark.partition, pytest.mark.usefixtures("needs_network")]

WAITING = Safety(wait_replicas=1, min_replicas=True)
"""As docs/choose-a-topology.md says."""

LONG = {"none", "delay", "clock-5s"}
"""Faults that only the report needs."""


@pytest.fixture
def run(tmp_path, record_property):
    def play_and_report(fault, safety, **servers):
        history = play(FAULTS[fault], safety, tmp_path, calm=2.0, seconds=6.0, **servers)
        told = row(safety.title, figures_of(history))
        record_property("report", f"{FAULTS[fault].title}\n{line(COLUMNS)}\n{told}")
        return history

    return play_and_report


def violations(history, checks):
    found = {check.__name__: list(check(history)) for check in checks}
    return {name: told for name, told in found.items() if told}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in LONG])
def test_what_holds_where_a_replica_is_waited_for(run, fault):
    history = run(fault, WAITING)
    assert violations(history, CHECKS) == {}
    assert figures_of(history).runs > 50


@pytest.mark.parametrize("fault", ["split-brain", "primary-paused"])
def test_what_holds_on_a_cluster_where_a_replica_is_waited_for(run, fault):
    history = run(fault, Safety(wait_replicas=1), servers=ClusterHosts)
    assert violations(history, CHECKS) == {}
    assert figures_of(history).runs > 50


def test_a_split_forgets_what_no_replica_has(run):
    """Not promised, and the reason to believe the test above: the method does find losses."""
    history = run("split-brain", Safety())
    figures = figures_of(history)
    assert figures.lost > 0
    assert figures.twice > 0
    others = [check for check in CHECKS if check not in NOT_PROMISED]
    assert violations(history, others) == {}
