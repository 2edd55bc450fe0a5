"""The parts of the benchmarks that decide: aims, yardsticks, verdicts on peers, pages."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]
from measuring.aims import aim, table_of  # noqa: E402 - it is beside the tests
from measuring.command import PAGE, finish  # noqa: E402 - the same
from measuring.pages import replace_part  # noqa: E402 - the same
from measuring.timing import Variant, difference, ratio  # noqa: E402 - the same
from modes.bare_stores import bare_store  # noqa: E402 - the same

from benchmarks.peers import tables  # noqa: E402 - the same
from benchmarks.peers.command import PAGES  # noqa: E402 - the same
from benchmarks.peers.verdicts import DIFFERS, FAILS, HOLDS, SKIPPED, judge  # noqa: E402 - the same


def test_a_line_is_kept_only_if_all_its_figures_are(capsys):
    rows = [
        aim("lock", 1.03, 1.03, at="tcp"),
        aim("lock", 1.0304, 1.03, at="unix"),
        aim("key", 0.6, 0.6, at="unix", at_least=True),
    ]
    assert table_of(rows).splitlines()[2:] == [
        "| lock | ≤ 1.03 | 1.030 | 1.030 | MISSED |",
        "| key | ≥ 0.60 |  | 0.600 | kept |",
    ]
    assert aim("key", 0.5996, 0.6, at_least=True)["missed"]
    for parts, missed, status in (([rows], 1, 1), ([rows[:1]], 0, 0), ([], 0, 0)):
        assert finish(Namespace(docs=False, check=True), *parts, missed=missed) == status
    assert "figures beyond their limits: 2" in capsys.readouterr().out


def test_variants_are_compared_by_their_medians():
    one = Variant("one", None, list, blocks=[[30, 30, 90], [36, 36, 90]])
    other = Variant("other", None, list, blocks=[[20, 20, 90], [24, 24, 90]])
    assert ratio(one, other).median == pytest.approx(1.5)
    assert difference(one, other).median == 12


@pytest.fixture(params=["redis", "sqlite", "postgresql"])
def store(request, tmp_path):
    """A yardstick: a store as somebody would write it by hand."""
    if request.param == "redis":
        yield bare_store(request.getfixturevalue("redis_url"))
        return
    uri = f"sqlite:///{tmp_path}/bare.db"
    if request.param == "postgresql":
        uri = request.getfixturevalue("postgres").new_database()
    ours = SqlStore(create_engine(uri))
    ours.create_table()
    store = bare_store(uri)
    yield store
    ours.close()
    for engine in (ours.engine, store._engine):
        engine.dispose()


def test_a_yardstick_works(store):
    owner, stranger, asked, other = (letter * 16 for letter in (b"o", b"s", b"a", b"b"))
    assert store.claim("key", owner, asked, 30) == 0
    store.release("key", stranger)
    assert store.claim("key", stranger, asked, 30)[0] == 1
    store.release("key", owner)
    assert store.claim("key", owner, asked, 30) == 0
    store.complete("key", owner, asked, b"answer", 60)
    for find in (store.claim, store.look):
        state, matches, record, *_ = find("key", stranger, asked, 30)
        assert (state, bool(matches), record) == (2, True, b"answer")
    assert not store.claim("key", stranger, other, 30)[1]
    store.put_tokens(["a" * 32, "b" * 32], 60)
    taken = [store.take_token(letter * 32) for letter in "abab"]
    assert taken == [True, True, False, False]


def answer(status=201, user="anna", amount=12, run=1, *, cookie=False, kind=""):
    told = {"status": status, "user": user, "amount": amount, "run": run}
    return {**told, "cookie": cookie, "kind": kind}


def no(status=409, *, kind=""):
    return answer(status, None, None, None, kind=kind)


def seen(*answers, runs=1, effects=1, ttl=86400, first_told=0.1, **more):
    counts = {"runs": runs, "effects": effects, "longest_ttl": ttl}
    seconds = {"first_told": first_told, "second_asked": 6.0}
    return {"answers": list(answers), **counts, "seconds": seconds, **more}


def rounds(*effects):
    """Eight requests at once, in each round; so many of them paid."""
    told = [{"201": paid, "409": 8 - paid} for paid in effects]
    each = zip(effects, told, strict=True)
    return {"rounds": [{"effects": n, "statuses": s, "different_answers": n} for n, s in each]}


PAID, TWICE = answer(), answer(run=2)
CASES = [
    ("repeat", seen(PAID, PAID), HOLDS, "the first answer, 201"),
    ("repeat", seen(PAID, answer(409)), DIFFERS, "the first answer, as 409"),
    ("repeat", seen(PAID, no(409)), DIFFERS, "409 instead of the first answer"),
    ("repeat", seen(PAID, no(422)), FAILS, "422 instead of the first answer"),
    ("repeat", seen(PAID, TWICE, effects=2), FAILS, "paid 2 times"),
    ("duplicates", rounds(1, 1), HOLDS, "paid once; 1x 201, 7x 409"),
    ("duplicates", rounds(1, 8), FAILS, "to 7x 409; 1 to 8 different answers"),
    ("duplicates", rounds(0), DIFFERS, "paid 0 times; 0x 201, 8x 409"),
    ("another_user", seen(PAID, PAID), FAILS, "Ben was given Anna's answer"),
    ("another_user", seen(PAID, answer(user="ben")), HOLDS, "Ben's own payment"),
    ("another_user", seen(PAID, no(422)), DIFFERS, "Ben was refused, 422"),
    ("another_body", seen(PAID, no(422)), HOLDS, "refused, 422"),
    ("another_body", seen(PAID, PAID), FAILS, "the answer to the other request, 201"),
    ("another_body", seen(PAID, answer(amount=99), effects=2), DIFFERS, "a payment of its own"),
    ("another_body", seen(PAID, no(409)), DIFFERS, "refused, 409"),
    ("aborted", seen(no(404), no(404), wanted=404), HOLDS, "404 again, remembered"),
    ("busy", seen(no(429), no(429), wanted=429), DIFFERS, "429 again, remembered"),
    ("failed", seen(no(500), TWICE, runs=2, wanted=500), HOLDS, "ran again"),
    ("failed", seen(no(500), TWICE, runs=2, effects=2, wanted=500), FAILS, "ran again"),
    ("failed", seen(no(500), no(409), ttl=-1, wanted=500), FAILS, "the key never expires"),
    ("aborted", seen(no(500), no(408), ttl=230, wanted=404), DIFFERS, "the key has 230 s left"),
    ("aborted", seen(no(500), no(500), ttl=None, wanted=404), FAILS, "blocked, 500"),
    ("killed", seen(PAID, PAID), HOLDS, "ran again at once"),
    ("killed", seen(PAID, PAID, first_told=2.1), HOLDS, "ran again after waiting 2.1 s"),
    ("killed", seen(no(), PAID), HOLDS, "409 after 0.1 s; ran again after 6 s"),
    ("killed", seen(no(), no()), FAILS, "still 409 after 6 s; the key has 86,400 s left"),
    ("killed", seen(no(), no(kind="outcome-unknown")), DIFFERS, "`outcome-unknown`, as promised"),
    ("killed", seen(PAID, PAID, effects=2), FAILS, "paid 2 times"),
    ("slow", seen(PAID, no(409)), HOLDS, "refused, 409"),
    ("slow", seen(PAID, TWICE, effects=2), FAILS, "paid 2 times"),
    ("cookie", seen(answer(cookie=True), PAID), HOLDS, "not set again"),
    ("cookie", seen(PAID, answer(cookie=True)), DIFFERS, "set again"),
    ("cookie", seen(PAID, TWICE, effects=2), FAILS, "not remembered: paid 2 times"),
    ("cookie", None, SKIPPED, "it guards a function, not a response"),
]


@pytest.mark.parametrize(("scenario", "what", "verdict", "words"), CASES)
def test_an_observation_is_judged_by_the_published_rule(scenario, what, verdict, words):
    judged = judge(scenario, what)
    assert judged.verdict == verdict
    assert judged.words.endswith(words)


def test_the_rule_knows_every_situation_that_the_page_tells_of():
    assert {scenario for scenario, *_ in CASES} == set(tables.QUESTIONS)


@pytest.mark.parametrize("command", ["overhead.py", "service.py", "crowds.py"])
def test_the_page_has_a_part_for_each_benchmark(command):
    text = PAGE.read_text(encoding="utf-8")
    command = f"benchmarks/{command}"
    assert (PAGE.parents[2] / command).exists()
    assert replace_part(text, command, "new").count("\nnew\n") == 1
    with pytest.raises(ValueError, match="no marks for 'y'"):
        replace_part(text, "y", "new")


def test_the_page_tells_what_was_measured_and_nothing_by_hand():
    results = ROOT / "docs" / "reports" / "benchmarks"
    report = {
        name: json.loads((results / f"peers-{name}.json").read_text(encoding="utf-8"))
        for name in ("correctness", "speed")
    }
    parts, shown = tables.page_parts(report), []
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        for name in tables.parts_of(page):
            assert replace_part(page, name, parts[name]) == page, "--tables writes it anew"
            shown.append(name)
    assert sorted(shown) == sorted(parts)
