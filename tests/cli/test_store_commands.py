"""The commands that look into the store and tidy it up, on memory and on a real server."""

import json
import os
import re
import time

import pytest
from helpers.applications.doctor_apps import production_app
from helpers.apps import add_views, make_app
from helpers.cli_shell import invoke, rows
from helpers.store_assertions import documented_user
from prometheus_client.parser import text_string_to_metric_families

from flask_idempotence import Idempotence, MemoryStore, RedisStore, StoreError, idempotent
from flask_idempotence.stores.base import NO_FINGERPRINT, Outcome, Renewal

OWNER = b"o" * 16


@pytest.fixture(params=["memory", "redis"])
def store(request):
    if request.param == "memory":
        return MemoryStore()
    request.getfixturevalue("redis_url")
    return RedisStore(request.getfixturevalue("redis_server").client())


@pytest.fixture
def app(store):
    return add_views(make_app(store=store))


def fill(app):
    client = app.test_client()
    for item in range(3):
        client.post("/orders/well", json={"item": item})
    for key in "ab":
        client.post("/payments", headers={"Idempotency-Key": key})
    client.get("/token?purpose=checkout")
    client.get("/token")


def keys_of(app):
    return sorted(app.extensions["idempotence"].store.scan("idempotence:"))


def hash_of(app, mode):
    return next(key for key in keys_of(app) if f":{mode}:" in key).rpartition(":")[2]


def crash(app, endpoint="pay", digest="c" * 32):
    """Leave a claim of an at-most-once route behind whose lease has ended."""
    key = f"idempotence:2:key:{endpoint}:{digest}"
    store = app.extensions["idempotence"].store
    store.claim(key, OWNER, NO_FINGERPRINT, 0.01, 600)
    time.sleep(0.03)
    return digest


def test_stats_counts_by_mode_and_endpoint(app):
    fill(app)
    crash(app)
    counted = {(mode, endpoint): counts for mode, endpoint, *counts in rows(invoke(app, "stats"))}
    assert {place: list(map(int, counts[:4])) for place, counts in counted.items()} == {
        ("lock", "order"): [3, 0, 0, 0],
        ("key", "pay"): [0, 1, 2, 0],
        ("token", "-"): [0, 0, 0, 1],
        ("token", "checkout"): [0, 0, 0, 1],
    }
    told = json.loads(invoke(app, "stats", "--json").output)
    assert told["total"].pop("bytes") >= int(counted["key", "pay"][4]) > 0
    assert told["total"] == {"live": 3, "ended": 1, "records": 2, "tokens": 2}
    assert [row["mode"] for row in told["rows"]] == ["key", "lock", "token", "token"]


def test_stats_for_prometheus_has_no_purpose_of_a_token(app):
    """A purpose comes from the query of the token URL."""
    fill(app)
    crash(app)
    families = text_string_to_metric_families(invoke(app, "stats", "--prometheus").output)
    samples = [sample for family in families for sample in family.samples]
    keys = {
        (sample.labels["mode"], sample.labels["endpoint"], sample.labels["state"]): sample.value
        for sample in samples
        if sample.name == "idempotence_keys" and sample.value
    }
    assert keys == {
        ("lock", "order", "live"): 3,
        ("key", "pay", "ended"): 1,
        ("key", "pay", "records"): 2,
        ("token", "", "tokens"): 2,
    }
    total = json.loads(invoke(app, "stats", "--json").output)["total"]
    sizes = [sample.value for sample in samples if sample.name == "idempotence_bytes"]
    assert sum(sizes) == total["bytes"]


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ("--mode token", [("token", "-"), ("token", "checkout")]),
        ("--endpoint pay", [("key", "pay")]),
        ("--endpoint ord", []),
        ("--mode lock --endpoint ord", []),
        ("--mode lock --endpoint order", [("lock", "order")]),
    ],
)
def test_stats_of_a_part(app, arguments, places):
    fill(app)
    assert [tuple(row[:2]) for row in rows(invoke(app, "stats", *arguments.split()))] == places


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_stats_passes_over_what_is_not_ours_and_what_is_damaged(app, redis_server):
    fill(app)
    before = rows(invoke(app, "stats"))
    client = redis_server.client()
    for key in ("other:2:lock:view:" + "a" * 32, "idempotence:2:lock:no-hash", "idempotence:2:x"):
        client.set(key, b"T")
    client.lpush("idempotence:2:lock:view:" + "a" * 32, "x")  # of another type
    client.set("idempotence:2:lock:view:" + "b" * 32, b"C" + bytes(32) + b"?", ex=60)
    [new] = [row for row in rows(invoke(app, "stats")) if row not in before]
    assert new[:6] == ["lock", "view", "0", "0", "0", "0"]


