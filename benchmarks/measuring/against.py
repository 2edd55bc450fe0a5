"""Compare this tree with a commit, in processes that take turns.

Figures of two days are not comparable: a processor that sleeps makes a trip to Redis three times
as long. Here each round has a process for each tree, and within it the same guard by hand, to
which the figures are taken.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measuring.command import ROOT

NOW = "this tree"


def compare_with(commit: str, rounds: int, arguments: list[str]) -> None:
    """Print, for each case, its ratio in this tree to that at a commit; the least and greatest.

    Args:
        commit: a name that git knows.
        rounds: processes of each tree.
        arguments: of `overhead.py --json`, which runs in each.
    """
    found: dict[str, dict[str, list[float]]] = {NOW: defaultdict(list), commit: defaultdict(list)}
    with _tree_at(commit) as then:
        trees = [(NOW, ROOT), (commit, then)]
        for number in range(rounds):
            print(f"... round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for name, tree in trees:
                for case, value in _measure(tree, arguments).items():
                    found[name][case].append(value)
            trees.reverse()
    print(f"\n{'to the same guard by hand':<44} {NOW:>10} {commit[:10]:>10}   ratio")
    for case, mine in found[NOW].items():
        its = found[commit][case]
        ratios = sorted(one / other for one, other in zip(mine, its, strict=True))
        medians = statistics.median(mine), statistics.median(its)
        spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(f"  {case:<42} {medians[0]:10.3f} {medians[1]:10.3f}   {spread}")


@contextmanager
def _tree_at(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _measure(tree: Path, arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, str(ROOT / "benchmarks" / "overhead.py"), "--json", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])
