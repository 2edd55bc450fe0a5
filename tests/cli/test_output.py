"""Names from the store, the settings and the command line reach a terminal or a parser escaped."""

import ast
import json
import re

import click
import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet
from helpers.apps import bare_app, make_app
from helpers.cli_shell import invoke
from helpers.repository import ROOT
from prometheus_client.parser import text_string_to_metric_families

from flask_idempotence import Idempotence, idempotent, no_repeat_submit
from flask_idempotence.cli import output, tools
from flask_idempotence.stores.base import NO_FINGERPRINT

CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
FORMATS = [0x61C, 0x200B, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
EVIL = "\x1b[31m" + "".join(map(chr, [*CONTROLS, *FORMATS, 0xFEFF, 0xE0001])) + '"\\x9b'

ARGUMENTS = {
    "doctor": ("--workers", "1"),
    "inspect": ("{digest}",),
    "purge": ("--all", "--live", "--yes"),
    "release": ("{digest}", "--yes"),
    "routes": ("--defaults",),
}
FORMS = {"--json", "--prometheus", "--sql"}
KEEP_NAMES = {"config", "inspect", "routes", "stats"}
"""Their JSON has names as they are."""


def runs():
    for command in tools.list_commands(None):
        options = {o for param in tools.get_command(None, command).params for o in param.opts}
        for form in ("pipe", "terminal", *sorted(FORMS & options)):
            yield pytest.param(command, form, id=f"{command} {form}")


SECRETS = {
    "SECRET_KEY": "the-secret-key-of-the-application",
    "SECRET_KEY_FALLBACKS": ["the-old-secret-key-of-the-application"],
    "IDEMPOTENCE_HASH_KEY": "the-key-of-the-stored-hashes",
    "IDEMPOTENCE_KEY_ENCRYPTION_KEYS": [Fernet.generate_key().decode()],
}
SHOWN_NOWHERE = [
    *(SECRETS["SECRET_KEY"], *SECRETS["SECRET_KEY_FALLBACKS"], SECRETS["IDEMPOTENCE_HASH_KEY"]),
    *(*SECRETS["IDEMPOTENCE_KEY_ENCRYPTION_KEYS"], "the-user", "the-password", "127.0.0.1"),
    *("192.0.2.77", "the-file", "the-idempotency-key", "the-argument", "the-query"),
    *("the-client", "the-cookie", "the-card"),
]


def pay(settings, store):
    """Leave a record behind by a request with secrets in it; return its hash."""
    app = make_app(**settings)
    app.post("/pay/<argument>")(idempotent(lambda argument: f"paid by {argument}"))
    paid = app.test_client().post(
        "/pay/the-argument?q=the-query",
        environ_base={"REMOTE_ADDR": "192.0.2.77"},
        headers={"Idempotency-Key": "the-idempotency-key", "Cookie": "sid=the-cookie"},
        data={"card": "the-card"},
    )
    assert paid.status_code == 200
    [key] = store.scan("idempotence:2:key:")
    return key.rpartition(":")[2]


@pytest.fixture
def evil_app(redis_server, redis_url, tmp_path):
    """Return a function that makes an application with secrets, and evil names everywhere."""

    def make(command):
        settings = {"IDEMPOTENCE_LOCK_MESSAGE": EVIL, **SECRETS}
        if of_database := command in {"init-db", "prune"}:
            settings["IDEMPOTENCE_STORAGE_URI"] = f"sqlite:///{tmp_path}/the-file.db"
        else:
            redis_server.client().execute_command(
                *["ACL", "SETUSER", "the-user", "on", ">the-password", "~*", "&*", "+@all"]
            )
            uri = redis_url.replace("://", "://the-user:the-password@")
            settings["IDEMPOTENCE_STORAGE_URI"] = uri
            settings["IDEMPOTENCE_STORAGE_OPTIONS"] = {"client_name": "the-client"}
        app = bare_app(**settings)
        Idempotence(app)
        no_repeat_submit(9)(
            app.post("/" + EVIL.replace("<", ""), endpoint=EVIL)(lambda: "a guard above its route")
        )
        app.post("/unguarded" + EVIL, endpoint="other " + EVIL)(lambda: "ordered")
        store = app.extensions["idempotence"].store
        if of_database:
            store.create_table()
            return app, ""
        digest = pay(settings, store)
        key = f"idempotence:2:lo{EVIL}ck:{EVIL}:{digest}"
        store.claim(key, b"o" * 16, NO_FINGERPRINT, 60, 0)
        return app, digest

    return make


def unsafe(text, layout):
    return sorted({letter for letter in text if not letter.isprintable()} - set(layout))


@pytest.mark.parametrize(("command", "form"), list(runs()))
def test_no_command_prints_a_control_character_a_secret_an_address_or_an_argument(
    evil_app, monkeypatch, command, form, caplog
):
    app, digest = evil_app(command)
    if command == "release":
        app.extensions["idempotence"].store.clear("idempotence:2:key:")  # it takes one entry only
    monkeypatch.setenv("NO_COLOR", "1")
    if form == "terminal":
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    arguments = [each.format(digest=digest) for each in ARGUMENTS.get(command, ())]
    with caplog.at_level("INFO", "flask_idempotence"):
        done = invoke(app, command, *arguments, *({form} & FORMS))
    assert done.exit_code in ({0, 1} if command == "doctor" else {0}), done.output
    has_tabs = form in {"pipe", "--sql"}
    assert unsafe(done.stdout, "\n\t" if has_tabs else "\n") == []
    assert unsafe(done.stderr, "\n") == []
    assert [unsafe(line, "") for line in caplog.messages if "by hand" in line] in ([], [[]])
    if form == "--json" and command in KEEP_NAMES:
        assert json.dumps(EVIL)[1:-1] in done.stdout
    assert [text for text in SHOWN_NOWHERE if text in done.output + caplog.text] == []


def test_a_label_that_looks_like_an_escaped_one_makes_no_second_sample(evil_app):
    """Prometheus refuses a page on which one series comes twice."""
    app, digest = evil_app("stats")
    store = app.extensions["idempotence"].store
    for name in ("a\x9b", "a\\x9b"):
        store.put_token(f"idempotence:2:lock:{name}:{digest}", b"", 60)
    done = invoke(app, "stats", "--prometheus")
    series = [line.rpartition(" ")[0] for line in done.stdout.splitlines() if line[0] != "#"]
    assert len(set(series)) == len(series)
    [family, _] = text_string_to_metric_families(done.stdout)
    counts = {sample.labels["endpoint"]: sample.value for sample in family.samples if sample.value}
    assert counts["a\\x9b"] == 2


@pytest.mark.parametrize("command", tools.list_commands(None))
def test_an_error_message_is_escaped(command):
    wrong = ((command, "--" + EVIL), (command, "--json=" + EVIL), (command, EVIL, EVIL))
    for arguments in (*wrong, (command + EVIL,)):
        done = invoke(make_app(), *arguments)
        assert (done.exit_code, unsafe(done.output, "\n")) == (2, [])


def test_only_the_module_of_the_output_prints():
    printing = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "flask_idempotence" / "cli").rglob("*.py")
        if path.name != "output.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and re.search(r"^print$|click\.(secho|echo)|\.write", ast.unparse(node.func))
    ]
    assert printing == []


