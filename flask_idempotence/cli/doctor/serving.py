"""How the application is served, as far as its directory and environment tell."""

from __future__ import annotations

import ast
import configparser
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What serves the application.

    Attributes:
        workers: how many processes; None for unknown.
        told_by: what says so.
        uwsgi: whether uWSGI serves it.
        uwsgi_threads: whether uWSGI lets it have threads of its own.
    """

    workers: int | None = None
    told_by: str = ""
    uwsgi: bool = False
    uwsgi_threads: bool = False


def look_around(
    environment: Mapping[str, str], directory: Path, *, workers: int | None = None
) -> Surroundings:
    """Find out how the application is served.

    Args:
        environment: the environment's variables.
        directory: where the server is started.
        workers: how many worker processes there are, if somebody has said so.
    """
    uwsgi = _uwsgi(environment, directory)
    told = [
        (workers, "--workers"),
        (_gunicorn_arguments(environment), "GUNICORN_CMD_ARGS"),
        (_gunicorn_file(directory / "gunicorn.conf.py"), "gunicorn.conf.py"),
        (_number(uwsgi.get("processes") or uwsgi.get("workers")), "the settings of uWSGI"),
        (_number(environment.get("WEB_CONCURRENCY")), "WEB_CONCURRENCY"),
    ]
    count, told_by = next(((count, by) for count, by in told if count is not None), (None, ""))
    threads = uwsgi.get("enable-threads", "").lower() in _TRUE or "threads" in uwsgi
    return Surroundings(count, told_by, uwsgi=bool(uwsgi), uwsgi_threads=threads)


def _gunicorn_arguments(environment: Mapping[str, str]) -> int | None:
    try:
        words = shlex.split(environment.get("GUNICORN_CMD_ARGS", ""))
    except ValueError:
        return None
    for word, following in pairwise([*words, ""]):
        if word in ("-w", "--workers"):
            return _number(following)
        if word.startswith("--workers="):
            return _number(word.partition("=")[2])
        if word.startswith("-w"):
            return _number(word[2:])
    return None


def _gunicorn_file(file: Path) -> int | None:
    # It is read and not run: it is a program, and what it does when it runs is not for us.
    try:
        lines = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    for line in lines:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
            names = [target.id for target in line.targets if isinstance(target, ast.Name)]
            if "workers" in names and isinstance(line.value.value, int):
                return line.value.value
    return None


def _uwsgi(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    settings = {
        name.removeprefix("UWSGI_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("UWSGI_")
    }
    # uWSGI allows what the strict reader does not: names that come several times.
    parser = configparser.ConfigParser(
        strict=False, interpolation=None, allow_no_value=True, default_section="<none>"
    )
    try:
        parser.read(directory / "uwsgi.ini", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return settings
    if parser.has_section("uwsgi"):
        settings |= {
            name: "true" if value is None else value for name, value in parser.items("uwsgi")
        }
    return settings


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdecimal() else None
