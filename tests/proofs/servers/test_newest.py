"""Where the newest servers come from: `helpers.servers.newest`, which `.ci/proofs` tests on."""

import os
from pathlib import Path

import pytest
from helpers.repository import text_of
from helpers.servers import newest

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
    assert newest.debian_mirror() == "http://three.test/debian"
    apt.write_text(TARGETS.splitlines()[0])
    with pytest.raises(newest.UnobtainableError, match="apt is not set up"):
        newest.debian_mirror()


def test_no_host_is_written_down():
    assert "://" not in text_of(Path(newest.__file__))


def test_a_version_that_cannot_be_obtained_is_reported(tmp_path, apt):
    apt.write_text("")  # of no archive
    with pytest.raises(SystemExit, match="redis is not available here: apt is not set up"):
        newest.main("redis", tmp_path)
