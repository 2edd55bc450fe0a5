"""The commands: how they are found, what they print where, and how they fail."""

import json
import subprocess
import sys

import pytest
from helpers.apps import make_app
from helpers.cli_shell import Shell, invoke, rows

from flask_idempotence.cli import tools
from flask_idempotence.config.settings import SETTINGS

COMMANDS = [
    *("config", "doctor", "init-db", "inspect", "prune"),
    *("purge", "release", "routes", "stats"),
]
ESCAPE = "\x1b["


def test_the_extension_adds_one_group_with_all_commands():
    app = make_app()
    assert app.cli.commands["idempotence"] is tools
    told = invoke(app, "--help").output.split("Commands:\n")[1]
    assert [line.split()[0] for line in told.splitlines()] == COMMANDS
    assert "..." not in told  # a summary that was cut off tells nothing


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_every_option_explains_itself(command):
    assert invoke(make_app(), command, "--help").exit_code == 0
    for parameter in tools.get_command(None, command).params:
        if parameter.param_type_name == "option":
            assert parameter.help, parameter.name


def test_config_tells_every_setting_its_value_and_where_that_comes_from():
    class Lazy:
        def __str__(self):
            raise RuntimeError("there is no request")

    app = make_app(
        IDEMPOTENCE_LEASE=9,
        IDEMPOTENCE_PREFIX="idempotence",
        IDEMPOTENCE_LOCK_MESSAGE=Lazy(),
        IDEMPOTENCE_STORAGE_URI="redis://the-user:the-password@the-host:1234/0",
        IDEMPOTENCE_HASH_KEY="the-key-of-the-hashes",
    )
    app.config["IDEMPOTENCE_LOCK_ENABLED"] = False
    told = {name: (value, origin) for name, value, origin in rows(invoke(app, "config"))}
    assert list(told)[:-1] == list(SETTINGS)
    assert told["IDEMPOTENCE_LEASE"] == ("9.0", "set")
    assert told["IDEMPOTENCE_PREFIX"] == ("'idempotence'", "set")  # although it is the default
    assert told["IDEMPOTENCE_KEY_TTL"] == ("86400", "default")
    assert told["IDEMPOTENCE_LOCK_MESSAGE"] == ("'(Lazy)'", "set")
    assert told["IDEMPOTENCE_STORAGE_URI"] == ("'redis://(hidden)'", "set")
    assert told["IDEMPOTENCE_HASH_KEY"] == ("(hidden)", "set")
    assert told["(the store in use)"] == ("RedisStore", "")
    settings = json.loads(invoke(app, "config", "--json").output)["settings"]
    assert {"name": "IDEMPOTENCE_LOCK_ENABLED", "value": False, "origin": "set"} in settings


def test_in_a_terminal_there_is_a_heading_and_the_columns_stand_in_line(tmp_path):
    done = Shell(tmp_path).terminal("config", NO_COLOR="1")
    assert done.code == 0, done.out
    heading, *lines = done.out.splitlines()
    where = heading.index("VALUE"), heading.index("ORIGIN")
    assert len(lines) == len(SETTINGS) + 1
    assert "\t" not in done.out
    assert ESCAPE not in done.out
    for line in lines[:-1]:
        assert [line[at - 1] for at in where] == [" ", " "]
        assert line[where[1] :] in ("set", "default")


def test_colours_are_for_terminals_that_want_them(tmp_path):
    assert ESCAPE in Shell(tmp_path).terminal("doctor").out


@pytest.mark.parametrize(
    "command", ["stats", "inspect abcdef12", "release abcdef12", "purge --all"]
)
def test_a_store_that_is_away_costs_one_line_that_says_what_to_do(command):
    app = make_app(IDEMPOTENCE_STORAGE_URI="redis://me:a-password@127.0.0.1:1/0")
    done = invoke(app, *command.split())
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(
        "Error: The server's host refuses the connection (ConnectionError). "
    )
    for secret in ("me:", "a-password", "127.0.0.1"):
        assert secret not in done.stderr


def test_an_application_without_a_secret_is_told_so_in_one_line():
    named = ("--endpoint", "pay", "--identity", "ip:1", "--key", "1")
    done = invoke(make_app(SECRET_KEY=None), "inspect", *named)
    assert done.exit_code == 1
    assert "SECRET_KEY" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_process_of_its_own_says_that_it_does_not_see_the_workers_memory():
    app, text = make_app(TESTING=False), "cannot see those of the running workers"
    assert text in invoke(app, "stats").stderr
    assert text not in invoke(app, "config").stderr


def test_the_tools_are_not_loaded_where_nobody_calls_them(tmp_path):
    code = "import sys, shop; print([name for name in sys.modules if 'idempotence.cli.' in name])"
    shell = Shell(tmp_path)
    told = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, env=shell.environment, text=True
    )
    assert told == "[]\n"
