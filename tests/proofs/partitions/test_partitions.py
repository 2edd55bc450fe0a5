"""What holds while the network splits.

`python -m proofs.partitions` runs all faults with and without `wait_replicas`, and for longer.
"""

from dataclasses import replace

import pytest

from proofs.chaos.report import worst_of

from .checks import CHECKS, PROMISED, figures_of, head, row
from .faults import FAULTS
from .postgres import POSTGRES_FAULTS, PostgresHosts
from .scenario import Safety, play
from .servers import ClusterHosts

pytestmark = [pytest.mark.partition, pytest.mark.usefixtures("needs_network")]

WAITING = Safety(wait_replicas=1, min_replicas=True)
"""As docs/choose-a-topology.md says."""

BOTH = {"loss", "no-majority"}
"""Faults in which sentinels may promote the replica that has not confirmed; both must."""

LONG = {"none", "delay", "delay-4s", "clock-5s"}
"""Faults of the report, and one with a test of its own."""


OFTEN = {
    "loss",
    "no-majority",
    "primary-paused",
    "split-brain",
    "standby-away",
    "taken-over",
    "unconfirmed",
    "unheard",
}
"""Faults of every run; `-m "partition and deep"` runs the others."""


def each_of(faults):
    """Parameters, of which those that are rarely run have the mark `deep`."""
    marks = {name: () if name in OFTEN else pytest.mark.deep for name in faults}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


@pytest.fixture
def run(tmp_path, record_property):
    def play_and_report(fault, safety, **servers):
        history = play(fault, safety, tmp_path, calm=2.0, seconds=6.0, **servers)
        figures = figures_of(history)
        told = row(fault.title, safety.wait_replicas, figures)
        record_property("report", f"{head(figures)}\n{told}")
        return history

    return play_and_report


@pytest.mark.parametrize("fault", each_of(sorted(FAULTS.keys() - LONG)))
def test_what_holds_where_a_replica_is_waited_for(run, fault):
    safety = replace(WAITING, wait_replicas=2) if fault in BOTH else WAITING
    history = run(FAULTS[fault], safety)
    assert not worst_of(history, CHECKS)
    assert figures_of(history)["runs"] > 50


def test_a_deadline_of_thirteen_round_trips_is_enough_for_a_slow_network(run):
    history = run(FAULTS["delay-4s"], WAITING)
    assert not worst_of(history, CHECKS)
    figures = figures_of(history)
    assert figures["503"] < figures["requests"] / 50  # with one second it is about a half


@pytest.mark.parametrize("fault", each_of(["split-brain", "primary-paused"]))
def test_what_holds_on_a_cluster_where_a_replica_is_waited_for(run, fault):
    history = run(FAULTS[fault], Safety(wait_replicas=1), servers=ClusterHosts)
    assert not worst_of(history, CHECKS)
    assert figures_of(history)["runs"] > 50


@pytest.mark.parametrize("fault", each_of(POSTGRES_FAULTS))
def test_what_holds_on_postgresql_with_a_synchronous_standby(run, fault):
    history = run(POSTGRES_FAULTS[fault], Safety(), servers=PostgresHosts)
    assert not worst_of(history, CHECKS)
    assert figures_of(history)["runs"] > 50


def test_a_split_forgets_what_no_replica_has(run):
    """Not promised, and the reason to believe the test above: the method does find losses."""
    history = run(FAULTS["split-brain"], Safety())
    figures = figures_of(history)
    assert figures["lost records"] > 0
    assert figures["twice, at-most-once"] > 0
    assert not worst_of(history, PROMISED)
