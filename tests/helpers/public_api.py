"""The public API as data: names, settings, texts of the protocol, and layouts that are stored.

uv run --directory tests python -m helpers.public_api

writes it into `tests/public_api.json`, which a test compares with the package, and prints the
differences; with `--check` it writes nothing. Each value has a line there, so that a reviewer sees
the effect of a change on users.
"""

import ast
import dataclasses
import difflib
import enum
import importlib
import inspect
import json
import logging
import re
import sys
import tomllib
import typing
import zlib
from abc import ABC

import click
import sqlalchemy

import flask_idempotence
import pytest_flask_idempotence as plugin
from flask_idempotence import (
    MemoryStore,
    SqlStore,
    StoreError,
    client,
    current_guard,
    figures,
    idempotent,
)
from flask_idempotence.cli import tools
from flask_idempotence.config.settings import DUPLICATES, SETTINGS
from flask_idempotence.response import headers
from flask_idempotence.response.refusals import PROBLEM_TYPE
from flask_idempotence.testing import StoreContract, record_signals

from .apps import StillApp, add_views, make_app
from .cli_shell import invoke
from .repository import PAGES, REFUSALS, ROOT, text_of
from .wings import MODULES

FILE = ROOT / "tests" / "public_api.json"
COMMAND = "uv run --directory tests python -m helpers.public_api"

DIRECTIVE = re.compile(r"(?m)^\.\. auto\w+:: (flask_idempotence[\w.]*)\n(?:   :[\w-]+:.*\n)*")
HIDDEN = {object, BaseException, ABC, tuple}


def names():
    """List every documented name by the place from which it is imported."""
    modules = (flask_idempotence, flask_idempotence.testing, client)
    found = {f"{module.__name__}.{name}": None for module in modules for name in module.__all__}
    for page in PAGES:
        for match in DIRECTIVE.finditer("" if page.parent.name == "zh" else text_of(page)):
            options = dict(re.findall(r":([\w-]+): ?(.*)", match[0]))
            members = re.findall(r"\w+", " ".join(options.values()))
            if inspect.ismodule(_imported(match[1])):
                found |= {f"{match[1]}.{name}": None for name in members}
            else:
                found[match[1]] = None if options.get("members") == "" else members
    return {
        name: _described(_imported(name), members, found)
        for name, members in sorted(found.items())
    }


def _imported(path):
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(_imported(module), name)