def test_the_key_of_a_log_line_finds_the_claim(app, caplog):
    with caplog.at_level("INFO", "flask_idempotence"):
        for _ in range(2):
            app.test_client().post("/orders/well")
    shown = re.search(r"key=\w+", caplog.text)[0]
    [row] = rows(invoke(app, "inspect", shown))
    assert row[1:4] == ["lock", "order", "held"]
    assert 0 <= float(row[4]) < 10
    assert 10 < float(row[5]) <= 20
    [told] = json.loads(invoke(app, "inspect", shown, "--json").output)
    assert (told["holds"], 10 < told["lease_left"] <= 20) == ("held", True)
    assert 0 <= told["age"] < 10


def test_inspect_by_endpoint_identity_and_key(app):
    fill(app)
    named = ("--endpoint", "pay", "--identity", "localhost ip:127.0.0.1")
    [row] = rows(invoke(app, "inspect", *named, "--key", "a"))
    [quoted] = rows(invoke(app, "inspect", *named, "--key", '"a"'))
    assert quoted[:5] == row[:5]  # a moment later, it expires sooner
    prompted = ("--endpoint", "pay", "--identity", "-", "--key", "-")
    asked = invoke(app, "inspect", *prompted, input="localhost ip:127.0.0.1\na\n")
    assert rows(asked)[0][0] == row[0]
    for other in (
        ("--endpoint", "pay", "--identity", "localhost ip:127.0.0.2", "--key", "a"),
        (*named, "--key", "c"),
        (*named, "--key", "a", "--method", "PATCH"),
    ):
        assert invoke(app, "inspect", *other).exit_code == 1


@pytest.mark.parametrize("store", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("host", "named", "hints"),
    [
        ("shop.example:8443", "shop.example", True),
        ("shop.example:8443", "shop.example:81", False),
        ("[::1]:65535", "[::1]", True),
        ("[::1]:65535", "[::1]:1", False),
        ("localhost", "other", True),
    ],
)
def test_a_host_without_its_port_is_told_to_have_one(app, host, named, hints):
    app.test_client().post("/payments", headers={"Idempotency-Key": "a", "Host": host})
    by_key = ("inspect", "--endpoint", "pay", "--key", "a", "--identity")
    assert rows(invoke(app, *by_key, f"{host} ip:127.0.0.1"))[0][3] == "record"
    missed = invoke(app, *by_key, f"{named} ip:127.0.0.1")
    assert missed.exit_code == 1
    assert ("as in 'localhost:5000 ip:...'" in missed.stderr) is hints
    assert "localhost:5000" not in invoke(app, *by_key, "ip:127.0.0.1").stderr


def claim_since(store, seconds, mode="key", endpoint="pay", lease=60.0):
    """Claim a key as the engine did some seconds ago; return the hash as it is shown."""
    owner = int((time.time() - seconds) * 1000).to_bytes(6) + os.urandom(10)
    digest = os.urandom(16).hex()
    store.claim(f"idempotence:2:{mode}:{endpoint}:{digest}", owner, NO_FINGERPRINT, lease, 0)
    return digest[:12]


def test_running_claims_are_listed_the_oldest_first(app, store):
    done = invoke(app, "inspect", "--running")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "No claim is held" in done.stderr
    assert invoke(app, "inspect", "--running", "--json").stdout == "[]\n"
    fill(app)
    crash(app)
    young = claim_since(store, 5)
    stuck = claim_since(store, 900, "once", "invoice")
    unknown = "d" * 32  # of another library, or of an older release
    store.claim(f"idempotence:2:key:pay:{unknown}", b"\xff" * 16, NO_FINGERPRINT, 60, 0)
    found = rows(invoke(app, "inspect", "--running"))
    assert [row[0] for row in found[:3]] == [unknown[:12], stuck, young]
    assert [row[3] for row in found] == ["live"] * 3 + ["held"] * 3
    assert found[0][4] == ""
    assert 900 <= float(found[1][4]) < 910
    assert 50 < float(found[1][5]) <= 60
    old = rows(invoke(app, "inspect", "--running", "--older-than", "60"))
    assert [row[0] for row in old] == [unknown[:12], stuck]
    [told] = rows(invoke(app, "inspect", "--running", "--endpoint", "invoice"))
    assert told[:3] == [stuck, "once", "invoice"]


