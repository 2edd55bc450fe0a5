"""The figures of a run: what is compared, and what fails."""

import subprocess
import sys

import pytest
from helpers.repository import ROOT

from .lines import Line
from .soak import WORKERS, Samples
from .verdict import Limits, _of_series, faults_of, lines_of, parts_of, report_of, shortest_run

PROCESSES = [*(f"worker {number}" for number in range(1, WORKERS + 1)), "master"]


def a_run(**changed):
    """Return the samples of twenty steady minutes; some series by their growth each minute."""
    samples = Samples("a store", began=0.0, ended=1200.0)
    steady = {f"{name} {what}": 50.0 for name in PROCESSES for what in ("USS", "RSS")}
    steady |= {f"{name} {what}": 18.0 for name in PROCESSES for what in ("threads", "descriptors")}
    steady |= {"connections": 32.0, "keys": 2000.0, "store's bytes": 1e6}
    for number in range(1, 121):
        moment = 10.0 * number
        for name, value in steady.items():
            grown = changed.get(name, 0.0) * moment / 60
            # It goes up and down all the time, as expired rows come and go.
            swing = 50 * (number % 8) if name == "keys" else 0
            samples.series[name].append((moment, value + grown + swing))
        slower = 1 + changed.get("time", 0.0) * moment / 60
        samples.series["requests"].append((moment, 1200.0 * number))
        samples.series["CPU of the clients"].append((moment, 0.5 * number))
        work = changed.get("CPU", 0.0) * number * number
        samples.series["CPU of the workers"].append((moment, 1.5 * number + work))
        samples.ratios.append((moment, 1.5 * slower))
    samples.timing = {"floor": [(float(moment), 0.001) for moment in range(1200)]}
    return samples


def failed(samples):
    return [line.name for line in lines_of(samples, Limits()) if line.verdict == "FAILED"]


def test_a_steady_run_is_within_every_limit():
    table, faults = report_of(a_run(), Limits())
    assert faults == []
    assert table.count("| ok |") == 4 * len(PROCESSES) + 3 + 2


@pytest.mark.parametrize(
    ("name", "a_minute", "line"),
    [
        ("worker 1 USS", 0.15, "worker 1, USS"),  # 3.9 % in thirteen and a half minutes
        ("worker 2 RSS", 0.15, "worker 2, RSS"),
        ("worker 2 threads", 0.1, "worker 2, threads"),
        ("master descriptors", 0.1, "master, descriptors"),
        ("connections", 0.1, "connections in the store"),
        ("keys", 10, "keys in the store"),
        ("store's bytes", 4000, "store's bytes"),
        ("time", 0.004, "guarded ÷ unguarded, median"),
        ("CPU", 1e-2, "CPU a request, workers ÷ clients"),
    ],
)
def test_what_grows_by_more_than_three_percent_fails(name, a_minute, line):
    assert failed(a_run(**{name: a_minute})) == [line]


def test_a_short_run_is_compared_once_as_many_records_expire_as_are_made():
    """Three minutes, with records that are kept for one of them."""
    samples = Samples("a store", ttl=60.0, began=0.0, ended=180.0)
    for moment in range(1, 181):
        samples.series["keys"].append((float(moment), min(moment, 60) * 20.0))
    early, end = parts_of(samples)
    assert early == pytest.approx((75 / 180, 93 / 180))
    assert early[1] <= end[0]
    [keys] = _of_series(samples, Limits())
    assert (keys.name, keys.verdict) == ("keys in the store", "ok")
    assert shortest_run(60) == pytest.approx(100)
    assert parts_of(a_run()) == ((0.2, pytest.approx(0.3)), (0.85, 1.0))


def test_a_run_that_ends_before_its_records_do_is_refused():
    command = [sys.executable, "-m", "proofs.endurance", "soak", "redis", "--minutes", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT / "tests")
    assert done.returncode == 2
    assert "with records of 60 seconds, at least 1.7" in done.stderr


def test_what_shrinks_is_no_failure():
    assert failed(a_run(**{"worker 1 USS": -1.0, "time": -0.01})) == []


def test_what_was_not_there_and_is_there_at_the_end_fails():
    assert Line("connections", 0, 1, limit=0.03).verdict == "FAILED"
    assert Line("connections", 0, 0, limit=0.03).verdict == "ok"


def test_unexpected_answers_and_late_clients_are_named():
    samples = a_run()
    samples.problems, samples.late = {"/key: 500": 2}, 0.05
    assert faults_of(samples, Limits()) == ["2 x /key: 500", "5.0 % of the operations began late"]
