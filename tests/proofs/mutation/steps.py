"""The steps of a run: a tree of mutants, the calls of each test, the trials, the figures."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections import Counter, defaultdict

from .mutants import FOUND, make_tree, mutants_in, results_in


def mutate(directory, files=None):
    (directory / "notes").mkdir(parents=True)
    mutants = make_tree(directory / "tree", files)
    told = [dataclasses.asdict(mutant) for mutant in mutants]
    (directory / "notes" / "mutants.json").write_text(json.dumps(told))
    return mutants


def note_calls(directory, kinds, tests, workers):
    _run_pytest(directory, "calls", kinds, ["-n", str(workers), "--dist", "loadscope", *tests])


def try_mutants(directory, kinds, tests, **settings):
    _run_pytest(
        directory, "trial", kinds, ["-n", "0", *tests], MUTATION_SETTINGS=json.dumps(settings)
    )


def _run_pytest(directory, plugin, kinds, arguments, **variables):
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


def outcomes(directory):
    """Return each mutant with its last result, and how the controls ended.

    A test that fails where nothing is changed has found nothing.
    """
    mutants = mutants_in(directory)
    last, controls, failing = {}, Counter(), set()
    for result in results_in(directory):
        if result["status"].startswith("control"):
            controls[result["status"]] += 1
            failing.add(result["test"])
        else:
            last[result["mutant"]] = result
    for result in last.values():
        if result["status"] in FOUND and result["test"] in failing:
            result["status"] = "survived"
    return [(mutants[name], result) for name, result in last.items()], controls


def report(directory):
    found, controls = outcomes(directory)
    files = defaultdict(Counter)
    for mutant, result in found:
        for name in (mutant.file, mutant.wing, "all"):
            files[name][result["status"]] += 1
    head = "| file | mutants | killed | timed out | survived | not run | found |"
    lines = [head, "|---" * 7 + "|"]
    for name, count in sorted(files.items()):
        statuses = " | ".join(str(count[status]) for status in (*FOUND, "survived", "no tests"))
        lines.append(f"| {name} | {count.total()} | {statuses} | {_share(count)} |")
    lines.append(f"controls: {dict(controls)}")
    for mutant, result in sorted(found, key=lambda each: (each[0].file, each[0].line)):
        if result["status"] not in FOUND:
            lines.append(f"{mutant.file}:{mutant.line} {mutant.function}: {result}")
            lines += [f"    - {mutant.removed}", f"    + {mutant.added}"]
    return "\n".join(lines)


def _share(count):
    """Return the share that was found, with its interval of 95 % by Wilson."""
    total, z = count.total(), 1.96
    share = sum(count[status] for status in FOUND) / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / total) for sign in (-1, 1))
    return f"{share:.1%} ({low:.1%} to {high:.1%})"
