"""What holds while workers die and freeze, and Redis dies, forgets connections or is replaced.

``CHAOS_SECONDS`` is for how long faults strike (by default two minutes for the one server),
``CHAOS_SEED`` chooses the cases and the faults, and the report is also written to the file
``CHAOS_REPORT``.
"""

import os
from pathlib import Path

import pytest

from .checks import CHECKS
from .faults import OneServer, Sentinels
from .history import KEY_MODES, KILLED, STOPPED
from .report import counts_of, report, worst_of
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
    played.title = f"{request.param}, {share * SECONDS:.0f} s of faults, seed {SEED}"
    return played


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_whatever_fails(history, check):
    assert list(check(history)) == [], worst_of(history)


def test_it_was_chaos_and_work_was_done(history, record_property):
    """Else the tests above prove nothing."""
    told = report(history, history.title)
    record_property("report", told)
    if file := os.environ.get("CHAOS_REPORT"):
        with Path(file).open("a") as end:
            end.write(told + "\n\n")
    counts = counts_of(history)
    side = next(side for name, (side, _) in SIDES.items() if history.title.startswith(name))
    for kind in [KILLED, STOPPED, *side.kinds]:
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
