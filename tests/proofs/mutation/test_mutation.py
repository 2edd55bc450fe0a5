"""Changes to the engine, the guards and the stores that certain tests have to find.

`python -m proofs.mutation` tries a sample of all changes, and all tests that call the function.
"""

import time
from collections import Counter

import pytest

from proofs.mutation.changes import CHANGES
from proofs.mutation.report import outcomes
from proofs.mutation.steps import mutate, try_mutants

pytestmark = pytest.mark.mutation


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mutation")
    files = sorted({change.file for change in CHANGES})
    names = {
        (mutant.function, mutant.removed, mutant.added): mutant.name
        for mutant in mutate(directory / "run", files)
    }
    chosen = {names[change.diff]: change.test for change in CHANGES if change.diff in names}
    tests = sorted({change.test.partition("::")[0] for change in CHANGES})
    try_mutants(
        directory / "run", "not browser", tests, chosen=chosen, forks=4, until=time.time() + 600
    )
    found, controls = outcomes(directory / "run")
    ended = {(mutant.function, mutant.removed, mutant.added): told for mutant, told in found}
    return ended, controls


@pytest.mark.parametrize(
    "change", CHANGES, ids=lambda change: f"{change.function}: {change.after}"
)
def test_a_change_is_found(results, change):
    ended, _ = results
    assert change.diff in ended, "mutmut makes no such change of the code as it is: choose another"
    assert ended[change.diff]["status"] == "killed"


def test_nothing_is_found_where_nothing_is_changed(results):
    _, controls = results
    assert controls == Counter({"control passed": len(CHANGES)})
