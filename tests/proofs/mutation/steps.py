"""The steps of a run: a tree of mutants, the calls of each test, the trials."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .mutants import Mutant, make_tree


def mutate(directory: Path, files: Iterable[str] | None = None) -> list[Mutant]:
    (directory / "notes").mkdir(parents=True)
    mutants = make_tree(directory / "tree", files)
    told = [dataclasses.asdict(mutant) for mutant in mutants]
    (directory / "notes" / "mutants.json").write_text(json.dumps(told))
    return mutants


def note_calls(directory: Path, kinds: str, tests: Iterable[str], workers: int) -> None:
    _run_pytest(directory, "calls", kinds, ["-n", str(workers), "--dist", "loadscope", *tests])


def try_mutants(directory: Path, kinds: str, tests: Iterable[str], **settings: object) -> None:
    _run_pytest(
        directory, "trial", kinds, ["-n", "0", *tests], MUTATION_SETTINGS=json.dumps(settings)
    )


def _run_pytest(
    directory: Path, plugin: str, kinds: str, arguments: list[str], **variables: str
) -> None:
    tree = directory / "tree"
    # The tree before the repository, which is installed to be edited; for its processes, too.
    variables["PYTHONPATH"] = os.pathsep.join([str(tree), str(tree / "tests")])
    variables["MUTATION_DIRECTORY"] = str(directory)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-o", "addopts="]
    command += ["--import-mode", "importlib", "-p", "no:cacheprovider"]
    command += ["-p", f"proofs.mutation.{plugin}", "-m", kinds, *arguments]
    with (directory / f"{plugin}.log").open("w") as log:
        environment = os.environ | variables
        subprocess.run(command, cwd=tree, env=environment, stdout=log, stderr=log, check=False)