@pytest.mark.parametrize(
    "arguments",
    [
        *("stats --prometheus --json", "purge --yes", "inspect --older-than 5"),
        *("inspect --running abcdef12", "inspect --running --key a"),
        "inspect --running --older-than -1",
        *("inspect", "inspect abc", "inspect xyzxyzxyz", "inspect --endpoint pay"),
        *("inspect abcdef12 --key 1", "release", "release --endpoint pay --yes"),
    ],
)
def test_what_is_not_named_in_full_or_cannot_be_asked_at_once_is_refused(arguments):
    assert invoke(make_app(), *arguments.split()).exit_code == 2


@pytest.mark.parametrize(("command", "names_it"), [("inspect", True), ("release", False)])
def test_a_command_without_arguments_says_how_to_name_entries(command, names_it):
    said = invoke(make_app(), command).stderr
    assert "key=..." in said
    assert ("--running" in said.split("Error: ")[1]) == names_it


def test_a_damaged_claim_is_shown_as_unknown(redis_server, redis_url, monkeypatch):
    app = make_app(IDEMPOTENCE_STORAGE_URI=redis_url)
    redis_server.client().set("idempotence:2:key:pay:" + "a" * 32, b"Ccut", px=60_000)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    shown = invoke(app, "inspect", "a" * 12)
    assert shown.exit_code == 0, shown.exception
    assert "unknown: This value was not written by Flask-Idempotence." in shown.output


# States of a key, by every command that reads or removes one

DIGEST = "0123456789abcdef" * 2
RELEASED = ": the next such request runs it a second time.\nReleased.\n"
LIVE = "Its view may be running, and is not stopped" + RELEASED
ENDED = "Its view died, at an unknown point" + RELEASED
DONE = "Its view has run" + RELEASED
KEPT = (
    "Error: The request was carried out, and its response is remembered. To forget that, and let "
    "it run again, add --record.\n"
)
TOKEN = "Error: Not a claim, but: token. 'purge' removes such entries.\n"
NOTHING = "Error: The store has no such entry; there is nothing to release.\n"
SEVERAL = "Error: There are several. Give more of the hash.\n"
MEANINGS = {
    "live": "The view runs, or died less than a lease ago.",
    "held": "Its view runs, or died less than a lease ago, or its interval is not over.",
    "ended": "The process died in its view. Repeats get 409 outcome-unknown until this expires.",
    "record": "The request was carried out, and its response is remembered for repeats.",
    "token": "This token was issued and is not spent.",
}
STATES = {
    "a view that runs": ({"key:pay": "claim"}, ["live"], LIVE, LIVE, "live"),
    "a lock": ({"lock:pay": "claim"}, ["held"], LIVE, LIVE, "live"),
    "a view that died": ({"key:pay": "crash"}, ["ended"], ENDED, ENDED, "ended"),
    "a response": ({"key:pay": "record"}, ["record"], KEPT, DONE, "record"),
    "an operation": ({"once:mail": "record"}, ["record"], KEPT, DONE, "record"),
    "a step": ({"step:charge": "record"}, ["record"], KEPT, DONE, "record"),
    "a step of a view": (
        {"key:pay": "claim", "step:charge": "record"},
        ["live", "record"],
        LIVE,
        LIVE,
        "live",
    ),
    "a token": ({"token:-": "token"}, ["token"], TOKEN, TOKEN, "token"),
    "nothing": ({}, [], NOTHING, NOTHING, ""),
    "two views": (
        {"key:pay": "record", "lock:pay": "claim"},
        ["held", "record"],
        SEVERAL,
        SEVERAL,
        "record",
    ),
    "another prefix": ({"": "record"}, [], NOTHING, NOTHING, ""),
}
"""The entries, what each holds, the errors of `release` without and with `--record`, and what
`purge` removes or keeps of the first one."""


def key_of(place):
    return f"idempotence:2:{place}:{DIGEST}" if place else f"other:2:key:pay:{DIGEST}"


