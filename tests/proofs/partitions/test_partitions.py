"""What holds while the network splits."""

import pytest

from proofs.chaos.checks import (
    ALWAYS_IN_A_SPLIT,
    IN_A_SPLIT,
    at_most_once_ran_nothing_twice,
    nothing_acknowledged_is_forgotten,
)
from proofs.chaos.report import worst_of

from .faults import FAULTS
from .postgres import POSTGRES_FAULTS, PostgresHosts
from .scenario import play
from .servers import ClusterHosts

pytestmark = [pytest.mark.partition, pytest.mark.usefixtures("needs_network")]

BOTH = {"loss", "no-majority"}
"""Faults in which sentinels may promote the replica that has not confirmed; both must."""

OFTEN = {
    *("loss", "no-majority", "primary-paused", "split-brain"),
    *("standby-away", "taken-over", "unconfirmed", "unheard"),
}
"""Faults of every run; `-m "partition and deep"` runs the others."""


def each_of(faults):
    """Parameters, of which those that are rarely run have the mark `deep`."""
    marks = {name: () if name in OFTEN else pytest.mark.deep for name in sorted(faults)}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


def check(history):
    assert not worst_of(history, IN_A_SPLIT)
    assert len(history.runs) > 50


def refused(history):
    return sum(attempt.slug == "store-unavailable" for attempt in history.attempts)


# With a deadline of one second, half of what is sent in a slow network is refused.
@pytest.mark.parametrize("fault", each_of(FAULTS.keys() - {"delay", "delay-4s"}))
def test_what_holds_where_a_replica_is_waited_for(tmp_path, fault):
    """As docs/choose-a-topology.md says."""
    waiting = {"wait_replicas": 2 if fault in BOTH else 1, "min_replicas": True}
    check(play(FAULTS[fault], tmp_path, **waiting))


def test_a_deadline_of_thirteen_round_trips_is_enough_for_a_slow_network(tmp_path):
    history = play(FAULTS["delay-4s"], tmp_path, wait_replicas=1, min_replicas=True)
    assert not worst_of(history, IN_A_SPLIT)
    assert refused(history) < len(history.attempts) / 50


@pytest.mark.parametrize("fault", each_of(["split-brain", "primary-paused"]))
def test_what_holds_on_a_cluster_where_a_replica_is_waited_for(tmp_path, fault):
    check(play(FAULTS[fault], tmp_path, servers=ClusterHosts, wait_replicas=1))


@pytest.mark.parametrize("fault", each_of(POSTGRES_FAULTS))
def test_what_holds_on_postgresql_with_a_synchronous_standby(tmp_path, fault):
    check(play(POSTGRES_FAULTS[fault], tmp_path, servers=PostgresHosts))


def test_a_split_forgets_what_no_replica_has(tmp_path):
    """Not promised, and the reason to believe the test above: the method does find losses."""
    history = play(FAULTS["split-brain"], tmp_path)
    assert [*nothing_acknowledged_is_forgotten(history)]
    assert [*at_most_once_ran_nothing_twice(history)]
    assert not worst_of(history, ALWAYS_IN_A_SPLIT)
