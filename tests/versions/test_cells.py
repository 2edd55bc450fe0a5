"""The table of versions agrees with the tests and with its page."""

import argparse
from collections import Counter

import pytest
from helpers.repository import ROOT, text_of

from versions.__main__ import row
from versions.cells import CELLS, NEWEST, QUICK, Cell
from versions.sources import OnPath

PAGE = ROOT / "docs" / "versions.md"


def test_every_cell_has_a_name_of_its_own_and_tests_that_exist():
    assert Counter(cell.name for cell in CELLS).most_common(1)[0][1] == 1
    assert set(NEWEST) <= {cell.name for cell in CELLS}
    chosen = [cell.tests for cell in CELLS] + [QUICK[cell.component] for cell in CELLS]
    paths = {word for words in chosen for word in words if word.startswith("tests/")}
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_cell_is_on_the_page():
    rows = [line.split(" | ") for line in text_of(PAGE).splitlines() if line.startswith("| ")]
    named = {
        (words[0].removeprefix("| "), word) for words in rows for word in words[1].split(", ")
    }
    for cell in CELLS:
        begins = cell.version.removesuffix("*")
        assert [
            version
            for component, version in named
            if component == cell.component and version.startswith(begins)
        ], cell.name


@pytest.mark.parametrize("sources", [(), (OnPath("no-such-server"),), (OnPath("python3", "2.0"),)])
def test_a_version_that_cannot_be_obtained_is_reported(sources, tmp_path):
    line, is_well = row(Cell("Redis", "9.9", sources, ()), argparse.Namespace(cache=tmp_path))
    assert "| Redis | 9.9 | not available here: " in line
    assert is_well
