"""A copy of the repository in which each mutant of mutmut can be switched on."""

import ast
import contextlib
import difflib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.repository import ROOT
from mutmut.mutation.file_mutation import mutate_file_contents

COPIED = (
    "tests",
    "docs",
    "example_app",
    "pyproject.toml",
    "README.md",
    "pytest_flask_idempotence.py",
)
FOUND = ("killed", "timeout")
"""The results of a mutant that the tests have noticed."""
MANGLED = re.compile(r"x(?:_|ǁ(?P<cls>\w+)ǁ)(?P<name>\w+)__mutmut_(?:orig|\d+)$")


@dataclass(frozen=True)
class Mutant:
    name: str
    """By which mutmut's trampolines know it: module, class and function, number."""
    file: str
    function: str
    line: int
    removed: str
    added: str

    @property
    def wing(self) -> str:
        """The folder of the package, or its root."""
        return self.file.split("/")[1] if self.file.count("/") > 1 else "the root"

    @property
    def key(self) -> str:
        """The function, by the name under which a trampoline records its calls."""
        return self.name.rpartition("__mutmut_")[0]


def mutants_in(directory: Path) -> dict[str, Mutant]:
    """Return the mutants of a run, by their names."""
    told = json.loads((directory / "notes" / "mutants.json").read_text())
    return {each["name"]: Mutant(**each) for each in told}


def results_in(directory: Path) -> list[dict]:
    file = directory / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def make_tree(directory: Path, files: Iterable[str] | None = None) -> list[Mutant]:
    """Fill a directory with the repository, in which every mutant waits to be switched on."""
    directory.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, directory / name)
    package = directory / "flask_idempotence"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    if files is None:
        files = [str(file.relative_to(directory)) for file in sorted(package.rglob("*.py"))]
    # mutmut reads its settings from the pyproject.toml there.
    with contextlib.chdir(directory):
        return [mutant for file in files for mutant in _mutate(Path(file))]


def _mutate(file: Path) -> Iterator[Mutant]:
    source = file.read_text(encoding="utf-8")
    mutated = mutate_file_contents(str(file), source)
    file.write_text(mutated.code, encoding="utf-8")
    lines = mutated.code.splitlines()
    begins = dict(_functions(ast.parse(source)))
    bodies = {
        name: _text(lines[span.start - 1 : span.end], name)
        for name, span in mutated.line_span_by_function_name.items()
    }
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    for name in mutated.mutant_names:
        mangled = MANGLED.match(name)
        function = ".".join(filter(None, [mangled["cls"], mangled["name"]]))
        original = bodies[name.rpartition("_")[0] + "_orig"]
        at, removed, added = _difference(original, bodies[name])
        yield Mutant(
            f"{module}.{name}", str(file), function, begins[function] + at, removed, added
        )


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            yield prefix + node.name, first
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")


def _text(lines: list[str], name: str) -> list[str]:
    while lines and not re.match(r"\s*(@|def |async def )", lines[0]):
        lines = lines[1:]  # what separates it from the function before
    return [line.replace(name, "") for line in lines]


def _difference(before: list[str], after: list[str]) -> tuple[int, str, str]:
    for tag, a, b, c, d in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            return a, _join(before[a:b]), _join(after[c:d])
    return 0, "", ""  # the number of a string's escape, which the text does not show


def _join(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)
