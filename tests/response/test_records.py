"""Records: what is remembered of a response, as bytes, and who may read it."""

import ast
import contextlib
import logging
import sys
import tracemalloc
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.fernet import Fernet
from flask import Response
from helpers.apps import KeyedApp, make_app
from hypothesis import given, settings
from hypothesis import strategies as st

import flask_idempotence
from flask_idempotence import ConfigurationError
from flask_idempotence.config.runtime import read_config
from flask_idempotence.config.settings import Config
from flask_idempotence.response.records import Records, UnreadableRecord
from flask_idempotence.response.refusals import OutcomeUnknown

PLAIN = Records(Config())
K, TTL = SimpleNamespace(key="k", fingerprint=b"f" * 16), 60
KEY = b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
ENCRYPTED = Records(Config(key_encryption_keys=(KEY,)))

# Written down once more, for a test must not ask the code what it forgets, or how it abbreviates.
FORGOTTEN = (
    *("set-cookie", "date", "authorization", "authentication-info", "www-authenticate"),
    *("proxy-authenticate", "proxy-authorization", "proxy-authentication-info", "connection"),
    *("keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    *("idempotent-replayed", "idempotent-stored"),
)


def shown(response):
    """Return all that a client is to see again."""
    named = [name.strip().lower() for name in response.headers.get("Connection", "").split(",")]
    left_out = {*FORGOTTEN, *named, "content-length"}
    headers = [each for each in response.headers if each[0].lower() not in left_out]
    return response.status, headers, response.get_data()


def replayed(records, record):
    response = Response()
    assert records.replay(K, record, response)
    return response


def content(record):
    """Return a plain record of what may be nonsense, with a checksum that fits."""
    return b"2 %08x " % zlib.crc32(record) + record


class Text(str):
    """Text whose `str()` is another one, as that of a member of a `(str, Enum)` is."""

    __slots__ = ()

    def __str__(self):
        return "another text"


# Not st.text(), which spends seconds on a table of all characters when it runs for the first time.
latin = st.binary(max_size=40).map(lambda data: data.translate(None, b"\r\n").decode("latin-1"))
token = st.lists(st.sampled_from("!#$%&'*+-.^_`|~09azAZ"), min_size=1, max_size=20).map("".join)
names = (
    st.sampled_from(
        ["Content-Type", Text("X-A"), "Location", *FORGOTTEN, "location", "CONTENT-TYPE"]
    )
    | token
)
values = latin | st.sampled_from(
    [
        *("application/json", "text/html; charset=utf-8", "close, x-a", Text("en-US")),
        *("\u4e2d\u6587", "\udcff", "\0"),
    ]
)
bodies = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(max_size=20), st.integers(1, 300)
)
statuses = st.integers(100, 599) | st.builds("{} {}".format, st.integers(100, 999), latin)


@settings(max_examples=200, deadline=None)
@given(statuses, st.lists(st.tuples(names, values), max_size=8), bodies)
def test_every_response_comes_back_as_it_was(status, headers, body):
    first = Response(body, status=status)
    del first.headers["Content-Type"]
    first.headers.extend(headers)
    for records in (PLAIN, ENCRYPTED):
        again = replayed(records, records.remember(K, first, TTL)[0])
        assert shown(again) == shown(first)
        assert again.status_code == first.status_code


@pytest.mark.parametrize("name", FORGOTTEN)
def test_what_is_of_one_connection_or_one_person_is_not_remembered(name):
    first = Response("done", headers=[(name.title(), "a"), (name.upper(), "b"), ("X-Kept", "c")])
    assert name not in replayed(PLAIN, PLAIN.remember(K, first, TTL)[0]).headers
    assert replayed(PLAIN, PLAIN.remember(K, first, TTL)[0]).headers["X-Kept"] == "c"


def test_what_the_connection_names_is_of_that_connection():
    headers = {"Connection": "X-Hop, close", "x-hop": "a", "X-Kept": "b"}
    again = replayed(PLAIN, PLAIN.remember(K, Response("done", headers=headers), TTL)[0])
    assert [name for name, _ in again.headers] == ["X-Kept", "Content-Type", "Content-Length"]


def read(response):
    response.direct_passthrough = False
    response.get_data()
    return response


def frozen(response):
    response.freeze()
    return response


