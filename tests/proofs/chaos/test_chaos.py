"""What holds while workers die and freeze, and Redis dies, forgets connections or is replaced.

``CHAOS_SECONDS`` is for how long faults strike (by default two minutes for the one server), and
``CHAOS_SEED`` chooses the cases and the faults.
"""

import os

import pytest

from .checks import CHECKS
from .faults import OneServer, Sentinels
from .history import KEY_MODES, KILLED, STOPPED
from .report import counts_of, worst_of
from .scenario import play

pytestmark = pytest.mark.chaos

SIDES = {"one server": (OneServer, 1.0), "sentinels": (Sentinels, 0.5)}
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))


@pytest.fixture(scope="module", params=SIDES)
def history(request, tmp_path_factory):
    side, share = SIDES[request.param]
    directory = tmp_path_factory.mktemp("chaos")
    played = play(side(), directory, seconds=share * SECONDS, seed=SEED)
    played.title, played.kinds = request.param, side.kinds
    return played


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_whatever_fails(history, check):
    assert list(check(history)) == [], worst_of(history)


def test_it_was_chaos_and_work_was_done(history, record_property):
    """Else the tests above prove nothing."""
    counts = counts_of(history)
    told = [f"{heading}: {dict(of_these)}" for heading, of_these in counts.items()]
    record_property("report", "\n".join([f"{history.title}, seed {SEED}", *told]))
    for kind in [KILLED, STOPPED, *history.kinds]:
        assert counts["Faults"][kind] > 0, kind
    views = counts["Views"]
    assert views["were in the middle when their worker was killed"] > 0
    assert views["were in the middle when their worker was stopped"] > 0
    assert views["longer than their lease"] > 0
    assert counts["Second runs, at-least-once"].total() > 0
    modes = {run.mode for run in history.runs if run.end == "success"}
    assert modes >= {*KEY_MODES, "lock", "token"}
    assert counts["Answers"]["201 replayed"] > 100
    assert set(KEY_MODES) <= {attempt.mode for attempt in history.attempts if attempt.probe}
