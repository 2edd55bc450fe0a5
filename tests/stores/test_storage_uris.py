"""Mistakes in a storage URI: each is told with its remedy, and none with its password."""

import pytest

from flask_idempotence import ConfigurationError, MemoryStore, RedisStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.uris import DATABASES

A_NUMBER = "the database of Redis is a number"
ENDS_EARLY = "the host ends before the last '@'"
A_BARE_HASH = "a bare '#' ends a URI. Write it as %23"


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("postgres://u:hunter2@h/app", "postgresql+psycopg://"),
        ("postgres+psycopg://u:hunter2@h/app", "postgresql+psycopg://"),
        ("redis://:hunter2@h/zero", A_NUMBER),
        ("redis://:hunter2@h/0/1", A_NUMBER),
        ("redis://:hunter2@h/-1", A_NUMBER),
        ("rediss://:hunter2@h/zero?ssl_cert_reqs=none", A_NUMBER),
        ("valkey://:hunter2@h/zero", A_NUMBER),
        ("redis+sentinel://:hunter2@h1,h2/service/zero", A_NUMBER),
        ("redis+cluster://:hunter2@h1,h2/zero", A_NUMBER),
        ("redis://:hun#ter2@h/0", A_BARE_HASH),
        ("redis://user#hunter2@h/0", A_BARE_HASH),  # would be the host "user"
        ("redis://:12#hunter2@h/0", A_BARE_HASH),  # would be the port 12 of localhost
        ("redis+cluster://:pa#hunter2@h/0", A_BARE_HASH),
        ("unix://:hun#ter2@/tmp/redis.sock", A_BARE_HASH),
        ("redis://:hun/ter2@h/0", ENDS_EARLY),
        ("redis://user/hunter2@h/0", ENDS_EARLY),
        ("redis://user:1?hunter2@h/0", ENDS_EARLY),
        ("redis://user:1?hunter2=x@h/0", ENDS_EARLY),
        ("redis:hunter2@h/0", "two slashes"),
        ("redis:/:hunter2@h/0", "two slashes"),
        ("mysql+pymysql://u:hunter2@h", "mysql+pymysql://user@host/shop"),
        ("mysql+pymysql://u:hunter2@h/?charset=utf8mb4", "mysql+pymysql://user@host/shop"),
        ("memory://hunter2", "IDEMPOTENCE_STORAGE_OPTIONS"),
        ("memory://?max_entries=5", "IDEMPOTENCE_STORAGE_OPTIONS"),
    ],
)
def test_a_mistake_is_told_with_its_remedy_and_without_the_value(uri, remedy):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, {})
    text = str(caught.value)
    assert text.startswith("IDEMPOTENCE_STORAGE_URI")
    assert remedy in text
    assert not any(piece in text for piece in ("hun", "ter2"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


SCHEMES = (
    "memory://, redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel://, "
    "rediss+sentinel://, valkey+sentinel://, valkeys+sentinel://, redis+cluster://, "
    "rediss+cluster://, valkey+cluster://, valkeys+cluster://, "
)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        (
            "memory://5",
            "nothing follows memory://. Options, such as max_entries, go to "
            "IDEMPOTENCE_STORAGE_OPTIONS.",
        ),
        (
            "sqlite://app.db",
            "three slashes and a path follow sqlite, four an absolute path: "
            "sqlite:////var/lib/app/app.db",
        ),
        (
            "postgres://h/app",
            "SQLAlchemy no longer knows postgres://. Begin it with postgresql+psycopg:// instead.",
        ),
        ("redis:h", "two slashes follow the scheme: redis://host:6379/0"),
        ("redis://#h", "a bare '#' ends a URI. Write it as %23, as in a password."),
        (
            "redis://a/b@h",
            "the host ends before the last '@'. In a password, percent-encode '/' as %2F and '?' "
            "as %3F; behind the host, '@' as %40.",
        ),
        (
            "redis://h/zero",
            "the database of Redis is a number, such as the 0 of redis://localhost:6379/0.",
        ),
    ],
)
def test_each_remedy_in_full(uri, remedy):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, {})
    assert str(caught.value) == f"IDEMPOTENCE_STORAGE_URI: {remedy}"


@pytest.mark.parametrize("uri", ["", "redis", "1redis://h", "mongodb://h", "redis+tls://h", "//h"])
def test_an_unknown_scheme_is_answered_with_all_that_are_known(uri):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, {})
    known = f"IDEMPOTENCE_STORAGE_URI: the scheme must be one of {SCHEMES}"
    assert str(caught.value).startswith(known)
    assert str(caught.value).removeprefix(known).removesuffix(".").split(", ") == [
        f"{kind}://" for kind in DATABASES
    ]


def test_a_uri_that_cannot_be_read_is_refused_in_full():
    with pytest.raises(ConfigurationError) as caught:
        open_store("redis://a:hunter2", {})
    assert str(caught.value) == (
        "IDEMPOTENCE_STORAGE_URI cannot be read. Check its port and options, and percent-encode "
        "special characters in a password, such as '/', '#' and '@'."
    )


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("memory://", MemoryStore),
        ("memory:", MemoryStore),
        ("redis://h", RedisStore),
        ("redis://h/", RedisStore),
        ("redis://h/0/", RedisStore),
        ("redis:///3", RedisStore),
        ("redis://user:p%23%2F%3Fss@h:6379/15?deadline=2", RedisStore),
        ("redis://:p@ss@h/0", RedisStore),
        ("unix://user:pass@/tmp/redis.sock?db=3", RedisStore),
        ("redis+sentinel://user:pass@h1,h2/service", RedisStore),
        ("redis+sentinel://user:pass@h1,h2/service/3", RedisStore),
        ("redis+cluster://user:pass@h1,h2/0", RedisStore),
    ],
)
def test_what_is_right_is_left_alone(uri, kind):
    assert isinstance(open_store(uri, {}), kind)


@pytest.mark.parametrize(
    ("uri", "options", "named"),
    [
        ("memory://", {"max_entries": "5"}, "max_entries"),
        ("memory://", {"max_entries": 0}, "max_entries"),
        ("memory://", {"clock": 5}, "clock"),
        ("redis://h", {"deadline": 10**400}, "deadline"),
        ("redis://h", {"wait_replicas": -1}, "wait_replicas"),
        ("redis://h", {"no_such_option": 1}, "no_such_option"),
        ("redis+cluster://h/1", {}, "database 0"),
        ("sqlite:////tmp/app.db", {"deadline": 10**400}, "deadline"),
        ("sqlite:////tmp/app.db", {"echo": "hunter2"}, "KeyError"),
        ("sqlite:////tmp/app.db", {"poolclass": "hunter2"}, "AttributeError"),
        ("sqlite:///:memory:", {}, "SQLite in a file"),
    ],
)
def test_an_option_that_will_not_do_is_refused_with_the_name_of_the_setting(uri, options, named):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, options)
    text = str(caught.value)
    assert text.startswith("IDEMPOTENCE_STORAGE_")
    assert named in text
    assert "hunter2" not in text
