"""Changes to the engine, the guards and the stores that certain tests have to find.

`python -m proofs.mutation` tries a sample of all changes, and all tests that call the function.
"""

import time

import pytest

from proofs.mutation.changes import FILES, FOUND_BY
from proofs.mutation.steps import mutate, outcomes, try_mutants

pytestmark = pytest.mark.mutation

TESTS = {change: f"tests/{test}" for test, changes in FOUND_BY.items() for change in changes}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """How each change ended, and how the controls did."""
    directory = tmp_path_factory.mktemp("mutation") / "run"
    mutants = mutate(directory, [f"flask_idempotence/{file}" for file in FILES])
    names = {each: _name_of(each, mutants) for each in TESTS}
    chosen = {name: TESTS[change] for change, name in names.items() if name}
    tests = sorted({test.partition("::")[0] for test in chosen.values()})
    until = time.time() + 600
    try_mutants(directory, "not browser", tests, chosen=chosen, forks=4, until=until)
    found, controls = outcomes(directory)
    ended = {mutant.name: told["status"] for mutant, told in found}
    return {change: ended.get(name) for change, name in names.items()}, controls


def _name_of(change, mutants):
    function, after, *before = change
    like = [each for each in mutants if (each.function, each.added) == (function, after)]
    return next((each.name for each in like if all(x in each.removed for x in before)), None)


@pytest.mark.parametrize("change", TESTS, ids=": ".join)
def test_a_change_is_found(results, change):
    ended, _ = results
    assert ended[change], "mutmut makes no such change of the code as it is: choose another"
    assert ended[change] == "killed"


def test_nothing_is_found_where_nothing_is_changed(results):
    _, controls = results
    assert controls == {"control passed": len(TESTS)}
