"""The table of versions agrees with the tests and with its page."""

import os
from collections import Counter
from pathlib import Path

import pytest
from helpers.repository import ROOT, text_of

from proofs.versions import sources
from proofs.versions.__main__ import row
from proofs.versions.cells import CELLS, NEWEST, QUICK, Cell
from proofs.versions.sources import Debian, OnPath, UnobtainableError, debian_mirror

PAGE = ROOT / "docs" / "reports" / "versions.md"


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


TARGETS = """Ubuntu Ubuntu http://one.test/ubuntu
Debian Debian-Security http://two.test/security
Debian Debian http://three.test/debian
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Put an `apt-get` first on the path, and return where it says the packages come from."""
    told = tmp_path / "targets"
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\n[ "$1" = indextargets ] && cat {told}\n')
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return told


def test_packages_of_debian_come_from_the_mirror_of_this_machine(apt):
    apt.write_text(TARGETS)
    assert debian_mirror() == "http://three.test/debian"
    apt.write_text(TARGETS.splitlines()[0])
    with pytest.raises(UnobtainableError, match="apt is not set up"):
        debian_mirror()


def test_no_host_is_written_down():
    assert "://" not in text_of(Path(sources.__file__))


@pytest.mark.parametrize(
    "sources",
    [
        (),
        (OnPath("no-such-server"),),
        (OnPath("python3", "2.0"),),
        (Debian("trixie", "redis-server", "usr/bin/redis-server"),),
    ],
    ids=str,
)
def test_a_version_that_cannot_be_obtained_is_reported(sources, tmp_path, apt):
    apt.write_text("")  # of no archive
    line, is_well = row(Cell("Redis", "9.9", sources, ()), tmp_path)
    assert "| Redis | 9.9 | not available here: " in line
    assert is_well
