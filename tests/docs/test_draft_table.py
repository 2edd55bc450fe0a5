"""The table of the draft's requirements points at tests that are there."""

import ast
import re

from helpers.repository import ROOT


def named_in_the_page():
    page = (ROOT / "docs" / "reports" / "draft-requirements.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", page))


def defined_in(file):
    [path] = (ROOT / "tests").rglob(file)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name for name in functions if name.startswith("test_")}


def test_every_test_that_the_page_names_is_there():
    named = named_in_the_page()
    assert len(named) > 30
    assert {(file, name) for file, name in named if name not in defined_in(file)} == set()


def test_every_test_of_a_requirement_is_named_by_the_page():
    named = {name for file, name in named_in_the_page() if file == "test_draft.py"}
    assert named == defined_in("test_draft.py")


def test_every_requirement_has_a_test_or_says_whose_it_is():
    page = (ROOT / "docs" / "reports" / "draft-requirements.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 20
    assert [row for row in rows if "::test_" not in row and "the client" not in row] == []