def enter(store, entries):
    store.clear("")
    for place, kind in entries.items():
        key = key_of(place)
        if kind == "record":
            store.complete(key, OWNER, NO_FINGERPRINT, b"record", 60)
        elif kind == "token":
            store.put_token(key, b"", 60)
        elif kind == "claim":
            store.claim(key, OWNER, NO_FINGERPRINT, 60, 0)
        else:
            store.claim(key, OWNER, NO_FINGERPRINT, 0.01, 60)
            time.sleep(0.03)


def told(done):
    return done.exit_code, done.stderr


@pytest.mark.parametrize("state", STATES)
class TestAKeyThatHolds:
    def test_is_shown_with_its_meaning(self, app, store, state, monkeypatch):
        entries, holds, *_ = STATES[state]
        enter(store, entries)
        done = invoke(app, "inspect", DIGEST[:6])
        assert sorted(line.split("\t")[3] for line in done.stdout.splitlines()) == holds
        assert (done.exit_code, bool(done.stderr)) == ((0, False) if holds else (1, True))
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
        monkeypatch.setenv("NO_COLOR", "1")
        lines = invoke(app, "inspect", f" key={DIGEST.upper()}").stdout.splitlines()
        assert sorted(lines[len(holds) + 1 :]) == [f"{each}: {MEANINGS[each]}" for each in holds]

    @pytest.mark.parametrize("record", [False, True])
    def test_is_released_or_says_why_it_is_not(self, app, store, state, record, caplog):
        entries, _, without, with_record, _ = STATES[state]
        expected = with_record if record else without
        enter(store, entries)
        before = set(store.scan(""))
        with caplog.at_level("INFO", "flask_idempotence"):
            done = invoke(app, "release", DIGEST[:12], "--yes", *["--record"] * record)
        assert told(done) == (0 if "Released" in expected else 1, expected)
        gone = before - set(store.scan(""))
        assert gone == ({key_of(next(iter(entries)))} if done.exit_code == 0 else set())
        place = next(iter(entries), "").replace(":", " endpoint=")
        line = f"Released by hand: mode={place} key={DIGEST[:12]}"
        assert caplog.messages == [line] * len(gone)

    @pytest.mark.parametrize("live", [False, True])
    def test_is_purged_unless_it_is_live(self, app, store, state, live):
        entries, _, _, _, held = STATES[state]
        enter(store, entries)
        ours = [place for place in entries if place]
        spared = [place for place in ours if entries[place] == "claim" and not live]
        count = len(ours) - len(spared)
        kept = " Kept, because they are live: 1 (--live removes them, too)." if spared else ""
        shared = " All applications with the prefix 'idempotence' in this store share the entries."
        options = ["--all", *["--live"] * live]
        dry = invoke(app, "purge", *options)
        assert told(dry) == (0, f"{count} would be removed (--yes does it).{kept}{shared}\n")
        done = invoke(app, "purge", *options, "--yes")
        assert told(done) == (0, f"{count} removed.{kept}\n")
        assert done.stdout == dry.stdout
        if ours and ours[0] not in spared:
            assert [*ours[0].split(":"), held, "1"] in rows(done)
        left = {key_of(place) for place in entries if place in spared or not place}
        assert set(store.scan("")) == left


def test_a_released_request_may_be_sent_again(app):
    client = app.test_client()
    assert [client.post("/orders/well").status_code for _ in range(2)] == [200, 409]
    assert invoke(app, "release", hash_of(app, "lock"), "--yes").exit_code == 0
    assert client.post("/orders/well").status_code == 200


@pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 1, 1), ("", 1, 1), ("y\n", 0, 0)])
def test_release_asks_first(app, typed, code, left):
    app.test_client().post("/orders/well")
    done = invoke(app, "release", hash_of(app, "lock"), input=typed)
    assert (done.exit_code, len(keys_of(app))) == (code, left)


def test_an_operation_is_released_with_the_records_of_its_steps(store):
    idempotence = Idempotence()
    app = make_app(store=store, idempotence=idempotence)

    @app.post("/pay")
    @idempotent
    def pay():
        with idempotence.step("charge"), idempotence.step("book"):
            pass
        return "paid"

    key = {"Idempotency-Key": "0b3d3f0e-6d1c-4c43-9d6e-8c8c3b8d5c11"}
    app.test_client().post("/pay", headers=key)
    assert len(keys_of(app)) == 3
    shown = hash_of(app, "key")[:12]  # all that a log line shows, and common to the three
    done = invoke(app, "release", shown, "--yes", "--record")
    assert (done.exit_code, keys_of(app)) == (0, [])
    with app.app_context(), idempotence.once("mail", "7"), idempotence.step("send"):
        pass
    assert invoke(app, "release", "--scope", "mail", "--id", "7", "--yes").exit_code == 0
    assert keys_of(app) == []


