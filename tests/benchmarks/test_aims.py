"""The lines of the benchmarks that say whether an aim was kept."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from measuring.aims import Table, aim, missed_in, rows_of
from measuring.pages import PAGE, with_part
from measuring.timing import Variant, added, difference, ratio


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


SERVICE = ("throughput", "threads", "expiry")
REPORT = {
    "parts": [
        [aim("lock", 1.0, 1.03, at="tcp"), aim("lock", 1.2, 1.03, at="unix")],
        {"rows": [aim("key", 0.9, 0.6, at="unix", at_least=True)]},
    ],
    "round_trips": [{"step": "lock", "missed": True}, {"step": "key", "missed": False}],
}


def test_a_line_is_kept_only_if_all_its_figures_are(capsys):
    Table(rows_of(REPORT)).show("ours")
    head, lock, key = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert head == ["ours", "aim", "tcp", "unix"]
    assert lock == ["lock", "≤", "1.03", "1.000", "1.200", "MISSED"]
    assert key == ["key", "≥", "0.60", "0.900", "kept"]


def test_the_table_of_a_page_has_as_many_cells_in_every_line():
    lines = Table(rows_of(REPORT)).in_markdown().splitlines()
    assert lines[0] == "|  | aim | tcp | unix |  |"
    assert lines[2:] == [
        "| lock | ≤ 1.03 | 1.000 | 1.200 | MISSED |",
        "| key | ≥ 0.60 |  | 0.900 | kept |",
    ]
    assert {line.count("|") for line in lines} == {6}


def test_a_benchmark_replaces_its_own_part_of_the_page():
    page = "above\n<!-- begin: a.py --docs -->\nold\n<!-- end: a.py -->\nbelow\n"
    once = with_part(page, "a.py", "| new |\n")
    assert once == page.replace("old\n", "\n| new |\n\n")
    assert with_part(once, "a.py", "| new |\n") == once
    with pytest.raises(ValueError, match="no marks for b"):
        with_part(page, "b.py", "")


@pytest.mark.parametrize(
    "command",
    ["overhead.py", "powertools.py", *(f"service/{name}.py" for name in SERVICE)],
)
def test_the_page_has_a_part_for_each_benchmark(command):
    text = PAGE.read_text(encoding="utf-8")
    command = f"benchmarks/{command}"
    assert (PAGE.parents[2] / command).exists()
    assert with_part(text, command, "new\n").count("\nnew\n") == 1


def test_every_figure_beyond_its_limit_counts():
    assert missed_in(REPORT) == 2


def test_variants_are_compared_by_their_medians():
    one, other, bare = (
        Variant(name, None, list, blocks=blocks)
        for name, blocks in {
            "one": [[30, 30, 90], [36, 36, 90]],
            "other": [[20, 20, 90], [24, 24, 90]],
            "bare": [[10, 10, 90], [12, 12, 90]],
        }.items()
    )
    assert ratio(one, other).median == pytest.approx(1.5)
    assert difference(one, other).median == 12
    assert added(one, other, bare).median == pytest.approx(2.0)
