"""What the keeper costs while it holds a thousand leases on a real Redis."""

import pytest
from helpers.held_leases import HeldLeases

pytestmark = pytest.mark.lifecycle

LEASES = 1000
LEASE = 3.0
TEN_TIMES = 30.0 / LEASE
"""With leases of 30 s it has a tenth of the work."""


@pytest.fixture
def leases(redis_url):
    leases = HeldLeases(redis_url, lease=LEASE)
    yield leases
    leases.end()


def test_a_thousand_leases_of_thirty_seconds_cost_less_than_a_twentieth_of_a_core(leases):
    leases.hold(LEASES, over=LEASE / 3)
    leases.renewals.pipelines = 0
    share = leases.share(2 * LEASE)
    assert share / TEN_TIMES < 0.05
    assert leases.lost == 0
    # Six thirds of a lease, and in each what is due within a twelfth of it shares a pipeline.
    assert 6 <= leases.renewals.pipelines <= 30
