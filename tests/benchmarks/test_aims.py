"""The lines of the benchmarks that say whether an aim was kept."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from measuring.aims import aim, missed_in, table_of
from measuring.command import PAGE
from measuring.pages import replace_part
from measuring.timing import Variant, difference, ratio


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "missed"),
    [
        (1.03, 1.03, False, False),
        (1.0304, 1.03, False, True),
        (0.60, 0.60, True, False),
        (0.5996, 0.60, True, True),
    ],
)
def test_a_limit_itself_keeps_the_aim(value, limit, at_least, missed):
    assert aim("lock", value, limit, at_least=at_least)["missed"] is missed


REPORT = {
    "parts": [
        [aim("lock", 1.0, 1.03, at="tcp"), aim("lock", 1.2, 1.03, at="unix")],
        {"rows": [aim("key", 0.9, 0.6, at="unix", at_least=True)]},
    ],
    "memory": [{"record": "lock", "missed": True}, {"record": "key", "missed": False}],
}


def test_a_line_is_kept_only_if_all_its_figures_are():
    assert table_of(REPORT).splitlines() == [
        "|  | aim | tcp | unix |  |",
        "| --- | --- | --- | --- | --- |",
        "| lock | ≤ 1.03 | 1.000 | 1.200 | MISSED |",
        "| key | ≥ 0.60 |  | 0.900 | kept |",
    ]


@pytest.mark.parametrize("command", ["overhead.py", "service.py"])
def test_the_page_has_a_part_for_each_benchmark(command):
    text = PAGE.read_text(encoding="utf-8")
    command = f"benchmarks/{command}"
    assert (PAGE.parents[2] / command).exists()
    assert replace_part(text, command, "new").count("\nnew\n") == 1


def test_every_figure_beyond_its_limit_counts():
    assert missed_in(REPORT) == 2


def test_variants_are_compared_by_their_medians():
    one, other = (
        Variant(name, None, list, blocks=blocks)
        for name, blocks in {
            "one": [[30, 30, 90], [36, 36, 90]],
            "other": [[20, 20, 90], [24, 24, 90]],
        }.items()
    )
    assert ratio(one, other).median == pytest.approx(1.5)
    assert difference(one, other).median == 12
