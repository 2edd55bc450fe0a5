"""The files of docs/deploy, with the application of the page about existing ones."""

import configparser
import os
import re
import shlex
import shutil
import socket
import sys

import pytest
import yaml
from helpers.callers.node import MUST_RUN
from helpers.repository import ROOT, text_of
from helpers.servers.example import ask
from helpers.servers.processes import (
    HOST,
    RedisServer,
    ServerProcess,
    all_at_once,
    free_port,
    run_to_end,
)

DEPLOY = ROOT / "docs" / "deploy"
PAGE = ROOT / "docs" / "how-to" / "existing-application.md"
CONFIGURED = {}
exec(text_of(DEPLOY / "gunicorn.conf.py"), CONFIGURED)
COMPOSE = yaml.safe_load(text_of(DEPLOY / "compose.yaml"))["services"]
POD = yaml.safe_load(text_of(DEPLOY / "kubernetes.yaml"))["spec"]["template"]["spec"]
PROGRAM = "gunicorn --config gunicorn.conf.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a deployment: the two files of the page, and that of Gunicorn."""
    folder = tmp_path_factory.mktemp("deployment")
    blocks = re.findall(r"(?ms)^```python\n(# ((?:wsgi|shop)\.py)\n.*?)^```$", text_of(PAGE))
    assert len(blocks) == 2
    for code, name in blocks:
        (folder / name).write_text(code)
    shutil.copy(DEPLOY / "gunicorn.conf.py", folder)
    return folder


@pytest.fixture(scope="module")
def redis_of_compose():
    program, *arguments = shlex.split(COMPOSE["redis"]["command"])
    assert program == "redis-server"
    with RedisServer(*arguments) as server:
        yield server


@pytest.fixture(scope="module")
def environment(redis_of_compose):
    secret = "an unguessable secret of some length"
    ours = {"FLASK_SECRET_KEY": secret, "FLASK_IDEMPOTENCE_STORAGE_URI": redis_of_compose.url}
    given = COMPOSE["web"]["environment"]
    assert set(given) == set(ours)
    return {**os.environ, **ours}


class Deployed(ServerProcess):
    ready = "/health"

    def __init__(self, folder, environment):
        self._folder, self._environment = folder, environment

    def start(self):
        with socket.socket() as listener:
            listener.bind((HOST, 0))
            self.port = listener.getsockname()[1]
            self.url = f"http://{HOST}:{self.port}"
            command = [sys.executable, "-m", *PROGRAM.split()]
            command += [f"--bind=fd://{listener.fileno()}", "wsgi:app"]
            options = {"cwd": self._folder, "env": self._environment}
            self._launch(command, self._answers, 60, pass_fds=[listener.fileno()], **options)


class Nginx(ServerProcess):
    """The site of docs/deploy in front of a server, on ports of the test."""

    ready = "/health"

    def __init__(self, upstream):
        self._upstream = upstream

    def start(self):
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        site = text_of(DEPLOY / "nginx.conf")
        for given, here in {
            "listen 80;": f"listen {HOST}:{self.port};",
            "server 127.0.0.1:8000;": f"server {HOST}:{self._upstream};",
        }.items():
            assert site.count(given) == 1
            site = site.replace(given, here)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {self.directory}/{kind};" for kind in kinds)
        user = "user root;" if os.geteuid() == 0 else ""
        main = f"{user} daemon off; pid {self.directory}/pid; events {{}}"
        file = self.directory / "nginx.conf"
        file.write_text(f"{main} http {{ access_log off; {paths} {site} }}")
        self._launch(["nginx", "-c", str(file), "-e", "stderr"], self._answers, 10)


@pytest.fixture(scope="module")
def deployed(folder, environment):
    with Deployed(folder, environment) as server:
        yield server


def check_one_of_twenty(url, key):
    """Twenty requests at once with one key: one runs, and repeats get its response."""
    headers = {"Idempotency-Key": key}

    def send():
        return ask(f"{url}/orders", {}, headers=headers)

    answers = [*all_at_once([send] * 20), send()]
    statuses = {answer.status for answer in answers}
    assert 201 in statuses <= {201, 409}
    assert len({answer.text for answer in answers if answer.status == 201}) == 1
    assert answers[-1].headers["Idempotent-Replayed"] == "true"


@pytest.mark.servers
class TestStarted:
    def test_gunicorn_runs_two_workers_that_share_their_claims(self, deployed):
        assert deployed.log.count("Booting worker") == CONFIGURED["workers"] == 2
        check_one_of_twenty(deployed.url, "directly")

    def test_doctor_warns_of_nothing_but_that_the_application_has_no_login(
        self, folder, environment
    ):
        command = [sys.executable, "-m", "flask", "--app", "wsgi", "idempotence", "doctor"]
        done = run_to_end(command, cwd=folder, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        findings = [line.split("\t")[:2] for line in done.stdout.splitlines()]
        assert [name for level, name in findings if level == "warning"] == ["whole app"]

    @pytest.mark.skipif(not shutil.which("nginx") and not MUST_RUN, reason="nginx: not found")
    def test_nginx_passes_requests_on(self, deployed):
        with Nginx(deployed.port) as nginx:
            check_one_of_twenty(nginx.url, "through nginx")

    def test_redis_persists_every_write_and_evicts_nothing(self, redis_of_compose):
        settings = redis_of_compose.client(decode_responses=True).config_get()
        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == "always"
        assert settings["maxmemory-policy"] == "noeviction"
        assert COMPOSE["redis"]["volumes"] == ["redis:/data"]


def seconds(text):
    return int(str(text).removesuffix("s"))


def test_running_views_get_the_time_that_gunicorn_gives_them():
    graceful = CONFIGURED["graceful_timeout"]
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(text_of(DEPLOY / "shop.service"))
    assert seconds(unit["Service"]["TimeoutStopSec"]) > graceful
    assert seconds(COMPOSE["web"]["stop_grace_period"]) > graceful
    [container] = POD["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > graceful + pause
    site = re.search(r"proxy_read_timeout (\d+)s;", text_of(DEPLOY / "nginx.conf"))
    assert int(site[1]) > graceful

    assert unit["Service"]["ExecStart"] == f"/srv/shop/.venv/bin/{PROGRAM} wsgi:app"
    assert COMPOSE["web"]["command"] == f"{PROGRAM} --bind 0.0.0.0:8000 wsgi:app"
    assert shlex.join(container["args"]) == COMPOSE["web"]["command"]


def test_every_probe_asks_for_a_view_without_a_guard():
    [container] = POD["containers"]
    probes = [
        container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")
    ]
    assert probes == [{"path": "/health", "port": container["ports"][0]["containerPort"]}] * 3
    assert '@app.get("/health")' in text_of(PAGE)


def test_the_page_for_production_links_to_every_file():
    page = text_of(ROOT / "docs" / "run-in-production.md")
    assert [file.name for file in DEPLOY.iterdir() if f"](deploy/{file.name})" not in page] == []
