"""The page about the commands: each transcript is what the command prints."""

import re
import shlex

import pytest
from helpers.applications.doctor_apps import names_of
from helpers.cli_shell import Shell
from helpers.http_transcripts import CONTINUES
from helpers.repository import REFERENCE, text_of

from flask_idempotence.cli import tools
from flask_idempotence.cli.doctor import CHECKS

pytestmark = pytest.mark.servers

PAGE = REFERENCE / "cli.md"
PROMPT = "$ flask --app shop idempotence "


def blocks(language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text_of(PAGE))


def transcripts():
    shown = "".join(blocks("console"))
    return [part.split("\n", 1) for part in shown.split(PROMPT)[1:]]


def blurred(text):
    """Make numbers alike, and the space between columns."""
    text = text.replace("Valkey", "Redis")
    return re.sub(r" +", " ", re.sub(r"\b\d+(\.\d+)*\b", "N", text)).strip()


def test_every_transcript_is_what_the_command_prints(tmp_path, redis_url, monkeypatch):
    monkeypatch.setenv("FLASK_IDEMPOTENCE_STORAGE_URI", redis_url)
    application, requests = blocks("python")
    exec(application + requests, {"__name__": "shop"})
    shell = Shell(
        tmp_path,
        app=application,
        FLASK_IDEMPOTENCE_STORAGE_URI=redis_url,
        NO_COLOR="1",
        COLUMNS="100",
    )
    for command, shown in transcripts():
        typed = "y\n" if "[y/N]" in shown else ""
        printed = shell.terminal(*shlex.split(command), typed=typed).out
        assert blurred(printed) == blurred(shown), f"{command}\n{printed}"


def test_every_command_is_shown_at_work():
    shown = {command.split()[0] for command, _ in transcripts()}
    shown_elsewhere = {"init-db", "prune"}  # test_database_commands.py
    headings = re.findall(r"(?m)^## ([\w-]+)$", text_of(PAGE))
    assert shown | shown_elsewhere == set(headings) == set(tools.list_commands(None))
    assert text_of(PAGE).count(CONTINUES) == 1


@pytest.mark.parametrize("command", tools.list_commands(None))
def test_every_option_of_a_command_is_on_its_page(command):
    for parameter in tools.get_command(None, command).params:
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert f"{option}" in text_of(PAGE), option


def test_every_check_of_the_doctor_is_described():
    table = text_of(PAGE).split("| check |")[1].split("\n\n")[0]
    described = re.findall(r"(?m)^\| ([a-z ]+) \| .* \| (?:error|warning) \|$", table)
    assert described == list(dict.fromkeys(names_of(CHECKS)))
