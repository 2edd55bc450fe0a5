"""What grows in a process, in its store, and in the time of a request; and leaks, to be found.

`ENDURANCE=25` makes all of it 25 times as long, and the limits of the load those of the report.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from . import soak
from .one_process import fork_often, hold_leases, send_keys
from .stores import STORES
from .verdict import Limits, grown, report_of

pytestmark = pytest.mark.endurance

TIMES = float(os.environ.get("ENDURANCE", "1"))


def in_a_process(play, *arguments):
    """Return what comes of a function in a process of its own, whose figures are its alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(play, *arguments).result()


@pytest.fixture
def load(tmp_path, record_property):

    def play(store, *, minutes=0.8, ttl=5.0, leak=(), of_store=0.6):
        plan = SimpleNamespace(store=store, minutes=minutes, ttl=ttl, leak=leak)
        limits = Limits(0.15, of_store, 0.6)
        if TIMES > 1:
            plan.minutes, plan.ttl, limits = minutes * TIMES, min(60.0, ttl * TIMES), Limits()
        lines, faults = report_of(soak.play(plan, tmp_path), limits)
        record_property("report", "\n".join([store, *lines]))
        return faults

    return play


@pytest.mark.parametrize("store", STORES)
def test_nothing_grows_under_a_mixed_load(load, store):
    # Rows of a table are pruned in rounds, of which such a run has three.
    assert load(store, of_store=0.6 if store == "redis" else 2.5) == []


LEAKS = {
    "memory time": ("USS", "guarded ÷ unguarded"),
    "descriptors threads connections keys": ("descriptors", "threads", "connections", "keys"),
}


@pytest.mark.parametrize("leaks", LEAKS)
def test_leaks_are_found(load, leaks):
    faults = load("redis", minutes=0.4, ttl=4.0, leak=leaks.split())
    for name in LEAKS[leaks]:
        assert any(name in fault and "→" in fault for fault in faults), faults


def test_unexpected_answers_and_late_clients_are_named():
    samples = soak.Samples(ended=60.0, problems={"/key: 500": 2}, late=0.05)
    for who in ("clients", "workers"):
        samples.series[f"CPU of the {who}"] = [(moment, moment) for moment in range(60)]
    late = "5.0 % of the operations began late"
    assert report_of(samples, Limits())[1] == ["2 x /key: 500", late]


def growth_of(store, count, directory, limit, record_property, **more):
    """Send distinct keys; return what grew from a tenth of them on, and the statuses."""
    count = int(count * TIMES)
    marks, statuses = in_a_process(send_keys, store, count, directory, *more.values())
    _, early, _, end = marks
    early = {name: early[name] for name in early if not name.startswith("keys")}
    lines, faults = grown(early, end, limit)
    record_property("report", "\n".join([f"{store}: {count} keys, {dict(statuses)}", *lines]))
    return faults, statuses


@pytest.mark.parametrize(
    ("store", "count", "limit"),
    [("memory", 100_000, 0.06), ("full", 50_000, 0.06), ("redis", 20_000, 0.03)],
)
def test_distinct_keys_leave_nothing_in_a_process(tmp_path, record_property, store, count, limit):
    faults, statuses = growth_of(store, count, tmp_path, limit, record_property)
    assert faults == []
    assert ("503 SERVICE UNAVAILABLE" in statuses) == (store == "full")


def test_keys_that_a_process_keeps_are_found(tmp_path, record_property):
    faults, _ = growth_of("memory", 20_000, tmp_path, 0.03, record_property, leak=True)
    assert any("allocated blocks" in fault for fault in faults)


def test_two_thousand_leases_are_renewed_in_time(tmp_path, record_property):
    told = in_a_process(hold_leases, "redis", int(2000 * TIMES), tmp_path, 6.0, 12.0)
    record_property("report", "\n".join(f"{name}: {value:.3g}" for name, value in told.items()))
    assert told["lost"] == told["missing in the store"] == 0
    assert told["left of a lease, at least"] > 2.0
    assert told["latest renewal"] < 1.0
    # The keeper runs, and with a database the timer of its sockets.
    assert told["threads that were started"] <= 2


@pytest.mark.parametrize("store", STORES)
def test_a_hundred_forks_leave_nothing_in_their_parent(tmp_path, record_property, store):
    marks, wrong = in_a_process(fork_often, store, int(100 * TIMES), tmp_path)
    assert {what: some[:5] for what, some in wrong.items() if some} == {}
    lines, faults = grown(marks[len(marks) // 10], marks[-1], 0.03)
    record_property("report", "\n".join([store, *lines]))
    assert faults == []
