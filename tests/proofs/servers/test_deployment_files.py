"""The files of docs/deploy, with the application of the page about existing ones."""

import configparser
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from helpers.callers.node import MUST_RUN
from helpers.repository import ROOT, text_of
from helpers.servers.nginx_gateway import Nginx
from helpers.servers.processes import (
    HOST,
    Gunicorn,
    RedisServer,
    ServerProcess,
    all_at_once,
    free_port,
    run_to_end,
    until,
)

DEPLOY = ROOT / "docs" / "deploy"
PAGE = ROOT / "docs" / "how-to" / "existing-application.md"
CONFIGURED = {}
exec(text_of(DEPLOY / "gunicorn.conf.py"), CONFIGURED)
COMPOSE = yaml.safe_load(text_of(DEPLOY / "compose.yaml"))["services"]
POD = yaml.safe_load(text_of(DEPLOY / "kubernetes.yaml"))["spec"]["template"]["spec"]
IMAGE = re.findall(r"(?m)^([A-Z]+) (.+)$", text_of(DEPLOY / "Dockerfile"))
COMMAND = json.loads(dict(IMAGE)["CMD"])
PROGRAM = "gunicorn --config gunicorn.conf.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    blocks = re.findall(r"(?ms)^```python\n(# ((?:wsgi|shop)\.py)\n.*?)^```$", text_of(PAGE))
    assert len(blocks) == 2
    for code, name in blocks:
        new = {"shop.py": "unguarded.py", "wsgi.py": "shop.py"}[name]
        (folder / new).write_text(code.replace("from shop import", "from unguarded import"))
    for name in ("gunicorn.conf.py", "wsgi.py"):
        shutil.copy(DEPLOY / name, folder)
    return folder


@pytest.fixture(scope="module")
def redis_of_compose():
    program, *arguments = shlex.split(COMPOSE["redis"]["command"])
    assert program == "redis-server"
    with RedisServer(*arguments) as server:
        yield server


@pytest.fixture(scope="module")
def environment(redis_of_compose, tmp_path_factory):
    secret = "an unguessable secret of some length"
    ours = {"FLASK_SECRET_KEY": secret, "FLASK_IDEMPOTENCE_STORAGE_URI": redis_of_compose.url}
    given = COMPOSE["web"]["environment"]
    assert set(given) == set(ours)
    metrics = tmp_path_factory.mktemp("metrics")
    return {**os.environ, **ours, "PROMETHEUS_MULTIPROC_DIR": str(metrics)}


class Deployed(Gunicorn):
    ready = "/health"
    _answers = ServerProcess._answers

    def __init__(self, folder, environment):
        super().__init__("wsgi:app", cwd=folder, env=environment)
        at, address, *rest = COMMAND[3:]
        assert (at, address) == ("--bind", "0.0.0.0:8000")  # the test binds to a port of its own
        self._program, self._arguments = COMMAND[:3], rest


class DeployedNginx(Nginx):
    def __init__(self, upstream):
        self._upstream = upstream

    def start(self):
        self.port = free_port()
        replaced = {
            "listen 80;": f"listen {HOST}:{self.port};",
            "server web:8000;": f"server {HOST}:{self._upstream};",
        }
        self._serve(text_of(DEPLOY / "nginx.conf"), replaced)


@pytest.fixture(scope="module")
def deployed(folder, environment):
    with Deployed(folder, environment) as server:
        yield server


def check_one_of_twenty(server, key):
    """Twenty requests at once with one key: one runs, and repeats get its response."""
    headers = {"Idempotency-Key": key}

    def send():
        return server.ask("/orders", "POST", headers)

    answers = [*all_at_once([send] * 20), send()]
    statuses = {answer.status for answer in answers}
    assert 201 in statuses <= {201, 409}
    assert len({answer.text for answer in answers if answer.status == 201}) == 1
    assert answers[-1].replayed


@pytest.mark.servers
class TestStarted:
    def test_gunicorn_runs_two_workers_that_share_their_claims(self, deployed):
        assert deployed.log.count("Booting worker") == CONFIGURED["workers"] == 2
        check_one_of_twenty(deployed, "directly")

    def test_a_guest_has_the_address_that_the_proxy_names(self, deployed):
        def ask(address):
            headers = {"Idempotency-Key": "of two guests", "X-Forwarded-For": address}
            return deployed.ask("/orders", "POST", headers).replayed

        assert [ask(f"192.0.2.{last}") for last in (1, 2, 1)] == [False, False, True]

    def test_the_metrics_forget_a_worker_that_ended(self, deployed, environment):
        worker = psutil.Process(deployed.pid).children()[0]
        file = Path(environment["PROMETHEUS_MULTIPROC_DIR"], f"gauge_livesum_{worker.pid}.db")
        file.touch()
        worker.terminate()
        assert until(lambda: not file.exists(), 30)

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
        with DeployedNginx(deployed.port) as nginx:
            check_one_of_twenty(nginx, "through nginx")

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
    assert shlex.join(COMMAND) == f"{PROGRAM} --bind 0.0.0.0:8000 wsgi:app"
    assert container["args"] == COMMAND
    assert "command" not in COMPOSE["web"]


def test_the_containers_find_their_files_and_each_other():
    assert COMPOSE["web"]["build"] == "."
    steps = [
        *("COPY requirements.txt ./", "RUN pip install --no-cache-dir -r requirements.txt"),
        *("COPY . ./", "RUN useradd --system shop", "USER shop"),
    ]
    assert [f"{step} {rest}" for step, rest in IMAGE if step in ("COPY", "RUN", "USER")] == steps
    [site] = COMPOSE["nginx"]["volumes"]
    assert (DEPLOY / site.split(":")[0]).is_file()
    service, port = re.search(r"server (\w+):(\d+);", text_of(DEPLOY / "nginx.conf")).groups()
    assert service in COMPOSE
    assert ("EXPOSE", port) in IMAGE
    assert f"127.0.0.1:{port}/health" in COMPOSE["web"]["healthcheck"]["test"]


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
