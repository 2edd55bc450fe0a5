"""RedLock and `wait_replicas` on servers that fail: claims and effects that happen twice."""

import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from helpers.servers.processes import HOST, RedisServer

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.redlock.algorithm import RedLock
from benchmarks.redlock.failures import Counts, fail_over, restart
from benchmarks.redlock.latency import latencies
from benchmarks.redlock.pauses import Case, freeze

ALL = Counts(granted=3, refused=0, again=3)
NONE = Counts(granted=3, refused=0, again=0)
REFUSED = Counts(granted=0, refused=3, again=0)


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer()) for _ in range(3)]


@pytest.fixture
def lock(servers):
    with closing(RedLock([(HOST, server.port) for server in servers])) as lock:
        yield lock


def test_the_redlock_of_the_benchmark_excludes_until_it_is_released(servers, lock):
    held = lock.claim("k", 10)
    assert held.is_valid
    assert lock.claim("k", 10) is None
    assert [server.client().get("k") for server in servers] == [held.owner] * 3
    lock.release(held)
    assert lock.claim("k", 10).is_valid


def test_the_redlock_of_the_benchmark_needs_a_majority_and_leaves_nothing_without_one(
    servers, lock
):
    first, second, third = servers
    third.kill()
    assert lock.claim("k", 10).is_valid
    second.client().set("taken", "by another")
    assert lock.claim("taken", 10) is None
    assert first.client().get("taken") is None
    assert second.client().get("taken") == b"by another"


@pytest.mark.topology
@pytest.mark.parametrize(("replicas", "wait_replicas"), [(1, 0), (2, 1)])
def test_a_promoted_replica_that_was_not_waited_for_grants_all_claims_again(
    replicas, wait_replicas
):
    assert fail_over(3, replicas=replicas, wait_replicas=wait_replicas) == ALL


@pytest.mark.topology
@pytest.mark.parametrize("replicas", [1, 2])
def test_no_promoted_replica_grants_a_claim_again_where_all_are_waited_for(replicas):
    assert fail_over(3, replicas=replicas, wait_replicas=replicas) == NONE


@pytest.mark.topology
def test_where_all_replicas_are_waited_for_one_that_is_cut_off_stops_the_claims():
    assert fail_over(3, replicas=2, wait_replicas=2, cut_off=True) == REFUSED


@pytest.mark.topology
def test_redlock_outlives_an_empty_restart_only_if_all_servers_had_granted_the_claim():
    assert restart(3, servers=3, away=0, restarted=1) == NONE
    assert restart(3, servers=3, away=1, restarted=1) == ALL
    assert restart(3, servers=5, away=2, restarted=1) == ALL
    assert restart(3, servers=3, away=1, restarted=1, fsync=True) == NONE


@pytest.mark.topology
@pytest.mark.parametrize(
    ("case", "servers", "counts"),
    [
        (Case("redlock", "before"), 3, NONE),
        (Case("redlock", "after"), 3, ALL),
        (Case("once", "before"), 1, NONE),
        (Case("once", "after"), 1, ALL),
        (Case("once", "after", unique=True), 1, NONE),
        (Case("within", "after"), 1, NONE),
    ],
    ids=str,
)
def test_past_its_lease_a_frozen_holder_is_stopped_by_a_later_check_or_by_the_database(
    case, servers, counts
):
    assert freeze(3, case, servers=servers) == counts


@pytest.mark.topology
def test_the_packets_of_a_claim_are_counted_at_all_its_servers():
    packets = {variant.name: round(variant.packets) for variant in latencies(20)}
    assert (packets["one server"], packets["RedLock over 1"]) == (1, 1)
    assert (packets["RedLock over 3"], packets["RedLock over 5"]) == (3, 5)
    assert packets["`wait_replicas=2`, of 2"] >= 5