@pytest.mark.parametrize(
    "response",
    [
        *(read(Response(iter(["ab"]))), frozen(Response(iter(["ab"])))),
        read(Response([b"ab"], direct_passthrough=True)),
    ],
)
def test_a_stream_or_file_that_the_view_has_read_is_kept(response):
    assert replayed(PLAIN, PLAIN.remember(K, response, TTL)[0]).get_data() == b"ab"


NOT_KEPT = {
    "streamed": lambda: Response(iter(["a"])),
    "sent by the server": lambda: Response("a", direct_passthrough=True),
    "too large": lambda: Response(bytes(1_048_577)),
    "with too many headers": lambda: Response("a", headers=[("X-Large", "x" * 60_000)] * 5),
}


@pytest.mark.parametrize("kind", NOT_KEPT)
def test_a_response_that_cannot_be_kept_leaves_a_record_without_a_body(kind):
    for records in (PLAIN, ENCRYPTED):
        record = records.remember(K, NOT_KEPT[kind](), TTL)[0]
        response = Response("untouched")
        assert records.replay(K, record, response) is False
        assert response.get_data() == b"untouched"
    frozen = b"2 47106eaa bodiless 200"
    assert PLAIN.remember(K, NOT_KEPT[kind](), TTL)[0] == frozen
    assert PLAIN.remember_status(K, 200, TTL) == frozen


def paid(body):
    headers = [("Location", "/payments/1"), ("X-Trace", "a"), ("X-Trace", "é")]
    return Response(body, 201, headers, content_type="application/json")


PIECES = [b"200", b" OK", b"\n", b"\n\n", b"X: a", b": ", b"\xff", b"\0", b"\r\n"]
FIRSTS = {
    "plain": (PLAIN, paid('{"paid": true}')),
    "compressed": (PLAIN, paid('{"paid": true}' * 100)),
    "encrypted": (ENCRYPTED, paid('{"paid": true}')),
}


def bomb(size):
    return content(b"deflated " + zlib.compress(b"200 OK\n\n" + bytes(size), 9))


class TestDecoder:
    @pytest.mark.parametrize("records", [PLAIN, Records(Config(key_max_body=0))])
    def test_of_a_small_record_that_unpacks_to_a_large_one_allocates_none_of_it(self, records):
        record = bomb(30_000_000)
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableRecord, match="KEY_MAX_BODY"):
                records.replay(K, record, Response())
            assert tracemalloc.get_traced_memory()[1] < 8_000_000
        finally:
            tracemalloc.stop()

    def test_of_a_body_and_headers_of_the_largest_size_unpacks_them(self):
        headers = [("X-Large", "x" * 64_000)] * 4
        first = Response(bytes(1_048_576), headers=headers)
        again = replayed(PLAIN, PLAIN.remember(K, first, TTL)[0])
        assert shown(again) == shown(first)

    def test_of_a_packed_record_cut_off_under_a_good_checksum_says_so(self):
        packed = zlib.compress(b"200 OK\n\n" + b"paid" * 100)
        with pytest.raises(UnreadableRecord, match="cut off"):
            PLAIN.replay(K, content(b"deflated " + packed[:-5]), Response())

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from([b"", b"\x01", b"2 ", b"\x03gAAAAA"]), st.binary(max_size=200))
    def test_of_any_bytes_says_that_they_are_unreadable(self, version, data):
        for records in (PLAIN, ENCRYPTED):
            for read in (records.result, partial(records.replay, response=Response())):
                with pytest.raises(UnreadableRecord):
                    read(K, version + data)

    @settings(max_examples=500, deadline=None)
    @given(
        st.sampled_from([b"", b"response ", b"deflated ", b"bodiless ", b"result ", b"odd "]),
        st.booleans(),
        st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join),
    )
    def test_of_any_content_under_a_good_checksum_raises_nothing_else(
        self, kind, packed, nonsense
    ):
        nonsense = zlib.compress(nonsense) if packed else nonsense
        with contextlib.suppress(UnreadableRecord, OutcomeUnknown):
            PLAIN.replay(K, content(kind + nonsense), Response())
        with contextlib.suppress(UnreadableRecord):
            PLAIN.result(K, content(kind + nonsense))

    @pytest.mark.parametrize(("records", "first"), FIRSTS.values(), ids=FIRSTS)
    def test_of_a_record_with_one_changed_byte_never_makes_another_response(self, records, first):
        record = records.remember(K, first, TTL)[0]
        masks = range(1, 256) if records is PLAIN else (1, 2, 0x20, 0x80, 0xFF)
        unreadable = 0
        for position in range(len(record)):
            with pytest.raises(UnreadableRecord):
                records.replay(K, record[:position], Response())  # cut off
            for mask in masks:
                changed = bytearray(record)
                changed[position] ^= mask
                try:
                    again = replayed(records, bytes(changed))
                except UnreadableRecord:
                    unreadable += 1
                else:
                    # Base64 has bits that mean nothing.
                    assert records is ENCRYPTED
                    assert shown(again) == shown(first)
        assert unreadable > 0.95 * len(record) * len(masks)


