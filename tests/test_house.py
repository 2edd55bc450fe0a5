"""The package's wings and their tests: imports lead down only, and no folder is overfull."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from helpers.repository import ROOT

import flask_idempotence

PACKAGE = Path(flask_idempotence.__file__).parent

LEVELS = (
    {"errors", "signals"},
    {"config"},
    {"stores"},
    {"response"},
    {"request", "exactly_once"},
    {"engine"},
    {"guards"},
)
"""Each wing may import those of the levels before its own. The face may import all of them."""

FACE = {"", "extension", "web", "cli", "metrics", "openapi", "logs", "testing", "client"}
"""Modules that no wing may import; `""` is the package itself."""

MOST_ENTRIES = 19

MOST_FILES = {"tests": 25, "benchmarks": 12}
"""In one folder."""

TESTED_ELSEWHERE = {"testing": "stores/test_stores.py"}
"""The contract suite is tested by the stores that pass it."""


def wing_of(parts):
    return parts[0] if parts else ""


def imports_of(path):
    """Return the wings that a module imports, also those that only its types need."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = here[: len(here) - (node.level - 1)]
        module = [*base, *(node.module.split(".") if node.module else ())]
        if module:
            yield wing_of(module)
        else:
            yield from (alias.name for alias in node.names)


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        wing = wing_of(path.relative_to(PACKAGE).with_suffix("").parts)
        yield "" if wing == "__init__" else wing, path


def test_every_wing_has_its_level():
    wings = {wing for wing, _ in modules()}
    assert wings == FACE.union(*LEVELS)


def test_imports_lead_down_only():
    level_of = {wing: level for level, wings in enumerate(LEVELS) for wing in wings}
    upward = [
        (str(path.relative_to(PACKAGE)), imported)
        for wing, path in modules()
        if wing in level_of
        for imported in imports_of(path)
        if imported != wing and level_of.get(imported, len(LEVELS)) >= level_of[wing]
    ]
    assert upward == []


def test_the_root_shows_what_a_user_imports():
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_stores_and_errors_do_without_flask():
    program = f"""
import sys, types

for name in ("flask", "werkzeug"):
    sys.modules[name] = None
root = types.ModuleType("flask_idempotence")
root.__path__ = [{str(PACKAGE)!r}]
sys.modules["flask_idempotence"] = root
import flask_idempotence.errors
import flask_idempotence.stores
import flask_idempotence.stores.sql
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_wing_says_what_lives_in_it():
    for wing in set().union(*LEVELS):
        path = PACKAGE / wing / "__init__.py"
        if path.exists():
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), wing


def test_the_page_of_the_architecture_names_every_wing():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for wing in FACE.union(*LEVELS) - {""}:
        assert f"`{wing}`" in text, wing


@pytest.mark.parametrize("top", MOST_FILES)
def test_no_folder_is_overfull(top):
    files = Counter(
        path.parent.relative_to(ROOT)
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    assert {str(folder): n for folder, n in files.items() if n > MOST_FILES[top]} == {}


def test_every_wing_has_a_folder_of_tests():
    wings = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - set(TESTED_ELSEWHERE)
    assert len(wings) > 8
    assert [
        wing for wing in sorted(wings) if not list((ROOT / "tests" / wing).rglob("test_*.py"))
    ] == []
    for path in TESTED_ELSEWHERE.values():
        assert (ROOT / "tests" / path).exists()
