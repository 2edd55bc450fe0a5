"""What the page on capacity says is what its script computes."""

import json
import sys

import pytest
from helpers.repository import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from capacity import CONSTANTS, PAGE, SHARD_BYTES, Load, page_with, plan

TOLD = json.loads(CONSTANTS.read_text())


def test_the_table_on_the_page_is_the_one_that_the_script_makes():
    text = PAGE.read_text()
    assert page_with(text, TOLD) == text
    assert "| a second |" in text


def test_a_key_lives_for_its_time_and_takes_two_operations():
    needed = plan(Load("key", 100, repeats=0, live=60), TOLD)
    assert needed.keys == 6000
    both = TOLD["microseconds"]["claim"] + TOLD["microseconds"]["complete"]
    assert needed.cores == pytest.approx(100 * both / 1e6)
    assert needed.shards == 1
    for rate in (1e3, 1e6):
        needed = plan(Load("key", rate), TOLD)
        assert needed.memory <= needed.shards * SHARD_BYTES
    clicks = plan(Load("lock", 1e6, live=1), TOLD)
    assert clicks.cores <= clicks.shards / 2