TABLE = [
    {"first_name": "a", "keys": 7, "age": None, "rest": "x\ty"},
    {"first_name": "long", "keys": 12, "age": 1.25, "rest": ""},
    {"first_name": "", "keys": None, "age": 30.0, "rest": None},
]
PLAIN = """\
FIRST NAME  KEYS   AGE  REST
a              7        x\\ty
long          12   1.2
                  30.0
"""


@pytest.mark.parametrize("colours", [(), ("green", "red", "yellow")])
@pytest.mark.parametrize("where", ["terminal", "terminal without colours", "pipe"])
def test_a_table_is_aligned_in_a_terminal_and_separated_by_tabs_in_a_pipe(
    monkeypatch, where, colours
):
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: where != "pipe")
    monkeypatch.setenv("NO_COLOR", "1" if where == "terminal without colours" else "")
    shown = CliRunner().invoke(
        click.command(lambda: output.print_table(TABLE, colours)), color=True
    )
    if where == "pipe":
        assert shown.output == "a\t7\t\tx\\ty\nlong\t12\t1.2\t\n\t\t30.0\t\n"
        return
    assert click.unstyle(shown.output) == PLAIN
    heading, *lines = shown.output.splitlines()
    styled = where == "terminal"
    assert heading.startswith("\x1b[1mFIRST NAME") is styled
    codes = [re.match(r"\x1b\[(\d+)m", line) for line in lines]
    expected = ["32", "31", "33"] if styled and colours else [None] * 3
    assert [code and code[1] for code in codes] == expected
    assert all(line.count("\x1b") == 2 * styled * bool(colours) for line in lines)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_of_a_long_job_is_shown_in_a_terminal(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(output, "_is_terminal", lambda _: is_terminal)
    for read in (4999, 5000, 12_000):
        output.show_progress(read)
    output.show_progress(12_000, is_over=True)
    shown = "\r5,000 keys read\r12,000 keys read\r12,000 keys read\n" if is_terminal else ""
    assert capsys.readouterr() == ("", shown)


def test_json_and_lines_aside_are_escaped(capsys):
    output.print_json({"é": ["\x7f", "\x1b"]})
    output.print_aside("a\tb\x9b\n")
    shown = capsys.readouterr()
    assert shown.out == '{\n  "\\u00e9": [\n    "\\u007f",\n    "\\u001b"\n  ]\n}\n'
    assert shown.err == "a\\tb\\x9b\\n\n"


def test_a_closed_output_is_no_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert output.in_terminal() is False