# Records are read by the next release and by the last one: these bytes never change.
FROZEN = {
    "JSON": (
        lambda: Response('{"paid":true}\n', 201, content_type="application/json"),
        b'2 64d64895 response 201\nContent-Type: application/json\n\n{"paid":true}\n',
    ),
    "a status and headers of its own": (
        lambda: Response("é", "299 Odd", [("X-A", "1"), ("X-A", "ü")]),
        b"2 a562c08f response 299 Odd\nX-A: 1\nX-A: \xc3\xbc\n"
        b"Content-Type: text/html; charset=utf-8\n\n\xc3\xa9",
    ),
    "nothing": (
        lambda: Response("", 204),
        b"2 eb783025 response 204\nContent-Type: text/html; charset=utf-8\n\n",
    ),
}
# This one is only read: how well it is compressed is a matter of the zlib at hand.
FROZEN_COMPRESSED = b"2 977ac21e deflated " + bytes.fromhex(
    "480d333230e072cecf2b49cd2bd10da92c48b5522849ad28d12fc849ccccb35648ce482c2a4e2db12d2d49d3b5e0e2"
    "2ace5748cdcc5370c9cc4b5718658f8603b5d2000071e9d6f3"
)
FROZEN_AT = 1_900_000_000.0
FROZEN_TOKEN = (
    b"\x03gAAAAABrA-V--eiLaofcM5ezqWoJuUidF2NhTMlwGdYHySVgewm6NY0_qRUIXDV6ccs5-Onope6rN7SKw0q-tJU6Hz"
    b"-J1QTD-vojf9DoJBhtK6UJ1Jnf2_TzXKyKy-tGK-ZsktOIt80kZZepZHYusRzJk6-qBynLGbX14YGjlnQJPVAUsBLNRCdz"
    b"epx4FEpTjlSxd8p3rsM42ZtDn_HLwd09Pffni6Rdfg=="
)


@pytest.mark.parametrize("kind", FROZEN)
def test_the_bytes_of_a_record_are_frozen(kind):
    make, record = FROZEN[kind]
    assert PLAIN.remember(K, make(), TTL)[0] == record
    assert shown(replayed(PLAIN, record)) == shown(make())


def encrypted_at(now):
    records = Records(Config(key_encryption_keys=(KEY,)))
    records.clock = lambda: now
    return records


@pytest.mark.parametrize("late", [-TTL, 0, 30, 31, 1e9])
def test_an_encrypted_record_that_has_expired_is_refused(late):
    """Clocks may differ by half a minute."""
    records = encrypted_at(FROZEN_AT + TTL + late)
    if late <= 30:
        assert shown(replayed(records, FROZEN_TOKEN)) == shown(FROZEN["JSON"][0]())
    else:
        with pytest.raises(UnreadableRecord, match="expired"):
            records.replay(K, FROZEN_TOKEN, Response())


def test_a_compressed_record_of_long_ago_is_still_read():
    response = Response("so ein Ding " * 50, 200, mimetype="text/plain")
    assert shown(replayed(PLAIN, FROZEN_COMPRESSED)) == shown(response)
    assert PLAIN.remember(K, response, TTL)[0][11:19] == b"deflated"


def test_nothing_is_ever_pickled():
    sources = list(Path(flask_idempotence.__file__).parent.rglob("*.py"))
    imports = {
        name.partition(".")[0]
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
    }
    assert imports >= {"json", "struct", "zlib", "cryptography"}
    assert not imports & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


