"""The figures of a run: what is compared, and what fails."""

import pytest

from .soak import Samples
from .verdict import Limits, compared, grown, report_of

RATIO = "guarded ÷ unguarded, median"


def a_run(**changed):
    """Return the samples of twenty steady minutes; some series by their growth each minute."""
    samples = Samples(began=0.0, ended=1200.0)
    steady = {f"{name}, USS, MiB": 50.0 for name in ("worker 1", "worker 2", "master")}
    steady |= {"worker 2, threads": 18.0, "connections": 32.0, "keys": 2000.0}
    steady |= {"store, MiB": 1.0, RATIO: 1.5}
    for number in range(1, 121):
        moment = 10.0 * number
        for name, value in steady.items():
            grown = changed.get(name, 0.0) * moment / 60
            # It goes up and down all the time, as expired rows come and go.
            swing = 50 * (number % 8) if name == "keys" else 0
            samples.series[name].append((moment, value + grown + swing))
        samples.series["CPU of the clients"].append((moment, 0.5 * number))
        work = changed.get("CPU", 0.0) * number * number
        samples.series["CPU of the workers"].append((moment, 1.5 * number + work))
    return samples


def test_a_steady_run_is_within_every_limit_and_what_shrinks_is_no_failure():
    assert report_of(a_run(), Limits())[1] == []
    assert report_of(a_run(**{"worker 1, USS, MiB": -1.0, RATIO: -0.015}), Limits())[1] == []


@pytest.mark.parametrize(
    ("name", "a_minute"),
    [
        ("worker 1, USS, MiB", 0.15),  # 3.9 % in thirteen and a half minutes
        ("worker 2, threads", 0.1),
        ("connections", 0.1),
        ("keys", 10),
        ("store, MiB", 0.004),
        (RATIO, 0.006),
        ("CPU", 1e-2),
    ],
)
def test_what_grows_by_more_than_three_percent_fails(name, a_minute):
    [fault] = report_of(a_run(**{name: a_minute}), Limits())[1]
    assert fault.startswith(name)


def test_what_was_not_there_and_is_there_at_the_end_fails():
    assert grown({"connections": 0}, {"connections": 1}, 0.03)[1] != []
    assert grown({"connections": 0}, {"connections": 0}, 0.03)[1] == []


def test_unexpected_answers_and_late_clients_are_named():
    samples = a_run()
    samples.problems, samples.late = {"/key: 500": 2}, 0.05
    late = "5.0 % of the operations began late"
    assert report_of(samples, Limits())[1] == ["2 x /key: 500", late]


def test_a_short_run_is_compared_once_as_many_records_expire_as_are_made():
    early, end = compared(Samples(ttl=60.0, began=0.0, ended=180.0))
    assert early == pytest.approx((75 / 180, 93 / 180))
    assert early[1] <= end[0]
