"""Names from the store, the settings and the command line reach a terminal or a parser escaped."""

import ast
import json
import re
import threading

import pytest
from cryptography.fernet import Fernet
from helpers.apps import bare_app
from helpers.repository import ROOT
from prometheus_client.parser import text_string_to_metric_families

from flask_idempotence import Idempotence, idempotent, no_repeat_submit
from flask_idempotence.cli import tools
from flask_idempotence.stores.base import NO_FINGERPRINT

CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
FORMATS = [0x61C, 0x200B, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
EVIL = "\x1b[31m" + "".join(map(chr, [*CONTROLS, *FORMATS, 0xFEFF, 0xE0001])) + '"\\x9b'
DIGEST = "a" * 32

ARGUMENTS = {
    "config": (),
    "doctor": ("--workers", "1"),
    "init-db": (),
    "inspect": (DIGEST,),
    "prune": (),
    "purge": ("--all", "--live", "--yes"),
    "release": (DIGEST, "--yes"),
    "routes": ("--defaults",),
    "stats": (),
    "watch": ("--for", "0.6"),
}
FORMS = {"--json", "--prometheus", "--sql"}


def runs():
    """Yield each command in a pipe and in a terminal, and with each of its forms."""
    for command in tools.list_commands(None):
        options = {o for param in tools.get_command(None, command).params for o in param.opts}
        for form in ("pipe", "terminal", *sorted(FORMS & options)):
            yield pytest.param(command, form, id=f"{command} {form}")


@pytest.fixture
def evil_app(redis_url, tmp_path):
    def make(command):
        of_database = command in {"init-db", "prune"}
        uri = f"sqlite:///{tmp_path}/store.db" if of_database else redis_url
        app = bare_app(IDEMPOTENCE_STORAGE_URI=uri, IDEMPOTENCE_LOCK_MESSAGE=EVIL)
        Idempotence(app)
        guard_above = no_repeat_submit(9)
        rule = "/" + EVIL.replace("<", "")
        guard_above(app.route(rule, methods=["POST"], endpoint=EVIL)(lambda: "ordered"))
        app.post("/unguarded" + EVIL, endpoint="other " + EVIL)(lambda: "ordered")
        store = app.extensions["idempotence"].store
        if of_database:
            store.create_table()
        else:
            key = f"idempotence:2:lo{EVIL}ck:{EVIL}:{DIGEST}"
            store.claim(key, b"o" * 16, NO_FINGERPRINT, 60, 0)
        return app

    return make


@pytest.fixture
def publishing(redis_server, redis_url):
    """Publish one signal with evil fields, again and again."""
    ended = threading.Event()
    message = {"worker": EVIL + "\ud800", "run": "r", "number": 1, "dropped": 0}
    message["events"] = [[1.7e9, *[EVIL] * 5, {}]]

    def publish():
        while not ended.wait(0.05):
            redis_server.client().publish("idempotence:watch", json.dumps(message))

    thread = threading.Thread(target=publish)
    thread.start()
    yield
    ended.set()
    thread.join()


def unsafe(text, layout):
    return sorted({letter for letter in text if not letter.isprintable()} - set(layout))


@pytest.mark.usefixtures("publishing")
@pytest.mark.parametrize(("command", "form"), list(runs()))
def test_no_command_prints_a_control_character(evil_app, command, form, monkeypatch, caplog):
    monkeypatch.setenv("NO_COLOR", "1")
    if form == "terminal":
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    options = {form} & FORMS
    app = evil_app(command)
    with caplog.at_level("INFO", "flask_idempotence"):
        done = app.test_cli_runner().invoke(
            args=["idempotence", command, *ARGUMENTS[command], *options]
        )
    assert done.exit_code in ({0, 1} if command == "doctor" else {0}), done.output
    has_tabs = command == "watch" or form in {"pipe", "--sql"}
    assert unsafe(done.stdout, "\n\t" if has_tabs else "\n") == []
    assert unsafe(done.stderr, "\n") == []
    assert [unsafe(line, "") for line in caplog.messages if "by hand" in line] in ([], [[]])


SECRETS = {
    "SECRET_KEY": "the-secret-key-of-the-application",
    "SECRET_KEY_FALLBACKS": ["the-old-secret-key-of-the-application"],
    "IDEMPOTENCE_HASH_KEY": "the-key-of-the-stored-hashes",
    "IDEMPOTENCE_KEY_ENCRYPTION_KEYS": [Fernet.generate_key().decode()],
}


@pytest.mark.parametrize(("command", "form"), list(runs()))
def test_no_command_shows_a_secret_an_address_or_an_argument(
    redis_server, redis_url, tmp_path, command, form, monkeypatch, caplog
):
    monkeypatch.setenv("NO_COLOR", "1")
    if form == "terminal":
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    redis_server.client().execute_command(
        *["ACL", "SETUSER", "the-user", "on", ">the-password", "~*", "&*", "+@all"]
    )
    uri = redis_url.replace("://", "://the-user:the-password@")
    if command in {"init-db", "prune"}:
        uri = f"sqlite:///{tmp_path}/the-file.db"
    app = bare_app(IDEMPOTENCE_STORAGE_URI=uri, **SECRETS)
    if command not in {"init-db", "prune"}:
        app.config["IDEMPOTENCE_STORAGE_OPTIONS"] = {"client_name": "the-client"}
    Idempotence(app)
    app.post("/pay/<argument>")(idempotent(lambda argument: f"paid by {argument}"))
    if command == "prune":
        app.extensions["idempotence"].store.create_table()
    if command not in {"init-db", "prune"}:
        paid = app.test_client().post(
            "/pay/the-argument?q=the-query",
            environ_base={"REMOTE_ADDR": "192.0.2.77"},
            headers={"Idempotency-Key": "the-idempotency-key", "Cookie": "sid=the-cookie"},
            data={"card": "the-card"},
        )
        assert paid.status_code == 200
        [key] = app.extensions["idempotence"].store.scan("idempotence:")
    digest = (key.rpartition(":")[2],) if command in {"inspect", "release"} else ()
    more = (*digest, *ARGUMENTS[command][len(digest) :], *({form} & FORMS))
    more += ("--record",) if command == "release" else ()
    with caplog.at_level("INFO", "flask_idempotence"):
        done = app.test_cli_runner().invoke(args=["idempotence", command, *more])
    assert done.exit_code in ({0, 1} if command == "doctor" else {0}), done.output
    shown = done.output + caplog.text
    of_settings = [each for value in SECRETS.values() for each in (value, value[0])]
    secrets = [each for each in of_settings if isinstance(each, str) and len(each) > 1]
    for secret in (*secrets, "the-user", "the-password", "127.0.0.1", "192.0.2.77"):
        assert secret not in shown
    for secret in ("file", "idempotency-key", "argument", "query", "client", "cookie", "card"):
        assert f"the-{secret}" not in shown


def strings(value):
    """Return all strings in a value of JSON."""
    if isinstance(value, dict | list):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return [text for each in inner for text in strings(each)]
    return [value]


@pytest.mark.usefixtures("publishing")
@pytest.mark.parametrize("command", ["config", "inspect", "routes", "stats", "watch"])
def test_json_keeps_the_name(evil_app, command):
    arguments = ["idempotence", command, *ARGUMENTS[command], "--json"]
    done = evil_app(command).test_cli_runner().invoke(args=arguments)
    assert EVIL in strings(json.loads(done.stdout))


def test_a_label_that_looks_like_an_escaped_one_makes_no_second_sample(evil_app):
    """Prometheus refuses a page on which one series comes twice."""
    app = evil_app("stats")
    store = app.extensions["idempotence"].store
    for name in ("a\x9b", "a\\x9b"):
        store.put_token(f"idempotence:2:lock:{name}:{DIGEST}", b"", 60)
    done = app.test_cli_runner().invoke(args=["idempotence", "stats", "--prometheus"])
    series = [line.rpartition(" ")[0] for line in done.stdout.splitlines() if line[0] != "#"]
    assert len(set(series)) == len(series)
    [family, _] = text_string_to_metric_families(done.stdout)
    counts = {sample.labels["endpoint"]: sample.value for sample in family.samples if sample.value}
    assert counts["a\\x9b"] == 2


@pytest.mark.parametrize("command", tools.list_commands(None))
def test_an_error_message_is_escaped(evil_app, command):
    for wrong in (("--" + EVIL,), ("--json=" + EVIL,), (EVIL, EVIL)):
        done = evil_app(command).test_cli_runner().invoke(args=["idempotence", command, *wrong])
        assert done.exit_code == 2
        assert unsafe(done.output, "\n") == []
    done = evil_app(command).test_cli_runner().invoke(args=["idempotence", command + EVIL])
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
