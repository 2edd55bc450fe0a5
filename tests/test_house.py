"""The package's wings and their tests: imports lead down, in no circle; no folder is overfull."""

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from helpers.repository import ROOT, text_of
from helpers.wings import FACE, LEVELS, MODULES, PACKAGE, imports_of, level_of, wing_of

from flask_idempotence.engine.guard import MODES, ViewGuard

RULES = [
    *(Path(inspect.getfile(kind)) for kind in MODES.values() if issubclass(kind, ViewGuard)),
    ROOT / "tests" / "guards" / "test_new_mode.py",
]

MOST_ENTRIES = 21

MOST_FILES = {"tests": 25, "benchmarks": 12}
"""In one folder."""


def test_every_wing_has_its_level():
    assert {wing_of(module) for module in MODULES} == FACE.union(*LEVELS)


def test_imports_lead_down_only():
    upward = [
        (module, imported)
        for module, path in MODULES.items()
        if wing_of(module) not in FACE
        for imported in imports_of(path)
        if wing_of(imported) != wing_of(module)
        and level_of(wing_of(imported)) >= level_of(wing_of(module))
    ]
    assert upward == []


def test_no_modules_import_one_another_in_a_circle():
    graph = {module: imports_of(path) - {module} for module, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 200
    TopologicalSorter(graph).prepare()  # CycleError names the circle


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_the_rules_of_a_mode_know_the_values_of_the_engine_only(path):
    of_engine = {module for module in imports_of(path) if wing_of(module) == "engine"}
    assert of_engine == {"engine.guard", "engine.values"}


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


REPLACED = {"time", "threading", "socket", "select"}
"""Modules whose functions gevent replaces; freezegun replaces those of the first."""


@pytest.mark.parametrize("module", MODULES)
def test_clocks_sleeps_and_threads_are_looked_up_when_they_are_called(module):
    """A function in an attribute is bound, or stays the old one, once another is in its place."""
    tree = ast.parse(text_of(MODULES[module]))
    named, no_values = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in REPLACED and not node.level:
            named.append(ast.unparse(node))
        if isinstance(node, ast.Call):
            no_values.add(node.func)
        elif isinstance(node, ast.FunctionDef):
            of_arguments = ast.walk(node.args)
            notes = [each.annotation for each in of_arguments if isinstance(each, ast.arg)]
            no_values.update(_within(node.returns, *notes))
        elif isinstance(node, ast.AnnAssign):
            no_values.update(_within(node.annotation))
    for node in set(ast.walk(tree)) - no_values:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in REPLACED:
            value = getattr(importlib.import_module(ast.unparse(node.value)), node.attr)
            if callable(value):
                named.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert named == []


def _within(*trees):
    return [node for tree in trees if tree is not None for node in ast.walk(tree)]


def test_every_wing_says_what_lives_in_it_and_the_page_of_the_architecture_names_it():
    text = text_of(ROOT / "docs" / "reports" / "architecture.md")
    for wing in FACE.union(*LEVELS) - {""}:
        assert f"`{wing}`" in text, wing
        path = PACKAGE / wing / "__init__.py"
        if path.exists():
            assert ast.get_docstring(ast.parse(text_of(path))), wing


@pytest.mark.parametrize("top", MOST_FILES)
def test_no_folder_is_overfull(top):
    files = Counter(
        path.parent.relative_to(ROOT)
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    assert {str(folder): n for folder, n in files.items() if n > MOST_FILES[top]} == {}


def test_every_wing_has_a_folder_of_tests():
    wings = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert len(wings) > 8
    assert {
        wing for wing in wings if not list((ROOT / "tests" / wing).rglob("test_*.py"))
    } == set()


def test_no_file_holds_a_conflict_of_a_merge():
    found = subprocess.run(
        ["git", "grep", "-l", "^<<<<<<< "], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode > 1:
        pytest.skip("not a repository")
    assert found.stdout == b""