SECRETS = (b"4111111111111111", b"DE02120300000000202051", b"Very Confidential", b"X-Account")
NOT_STORED = (409, "urn:flask-idempotence:response-not-stored")
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
BAD_KEYS = (
    *(NEW, NEW.encode(), {NEW: 1}, None, 5, [NEW, None], [NEW, [OLD]]),
    *([NEW, "not a key"], ["k" * 32], [b"\xff" * 32], [NEW[:-4]], [f"ü{NEW[1:]}"], [""]),
)


class Shop(KeyedApp):
    """An application on Redis, whose records can be replaced behind its back."""

    def __init__(self, server, keys=()):
        settings = {"IDEMPOTENCE_KEY_ENCRYPTION_KEYS": keys}
        super().__init__(self.pay, uri=server.url, settings=settings, required=True)
        self.behind = server.client()

    def pay(self):
        headers = {"X-Account": "DE02120300000000202051", "X-Run": str(self.runs)}
        return "card 4111111111111111", "299 Very Confidential", headers

    def first(self, key="k", **options):
        """Send the first request with a key, and return the store key."""
        known = set(self.behind.keys())
        assert self.send(key, **options).headers["X-Run"] == str(self.runs)
        (store_key,) = set(self.behind.keys()) - known
        return store_key

    def record(self, store_key):
        return self.behind.get(store_key)[33:]

    def replace(self, store_key, record):
        """Put another record in place of the one that is there."""
        value = self.behind.get(store_key)
        self.behind.set(store_key, value[:33] + record, keepttl=True)

    def assert_unreadable(self, caplog, reason, key="k"):
        """Nothing runs, every repeat is told the same, and every time the log says why."""
        runs = self.runs
        caplog.clear()
        answers = [self.send(key) for _ in range(3)]
        assert [(answer.status_code, answer.json["type"]) for answer in answers] == [
            NOT_STORED
        ] * 3
        errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert len(errors) == 3
        assert all(reason in error and "endpoint=view" in error for error in errors)
        assert not any(secret.decode() in caplog.text for secret in SECRETS)
        assert self.send(key, data="another request").status_code == 422
        assert self.runs == runs


