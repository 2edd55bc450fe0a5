"""Print how heavy the package is: lines, statements and files of each wing, and what they were.

    uv run --directory tests python -m helpers.weight            # beside the last plan's commit
    uv run --directory tests python -m helpers.weight REVISION   # beside another commit, or a tag

It reports, and asserts nothing. Lines mislead where code is squeezed, and so statements are beside
them, docstrings included; a private function that one place uses may still earn its name.
"""

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from .repository import ROOT

BEFORE = "2c4014d"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def measure(root: Path) -> dict[str, int]:
    figures: Counter[str] = Counter()
    nodes: list[ast.AST] = []
    longest = 0
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes += ast.walk(tree)
        wing = path.relative_to(root).parts[0] if path.parent != root else "the root"
        sizes = {"files": 1, "lines": text.count("\n"), "statements": len(statements_of(tree))}
        for what, size in sizes.items():
            figures[what] += size
            figures[f"{wing}: {what}"] += size
        longest = max(longest, sizes["lines"])
    figures["longest file"] = longest
    figures["private functions of 1 to 3 statements with one user"] = len(crumbs(nodes))
    return figures


def statements_of(node: ast.AST) -> list[ast.stmt]:
    return [each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]


def crumbs(nodes: list[ast.AST]) -> list[str]:
    """Return private functions of one to three statements whose name stands in one other place."""
    used = Counter(getattr(node, "id", getattr(node, "attr", "")) for node in nodes)
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    defined = Counter(function.name for function in functions)
    return [
        function.name
        for function in functions
        if function.name.startswith("_")
        and not function.name.endswith("__")
        and defined[function.name] == used[function.name] == 1
        and len(statements_of(function)) - bool(ast.get_docstring(function)) <= 3
    ]


def main(revision: str = BEFORE) -> None:
    archive = ["git", "archive", revision, "flask_idempotence"]
    packed = subprocess.run(archive, check=True, capture_output=True, cwd=ROOT).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(directory, filter="data")
        before = measure(Path(directory, "flask_idempotence"))
    now = measure(ROOT / "flask_idempotence")
    sys.stdout.write(f"{'':<55}{revision:>12}{'now':>9}\n")
    for name in sorted({*before, *now}):
        sys.stdout.write(f"{name:<55}{before[name]:>12,}{now[name]:>9,}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
