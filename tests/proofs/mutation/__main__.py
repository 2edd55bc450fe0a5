"""Mutate the package, and count which changes the tests find.

uv run --directory tests --group mutation python -m proofs.mutation --minutes 60
uv run --directory tests --group mutation python -m proofs.mutation --resume /tmp/mutants --again
uv run --directory tests --group mutation python -m proofs.mutation --fixed --forks 1
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from . import fixed
from .mutants import mutants_in, results_in
from .steps import mutate, note_calls, outcomes, report, try_mutants

FOLDERS = (
    *("engine", "guards", "stores", "exactly_once", "response", "observability", "cli", "config"),
    *("testing", "model", "request", "web", "client", "openapi", "example"),
)
TESTS = [f"tests/{folder}" for folder in FOLDERS]
KINDS = "database or topology or lifecycle or not browser"
"""With the slow tests of stores and processes; a kind that is not named here is left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--resume", type=Path, help="the directory of a run that was begun")
    parser.add_argument("--again", action="store_true", help="more tests on what was not found")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files of tests")
    parser.add_argument("--minutes", type=float, default=60, help="begin no mutant after so long")
    parser.add_argument("--size", type=int, help="how many mutants; without it, all")
    parser.add_argument("--least", type=int, default=0, help="of each wing, beyond the size")
    parser.add_argument("--seed", type=int, default=18, help="of the sample")
    parser.add_argument(
        "--fixed", choices=("try", "draw", "write"), const="try", nargs="?", help="the fixed list"
    )
    parser.add_argument("--kinds", help="marks of tests")
    parser.add_argument("--forks", type=int, default=4, help="mutants that are tried at a time")
    options = vars(parser.parse_args())
    begun = options.pop("resume") or Path(tempfile.mkdtemp(prefix="mutation-"))
    directory = begun.resolve()
    sys.stderr.write(f"Results: {directory}\n")
    tests, kinds, listed = (options.pop(name) for name in ("tests", "kinds", "fixed"))
    kinds = kinds or ("not browser" if listed else KINDS)  # the list: the plain suite alone
    if not (directory / "notes" / "mutants.json").exists():
        mutate(directory)
    mutants = mutants_in(directory).values()
    if listed == "draw":
        fixed.write(fixed.draw(mutants))
        return
    until = time.time() + 60 * options.pop("minutes")
    if listed:
        if chosen := fixed.tests_of(mutants, results_in(directory)):
            settings = {"until": until, "forks": options["forks"], "first": True}
            try_mutants(directory, kinds, tests, chosen=chosen, **settings)
        found = [fixed.find(told, mutants) for told in fixed.fixed()]
        options["names"] = [mutant.name for mutant in found if mutant]
    if time.time() < until and not list((directory / "notes").glob("calls-*.json")):
        note_calls(directory, kinds, tests, options["forks"])
    try_mutants(directory, kinds, tests, until=until, **options)
    sys.stdout.write(f"{report(directory)}\n")
    if listed == "write":
        fixed.write([mutant for mutant in found if mutant], outcomes(directory)[0])
    elif listed:
        if lost := fixed.lost(outcomes(directory)[0], mutants):  # with more tests, once more
            options |= {"again": True, "names": [mutant.name for mutant in lost]}
            try_mutants(directory, kinds, tests, until=until, **options)
        results = outcomes(directory)[0]
        sys.stdout.write("\n".join(fixed.compare(results, mutants)) + "\n")
        sys.exit(bool(fixed.lost(results, mutants)))


if __name__ == "__main__":
    main()
