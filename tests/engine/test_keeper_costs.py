"""What the keeper costs while it holds a thousand leases on a real Redis."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.lifecycle

LEASES = 1000
LEASE = 3.0
TEN_TIMES = 30.0 / LEASE
"""With leases of 30 s it has a tenth of the work."""


@pytest.fixture
def measured(redis_url):
    path = Path(__file__).parents[2] / "benchmarks" / "keeper.py"
    spec = importlib.util.spec_from_file_location("keeper_benchmark", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    measured = benchmark.Measured(redis_url, lease=LEASE)
    yield measured
    measured.end()


def test_a_thousand_leases_of_thirty_seconds_cost_less_than_a_twentieth_of_a_core(measured):
    measured.hold(LEASES, over=LEASE / 3)
    measured.batches.renewals = 0
    share = measured.share(2 * LEASE)
    assert share / TEN_TIMES < 0.05
    assert measured.lost == 0
    # Six thirds of a lease, and in each what is due within a twelfth of it shares a pipeline.
    assert 6 <= measured.batches.renewals <= 30