def test_a_claim_is_released_without_the_records_of_its_steps(store):
    app = make_app(store=store, idempotence=(idempotence := Idempotence()))
    with app.app_context(), idempotence.once("mail", 7):
        with idempotence.step("render"):
            pass
        done = invoke(app, "release", hash_of(app, "once")[:12], "--yes")
        assert (done.exit_code, len(keys_of(app))) == (0, 1)


def test_what_completes_while_somebody_is_asked_is_not_released(app, store, monkeypatch):
    key = "idempotence:2:key:pay:" + "a" * 32
    store.claim(key, OWNER, NO_FINGERPRINT, 60, 0)

    def answer(*_, **__):
        store.complete(key, OWNER, NO_FINGERPRINT, b"record", 60)
        return True

    monkeypatch.setattr("click.confirm", answer)
    done = invoke(app, "release", "a" * 32)
    assert done.exit_code == 1
    assert "changed in the meantime" in done.stderr
    assert store.peek(key).kind == "record"


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("--mode", "key"), {"lock": 3, "token": 2}),
        (("--endpoint", "checkout"), {"lock": 3, "key": 2, "token": 1}),
        (("--mode", "lock"), {"lock": 3, "key": 2, "token": 2}),
        (("--mode", "lock", "--live"), {"key": 2, "token": 2}),
        (("--all", "--live"), {}),
    ],
)
def test_purge_removes_what_is_meant(app, store, arguments, left):
    fill(app)
    store.put_token("idempotence2:2:key:pay:" + "a" * 32, b"", 60)
    assert invoke(app, "purge", *arguments, "--yes").exit_code == 0
    modes = [key.split(":")[2] for key in keys_of(app)]
    assert {mode: modes.count(mode) for mode in modes} == left
    assert list(store.scan("idempotence2:"))


def test_what_changes_while_it_is_purged_stays(app, store):
    key = "idempotence:2:key:pay:" + "a" * 32
    store.claim(key, OWNER, NO_FINGERPRINT, 0.01, 60)
    time.sleep(0.03)
    look = store.peek_all

    def complete_after_the_look(keys):
        seen = look(keys)
        store.complete(key, OWNER, NO_FINGERPRINT, b"record", 60)
        return seen

    store.peek_all = complete_after_the_look
    told = invoke(app, "purge", "--all", "--yes").stderr
    del store.peek_all
    assert told.strip() == "0 removed. Kept, because they changed in the meantime: 1."
    assert store.peek(key).kind == "record"


def test_the_documented_user_of_redis_may_look_release_purge_and_ask_the_doctor(
    redis_server, redis_url
):
    """With the rights that the documentation names and no others."""
    behind = redis_server.client()
    behind.execute_command("ACL", "SETUSER", *documented_user())
    url = redis_url.replace("://", "://shop:password@")
    app = add_views(production_app(IDEMPOTENCE_STORAGE_URI=url))
    client = app.test_client()
    assert client.post("/orders/well").status_code == 200
    assert client.post("/payments", headers={"Idempotency-Key": "k"}).status_code == 200
    token = {"Idempotence-Token": client.get("/token").json["token"]}
    assert [client.post("/checkout", headers=token).status_code for _ in range(2)] == [200, 409]
    digest = hash_of(app, "lock")
    assert rows(invoke(app, "inspect", digest))[0][3] == "held"
    assert {row[1] for row in rows(invoke(app, "stats"))} >= {"order", "pay"}
    store = app.extensions["idempotence"].store
    assert store.renew([Renewal("idempotence:none", OWNER, 10)]) == [Outcome.STALE]
    with pytest.raises(StoreError):
        store.put_token("other", b"", 10)
    assert "Released." in invoke(app, "release", digest, "--yes").output
    assert "1 removed." in invoke(app, "purge", "--all", "--yes").output
    assert keys_of(app) == []
    found = json.loads(invoke(app, "doctor", "--json").stdout)["findings"]
    severity = {each["check"]: each["severity"] for each in found}
    assert severity["store"] == "ok"
    assert "error" not in severity.values()
    assert severity["eviction"] == "note"  # which it may not look up
    behind.acl_deluser("shop")
