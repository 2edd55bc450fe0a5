"""Print how heavy the package is: lines, statements, functions of a request, and what they were.

    uv run --directory tests python -m helpers.weight            # beside the last plan's commit
    uv run --directory tests python -m helpers.weight REVISION   # beside another commit, or a tag

It reports, and asserts nothing. Lines mislead where code is squeezed, and so statements are beside
them, docstrings included; a private function that one place uses may still earn its name.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from flask import Flask

from flask_idempotence import Idempotence, idempotent, no_repeat_submit

from .wings import MODULES, PACKAGE, imports_of, wing_of

BEFORE = "2c4014d"
TESTS = Path(__file__).parents[1]
API_KEY = {"X-Api-Key": "5c1d0a3e9b7f"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def measure() -> dict:
    """Return the figures of the package that is imported, and those of its wings."""
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES.values()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: text.count("\n") for path, text in texts.items()}
    statements = {path: len(statements_of(tree)) for path, tree in trees.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    wings = {}
    for module, path in MODULES.items():
        wing = wing_of(module) or "the root"
        wing = wing if path.parent != PACKAGE else "the root"
        had = wings.setdefault(wing, {"lines": 0, "statements": 0, "files": 0})
        had["lines"] += lines[path]
        had["statements"] += statements[path]
        had["files"] += 1
    figures = {
        "lines": sum(lines.values()),
        "statements": sum(statements.values()),
        "files": len(lines),
        "longest file": max(lines.values()),
        "longest function body, in lines": max(map(length_of, functions)),
        "private functions of 1 to 3 statements with one user": len(crumbs(functions, nodes)),
        **{f"functions in a first request: {name}": count for name, count in walks().items()},
        "Any": sum(len(re.findall(r"\bAny\b", text)) for text in texts.values()),
        "circles of imports": circles(),
        "lines of stores/redis": sum(
            count for path, count in lines.items() if "stores/redis/" in path.as_posix()
        ),
    }
    return {"figures": figures, "wings": wings}


def statements_of(node: ast.AST) -> list[ast.stmt]:
    """Return all statements below a node."""
    return [each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]


def length_of(function: Function) -> int:
    """Return the lines of a body, without its docstring."""
    first = function.body[bool(ast.get_docstring(function)) :]
    return (function.end_lineno or 0) - first[0].lineno + 1 if first else 0


def crumbs(functions: list[Function], nodes: list[ast.AST]) -> list[str]:
    """Return private functions of one to three statements whose name stands in one other place."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    defined = Counter(function.name for function in functions)
    return sorted(
        function.name
        for function in functions
        if function.name.startswith("_")
        and not function.name.endswith("__")
        and defined[function.name] == used[function.name] == 1
        and len(statements_of(function)) - bool(ast.get_docstring(function)) <= 3
    )


def circles() -> int:
    """Return 1 where modules import one another in a circle, types included."""
    try:
        TopologicalSorter(
            {name: imports_of(path) - {name} for name, path in MODULES.items()}
        ).prepare()
    except CycleError:
        return 1
    return 0


def walks() -> dict[str, int]:
    """Return how many functions of the package a first request on memory runs."""
    app = Flask("weight")
    app.config.update(SECRET_KEY="s", TESTING=True)
    Idempotence(app)
    for name, guard in (("lock", no_repeat_submit(interval=20)), ("key", idempotent())):
        app.add_url_rule(f"/{name}/<n>", name, guard(lambda n: {"done": n}), methods=["POST"])
    client = app.test_client(use_cookies=False)
    counts: dict[str, int] = {}
    for number in range(8):  # the first ones warm up; now and then one draws new random bytes
        for mode in ("lock", "key"):
            for name, headers in ((mode, {}), (f"{mode} with an API key", API_KEY)):
                own = {"Idempotency-Key": f"{name}-{number}-4f1d2c7a90b84e55", **headers}
                with Calls() as calls:
                    client.post(f"/{mode}/{number}{len(headers)}", json={"a": 1}, headers=own)
                if number > 2:
                    counts[name] = min(counts.get(name, 1 << 30), len(calls.functions))
    return counts


class Calls:
    """Notes the functions of the package that run."""

    def __init__(self) -> None:
        self.functions: set = set()

    def __enter__(self) -> "Calls":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame, event, arg) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            self.functions.add(frame.f_code)


def measure_at(revision: str) -> dict:
    """Return the figures of the package at a commit."""
    archive = ["git", "archive", revision, "flask_idempotence"]
    packed = subprocess.run(archive, check=True, capture_output=True, cwd=TESTS.parent).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(directory, filter="data")
        done = subprocess.run(
            [sys.executable, "-m", "helpers.weight", "--json"],
            check=True,
            capture_output=True,
            cwd=TESTS,
            env={**os.environ, "PYTHONPATH": directory},
        )
    return json.loads(done.stdout)


def table(before: dict, now: dict, revision: str) -> str:
    """Return the figures side by side."""
    rows = [("", revision, "now", ""), ("---",) * 4]
    for name, value in now["figures"].items():
        rows.append((name, *compared(before["figures"].get(name, 0), value)))
    rows += [("", "", "", ""), ("wing", revision, "now", ""), ("---",) * 4]
    for wing in sorted({*before["wings"], *now["wings"]}):
        for what in ("lines", "statements", "files"):
            values = (each["wings"].get(wing, {}).get(what, 0) for each in (before, now))
            rows.append((f"{wing}: {what}", *compared(*values)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "| " + " | ".join(map(str.ljust, row, widths)) + " |" if any(row) else "" for row in rows
    )


def compared(before: int, now: int) -> tuple[str, str, str]:
    """Return two numbers, and the growth."""
    grown = f"{100 * (now / before - 1):+.0f} %" if before else ""
    return f"{before:,}", f"{now:,}", grown


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default=BEFORE)
    parser.add_argument("--json", action="store_true", help="the figures of now, for a program")
    given = parser.parse_args()
    now = measure()
    told = (
        json.dumps(now) if given.json else table(measure_at(given.revision), now, given.revision)
    )
    sys.stdout.write(f"{told}\n")


if __name__ == "__main__":
    main()
