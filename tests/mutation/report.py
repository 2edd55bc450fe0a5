"""The figures of a run: by file, with the survivors."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path

from .mutants import FOUND, Mutant


def outcomes(directory: Path) -> tuple[list[tuple[Mutant, dict]], Counter]:
    """Return each mutant with its last result, and how the controls ended."""
    told = json.loads((directory / "notes" / "mutants.json").read_text())
    mutants = {each["name"]: Mutant(**each) for each in told}
    last, controls = {}, Counter()
    for line in (directory / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        if result["status"].startswith("control"):
            controls[result["status"]] += 1
        else:
            last[result["mutant"]] = result
    return [(mutants[name], result) for name, result in last.items()], controls


def print_report(directory: Path) -> None:
    """Print a table by file, the share that was found, and each survivor."""
    found, controls = outcomes(directory)
    files = defaultdict(Counter)
    for mutant, result in found:
        for name in (mutant.file, "/".join(mutant.file.split("/")[:2]), "all"):
            files[name][result["status"]] += 1
    print("| file | mutants | killed | timed out | survived | not run | found |")
    print("|---|---|---|---|---|---|---|")
    for name, count in sorted(files.items()):
        statuses = [count[status] for status in (*FOUND, "survived", "no tests")]
        print(f"| {name} | {count.total()} | {' | '.join(map(str, statuses))} | {_share(count)} |")
    print(f"controls: {dict(controls)}")
    for mutant, result in sorted(found, key=lambda each: (each[0].file, each[0].line)):
        if result["status"] not in FOUND:
            print(f"{describe(mutant)} [{result['status']}, {result['ran']} tests]")


def describe(mutant: Mutant) -> str:
    """Name a mutant in a line."""
    return f"{mutant.file}:{mutant.line} {mutant.function}: {mutant.removed!r} -> {mutant.added!r}"


def _share(count: Counter) -> str:
    total = count.total()
    share = sum(count[status] for status in FOUND) / total
    # The interval of Wilson, at 95 %.
    z = 1.96
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return f"{share:.1%} ({middle - half:.1%} to {middle + half:.1%})"