DAMAGE = {
    "empty": (lambda record: b"", "unknown version: empty"),
    "longer": (lambda record: record + b"\0", "checksum"),
    "of the next version": (lambda record: b"\x04" + record[1:], "unknown version: 04"),
    "pickled": (lambda record: b"\x80\x04\x95.", "unknown version: 80"),
    "cut": (lambda record: record[:-1], "checksum"),
    "changed": (lambda record: record[:-1] + b"2", "checksum"),
    "of another kind": (lambda record: content(b"X\0\xc8\0"), "unknown kind"),
    "nonsense": (lambda record: content(b"response ok\n\n"), "damaged"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_record_that_cannot_be_read_is_an_error_in_the_log_and_never_a_second_run(
    redis_server, redis_url, caplog, how
):
    shop = Shop(redis_server)
    store_key = shop.first()
    damage, reason = DAMAGE[how]
    shop.replace(store_key, damage(shop.record(store_key)))
    shop.assert_unreadable(caplog, reason)
    assert shop.first("another key")


@pytest.mark.parametrize("value", [b"", b"C", b"D", b"X" * 40, b"C" * 33 + b"x", ["a list"], None])
def test_a_value_that_is_none_of_ours_never_brings_a_500_or_a_second_run(
    redis_server, redis_url, value
):
    shop = Shop(redis_server)
    store_key = shop.first()
    if isinstance(value, bytes):
        shop.behind.set(store_key, value)
    else:
        shop.behind.delete(store_key)
        shop.behind.rpush(store_key, *(value or [b"\x80"]))
    assert {shop.send().status_code for _ in range(3)} <= {409, 422, 503}
    assert shop.runs == 1


class TestEncryption:
    def test_leaves_nothing_to_read_in_the_store(self, redis_server, redis_url):
        found = {}
        for name, keys in [("plain", ()), ("encrypted", [NEW, OLD])]:
            shop = Shop(redis_server, keys)
            store_key = shop.first(name)
            replay = shop.send(name)
            assert (replay.status, replay.text) == (
                "299 Very Confidential",
                "card 4111111111111111",
            )
            stored = shop.behind.get(store_key) + store_key + shop.behind.dump(store_key)
            found[name] = [secret for secret in SECRETS if secret in stored]
        assert found == {"plain": list(SECRETS), "encrypted": []}

    def test_keeps_a_record_without_a_body_to_itself_as_well(self):
        records = [ENCRYPTED.remember_status(K, status, TTL) for status in (200, 500)]
        assert {record[:1] for record in records} == {b"\x03"}
        with pytest.raises(UnreadableRecord):
            PLAIN.replay(K, records[0], Response())

    def test_reads_on_with_an_older_key_and_writes_with_the_newest(
        self, redis_server, redis_url, caplog
    ):
        assert Shop(redis_server, [OLD]).first("of old")
        both = Shop(redis_server, (NEW.encode(), OLD.encode()))
        assert both.send("of old").headers["Idempotent-Replayed"] == "true"
        assert both.first("of new")
        rotated = Shop(redis_server, [NEW])
        assert rotated.send("of new").headers["Idempotent-Replayed"] == "true"
        rotated.assert_unreadable(caplog, "encrypted with another key, or forged", "of old")
        assert (both.runs, rotated.runs) == (1, 0)

    def test_refuses_a_record_that_was_made_for_another_key(self, redis_server, redis_url, caplog):
        shop = Shop(redis_server, [NEW])
        mine, yours = shop.first("mine"), shop.first("yours")
        shop.replace(mine, shop.record(yours))
        shop.assert_unreadable(caplog, "made for another key", "mine")

    def test_refuses_what_anybody_may_have_written(self, redis_server, redis_url, caplog):
        Shop(redis_server).first()
        Shop(redis_server, [NEW]).assert_unreadable(caplog, "not encrypted")

    def test_refuses_a_record_that_was_brought_back_after_its_time(
        self, redis_server, redis_url, caplog
    ):
        shop = Shop(redis_server, [NEW])
        store_key = shop.first()
        value = shop.behind.get(store_key)
        shop.behind.delete(store_key)
        shop.clock.advance(86400 + 31)
        shop.behind.set(store_key, value, ex=3600)
        shop.assert_unreadable(caplog, "expired")

    def test_refuses_another_request_whose_fingerprint_was_put_beside_a_record(
        self, redis_server, redis_url, caplog
    ):
        shop = Shop(redis_server, [NEW])
        mine, other = shop.first("mine"), shop.first("yours", data="another request")
        value, fingerprint = shop.behind.get(mine), shop.behind.get(other)[17:33]
        shop.behind.set(mine, value[:17] + fingerprint + value[33:], keepttl=True)
        runs = shop.runs
        for data in ("another request", None):  # which passes for the first, and the first
            assert shop.send("mine", data=data).status_code == 422
        assert "made for another request" in caplog.text
        assert shop.runs == runs

    def test_is_missed_where_the_keys_are_gone(self, redis_server, redis_url, caplog):
        Shop(redis_server, [NEW]).first()
        Shop(redis_server).assert_unreadable(caplog, "IDEMPOTENCE_KEY_ENCRYPTION_KEYS is empty")

    @pytest.mark.parametrize("bad", BAD_KEYS, ids=range(len(BAD_KEYS)))
    def test_names_a_bad_setting_and_does_not_repeat_it(self, bad):
        with pytest.raises(ConfigurationError, match="IDEMPOTENCE_KEY_ENCRYPTION_KEYS") as raised:
            make_app(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=bad)
        assert raised.value.__cause__ is None
        for secret in (NEW, OLD, NEW[1:-4], "not a key", "kkkk", "xff"):
            assert secret not in str(raised.value)

    def test_shows_its_keys_nowhere(self):
        config = read_config(
            {
                "IDEMPOTENCE_KEY_ENCRYPTION_KEYS": [NEW, OLD],
                "IDEMPOTENCE_STORAGE_OPTIONS": {"password": "hunter2"},
            }
        )
        assert NEW not in repr(config)
        assert "hunter2" not in repr(config)
        assert NEW not in repr(vars(Records(config)))

    def test_is_an_extra_and_says_which(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cryptography.fernet", None)  # not installed
        assert "Fernet" not in vars(sys.modules[Records.__module__])  # asked for when needed
        with pytest.raises(ConfigurationError, match=r"install flask-idempotence\[crypto\]"):
            make_app(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=[NEW])
        assert make_app()  # most do not need it