def _described(value, members, known):
    """Return the parameters of a function; of a class its bases, parameters and members."""
    if value is current_guard:
        return dict(sorted(_members(type(value)).items()))
    if inspect.isroutine(value):
        return _signature(value)
    if not inspect.isclass(value):
        return _shown(value) if isinstance(value, frozenset) else type(value).__name__
    if issubclass(value, enum.Enum):
        return {each.name: each.value for each in value}
    bases = [
        base
        for base in value.__mro__[1:]
        if base not in HIDDEN
        if base.__module__.partition(".")[0] != "flask_idempotence"
        or any(name.endswith(f".{base.__name__}") for name in known)
    ]
    described = {"bases": " ".join(base.__name__ for base in bases)} if bases else {}
    if not any(value.__init__ is base.__init__ for base in bases):
        described["()"] = _signature(value)
    attributes = (inspect.getdoc(value) or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
    documented = re.findall(r"(?m)^    (\w+): ", attributes)
    own = dict.fromkeys(documented, "attribute") | _members(value)
    if value is StoreContract:  # its tests are in a section of their own
        members = []
    elif members is None and issubclass(value, Exception):  # much of it is Werkzeug's
        members = documented
    chosen = own if members is None else [*members, *documented]
    return described | {name: own[name] for name in sorted(own) if name in chosen}


def _members(kind):
    """Return the public members that classes of the package define."""
    own = [each for each in kind.__mro__ if each.__module__.startswith("flask_idempotence")]
    listed = {name for each in own for name in [*vars(each), *inspect.get_annotations(each)]}
    return {
        name: _signature(value) if inspect.isfunction(value) else _kind_of(value)
        for name in listed
        if name in ("__call__", "__enter__", "__exit__") or name[0] != "_"
        for value in [getattr(kind, name, None)]
    }


def _kind_of(value):
    return f"attribute = {value!r}" if isinstance(value, (str, int)) else "attribute"


def _signature(value):
    """Return a line for each parameter: its name, its type as it is written, its default.

    Those of the declarations with most parameters, where there are several.
    """
    signatures = [inspect.signature(each) for each in [value, *_overloads(value)]]
    signature = max(signatures, key=lambda each: len(each.parameters))
    text = []
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not {"*", "*args"}.intersection(text):
            text.append("*")
        default = "" if each.default is each.empty else f" = {_shown(each.default)}"
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        text.append(f"{star}{each.name}{_typed(': ', each.annotation)}{default}")
    returned = "" if inspect.isclass(value) else _typed("-> ", signature.return_annotation)
    return [line for line in [*text, returned] if line and not line.startswith("self")]


def _overloads(value):
    return [] if inspect.isclass(value) else typing.get_overloads(value)


def _typed(mark, annotation):
    if annotation is inspect.Signature.empty:
        return ""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    return mark + (annotation if isinstance(annotation, str) else repr(annotation))


def _shown(value):
    """Return a value as it is written; an object or a function is three dots."""
    if isinstance(value, frozenset):
        return " ".join(map(str, sorted(value)))
    return "..." if repr(value)[0] == "<" else repr(value)


def settings():
    return {
        name: repr(field.default if field.default is not dataclasses.MISSING else {})
        + (", read at request time" if field.metadata["live"] else "")
        for name, field in SETTINGS.items()
    }


def refusals():
    """Return the problem types by their slugs."""
    return {
        slug: f"{error.code} {error.__name__}: {error.title}"
        + (f" Retry-After: {error().retry_after}" if error().retry_after else "")
        + (" IDEMPOTENCE_DUPLICATE_STATUS replaces the status." if slug in DUPLICATES else "")
        for slug, error in REFUSALS.items()
    }


class Noting(MemoryStore):
    """A store that notes what it is to remember, by key."""

    def __init__(self):
        super().__init__()
        self.stored, self.is_down = {}, False

    def claim(self, key, *given, **named):
        if self.is_down:
            raise StoreError("no answer")
        self.stored.setdefault(key, "")
        return super().claim(key, *given, **named)

    def complete(self, key, owner, fingerprint, record, *given, **named):
        head, _, deflated = record.partition(b"deflated ")
        if deflated:  # without the checksum of bytes that another zlib makes otherwise
            head = b"2 ... deflated " + zlib.decompress(deflated)
        self.stored[key] = f"{fingerprint.hex()} {head.decode()[:99]}"
        return super().complete(key, owner, fingerprint, record, *given, **named)


def protocol():
    """Send requests through every mode; return headers, signals, log lines and stored values."""
    still, lines = StillApp(store=Noting(), IDEMPOTENCE_KEY_MAX_BODY=600), []
    app, logger = add_views(still.app), logging.getLogger("flask_idempotence")

    @app.post("/reports/<int:size>")
    @idempotent
    def report(size):
        with still.idempotence.step("write"):
            return "0" * size

    handler, before = logging.Handler(), (logger.level, logger.propagate)
    handler.emit = lambda record: lines.append(f"{record.levelname} {record.getMessage()}")
    logger.addHandler(handler)
    logger.level, logger.propagate = logging.INFO, False
    try:
        with record_signals(app) as recorder:
            token = send_everything(app, still)
        printed = {
            command: invoke(app, *command.split(), "--json").stdout
            for command in ("config", "doctor", "inspect --running", "routes", "stats")
        }
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
    sent = {name: " ".join(sorted(given)) for name, given in recorder.events}
    lines = {re.sub(r"key=\w+", "key=...", re.sub(r"\d+\.\d+", "0.0", line)) for line in lines}
    return {
        "headers": [
            *(value for name, value in vars(headers).items() if name.endswith("_HEADER")),
            f"Content-Type: {PROBLEM_TYPE}",
        ],
        "the answer of the token route": list(token),
        "signals": dict(sorted(sent.items())),
        "log lines of requests": sorted(lines),
        "stored keys, fingerprints and records": {
            key: value for key, value in still.store.stored.items() if ":probe:" not in key
        },
        "shapes of JSON that commands print": {
            command: _shape(json.loads(text)) for command, text in printed.items()
        },
    }


def _shape(value):
    """Return the names in an object, or in the first of a list."""
    if isinstance(value, list):
        return [_shape(each) for each in value[:1]]
    if isinstance(value, dict):
        return {
            name: _shape(part)
            for name, part in value.items()
            if not name.startswith("IDEMPOTENCE_")
        }
    return type(value).__name__


def send_everything(app, still):
    """Send requests that bring every signal about; return the answer of the token route."""
    client = app.test_client()
    for url in ("/orders/fail", "/orders/lose", "/orders/well", "/orders/well", "/payments"):
        client.post(url, headers={"Idempotency-Key": "1"})
    token = client.get("/token").json
    for _ in range(2):
        client.post("/checkout", headers={"Idempotence-Token": token["token"]})
        client.post("/payments", json={"amount": 5}, headers={"Idempotency-Key": "2"})
    for size in (550, 650):
        client.post(f"/reports/{size}", headers={"Idempotency-Key": str(size)})
    mail, printer = still.idempotence.once("mail", 7), still.idempotence.lock("printer")
    with app.app_context(), mail, printer:
        mail.result = [1]
    still.store.is_down = True
    client.post("/payments", headers={"Idempotency-Key": "3"})
    app.config["IDEMPOTENCE_OBSERVE"] = True
    client.post("/checkout")
    still.store.is_down = False
    return token


def metrics():
    return {
        each.name: [*each.labels, *map(str, each.buckets)]
        for each in sorted(
            (value for value in vars(figures).values() if isinstance(value, figures.Figure)),
            key=lambda each: each.name,
        )
    }


def log_lines():
    """List the texts of log lines that a page quotes."""
    pages = " ".join(" ".join(map(text_of, PAGES)).split())
    return sorted(
        {
            text
            for path in MODULES.values()
            for text in _log_texts(ast.parse(text_of(path)))
            for head in [text.partition("%")[0].rstrip(" :(")]
            if len(head.split()) > 2 and head in pages
        }
    )


def _log_texts(tree):
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_logger."):
            for each in node.args[:2]:
                text = constants.get(getattr(each, "id", ""), each)
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value


def layouts():
    """Return the layouts that the pages of the keyspace show, and the tables of databases."""
    pages = "".join(text_of(page) for page in PAGES if page.name == "keyspace.md")
    blocks = re.findall(r"(?ms)^```text\n(.*?)^```$", pages)
    urls = {
        "SQLite": "sqlite:///shop.db",
        "PostgreSQL": "postgresql+psycopg://",
        "MySQL": "mysql+pymysql://",
    }
    return {
        "of the pages": [line for block in blocks for line in block.splitlines() if line],
        **{name: _table(url) for name, url in urls.items()},
    }


def _table(url):
    engine = sqlalchemy.create_engine(url)
    return [line.strip() for line in SqlStore(engine).ddl().splitlines() if line.strip()]


def commands():
    context = click.Context(tools)
    return {
        name: [_option(each) for each in tools.get_command(context, name).params]
        for name in tools.list_commands(context)
    }


def _option(option):
    text = " ".join([*option.opts, *option.secondary_opts])
    if isinstance(option.type, click.Choice):
        text += f" {'|'.join(option.type.choices)}"
    if not isinstance(option.default, bool) and isinstance(option.default, (int, float, str)):
        text += f" = {option.default}"
    return text + (" (required)" if option.required else "")


def package():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    script = text_of(ROOT / "flask_idempotence" / "web" / "static" / "idempotence.d.ts")
    fixtures = [name for name, value in vars(plugin).items() if "ixture" in type(value).__name__]
    return {
        "Python": project["requires-python"],
        "extras": sorted(project["optional-dependencies"]),
        "fixtures of pytest": sorted([*fixtures, f"mark {plugin.KEEP}"]),
        "tests of StoreContract": [name for name in dir(StoreContract) if name[:5] == "test_"],
        "functions of templates": sorted(
            name for name in make_app().jinja_env.globals if name.startswith("idempotence")
        ),
        "routes": sorted(rule.rule for rule in make_app().url_map.iter_rules()),
        "JavaScript": [
            line.strip() for line in script.splitlines() if re.match(r"export|  \w", line)
        ],
    }


def current():
    """Return the public API of the package as it is."""
    return {
        "names": names(),
        "settings": settings(),
        "refusals": refusals(),
        **protocol(),
        "metrics": metrics(),
        "log lines that pages quote": log_lines(),
        "layouts": layouts(),
        "commands": commands(),
        "package": package(),
    }


def written(api):
    return json.dumps(api, indent=1, ensure_ascii=False) + "\n"


def difference(old, new):
    """Return the lines that differ, each group below the headings that lead to it."""
    lines, shown, path = [], [], []
    before, after = ([line.rstrip(",") for line in text.splitlines()] for text in (old, new))
    for line in difflib.ndiff(before, after, charjunk=None):
        if line[0] == "?":
            continue
        text = line[2:]
        depth = len(text) - len(text.lstrip())
        path = [each for each in path if each[0] < depth]
        if line[0] != " ":
            lines += [f"  {each[1]}" for each in path if each not in shown]
            shown = list(path)
            lines.append(line)
        if text.endswith(("{", "[")):
            path.append((depth, text))
            shown += path[-1:] if line[0] != " " else []
    return "\n".join(lines)


def main():
    frozen, new = text_of(FILE), written(current())
    sys.stdout.write(difference(frozen, new) + "\n")
    if "--check" in sys.argv:
        sys.exit(frozen != new)
    FILE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
