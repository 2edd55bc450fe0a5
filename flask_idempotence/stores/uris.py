"""Common mistakes in a storage URI, each with its remedy."""

from __future__ import annotations

from urllib.parse import unquote

from ..errors import ConfigurationError

_SETTING = "IDEMPOTENCE_STORAGE_URI"

UNREADABLE = (
    f"{_SETTING} cannot be read. Check its port and options, and percent-encode what is special "
    "in a password, such as '/', '#' and '@'."
)


def check_memory_uri(uri: str) -> None:
    """Refuse what would be passed over.

    Raises:
        ConfigurationError: something follows the scheme.
    """
    if uri.partition(":")[2].strip("/"):
        raise ConfigurationError(
            f"{_SETTING}: nothing follows memory://. Options, such as max_entries, go to "
            "IDEMPOTENCE_STORAGE_OPTIONS."
        )


def check_redis_uri(uri: str) -> None:
    """Refuse what redis-py would read as another server or another database.

    Raises:
        ConfigurationError: the text names the remedy, and repeats nothing of the URI.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        raise ConfigurationError(f"{_SETTING}: two slashes follow the scheme: redis://host:6379/0")
    authority, slash, tail = rest.partition("/")
    if "#" in uri:
        raise ConfigurationError(
            f"{_SETTING}: a bare '#' ends a URI. Write it as %23, as in a password."
        )
    if "@" in authority.partition("?")[2] + slash + tail:
        raise ConfigurationError(
            f"{_SETTING}: the host ends before the last '@'. In a password, percent-encode '/' "
            "as %2F and '?' as %3F; behind the host, '@' as %40."
        )
    if scheme.lower() != "unix":
        _check_database(scheme.lower(), unquote(tail.partition("?")[0]))


def _check_database(scheme: str, path: str) -> None:
    if scheme.endswith("+sentinel"):
        path = path.partition("/")[2]  # behind the service
    database = path.removesuffix("/")
    if database and not (database.isascii() and database.isdecimal()):
        raise ConfigurationError(
            f"{_SETTING}: the database of Redis is a number, such as the 0 of "
            "redis://localhost:6379/0."
        )


def check_sqlite_uri(uri: str) -> None:
    """Refuse a path that would be read as a host.

    Raises:
        ConfigurationError: the text names the remedy, and repeats nothing of the URI.
    """
    rest = uri.partition(":")[2]
    if not rest.startswith("///") and rest.partition("?")[0] != "//":  # which means in memory
        raise ConfigurationError(
            f"{_SETTING}: three slashes and a path follow sqlite, four an absolute path: "
            "sqlite:////var/lib/app/app.db"
        )
