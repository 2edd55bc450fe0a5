"""The gateway of docs/gateway on a real nginx, with Flask behind it and Redis beside it."""

import contextlib
import json
import os
import re
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from helpers.repository import ROOT
from helpers.servers.processes import (
    HOST,
    Gunicorn,
    RedisServer,
    ServerProcess,
    environment,
    free_port,
    send,
    until,
)

SOURCE = ROOT / "docs" / "gateway"
MODULES = Path("/usr/lib/nginx/modules")
PAY = "/api/payments"
JSON = "application/json"
SECRET = "a secret for the tests"
NEEDED = (MODULES / "ngx_http_lua_module.so", Path("/usr/share/lua/5.1/nginx/redis.lua"))
ACL = ["gateway", "on", ">let me look", "~idempotence:2:key:*"]
ACL += ["+get", "+pttl", "+multi", "+exec", "+select"]

MODULES_USED = f"""
load_module {MODULES}/ndk_http_module.so;
load_module {MODULES}/ngx_http_lua_module.so;
worker_processes 1;
"""
PLAIN = """
    keepalive_requests 100000;
    server {{
        listen {host}:{plain};
        access_log off;
        client_max_body_size 8m;
        client_body_buffer_size 16k;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        location / {{ proxy_pass http://flask; }}
        location = /gateway/canonical {{ content_by_lua_block {{
            ngx.req.read_body()
            local json = require("idempotence.canonical").json
            ngx.print(json(ngx.req.get_body_data() or "", {{ ignored = true }}) or "pass")
        }} }}
        location = /gateway/names {{ content_by_lua_block {{
            ngx.req.read_body()
            local request = require "idempotence.request"
            local digest = require "idempotence.digest"
            local key = digest.key_of("{secret}")
            local route = {{ endpoint = "payments.pay", rule = "/api/payments", ignored = {{}} }}
            local headers = ngx.req.get_headers()
            local sent = request.key(headers["idempotency-key"])
            local identity = request.identity(headers, ngx.var.host, {{ "x-api-key" }})
            local body = ngx.req.get_body_data() or ""
            local asked = request.fingerprint(key, route, "POST", headers["content-type"], body)
            ngx.say(identity and sent
                and request.store_key(key, "idempotence", route, identity, "POST", sent) or "pass")
            ngx.say(asked and digest.hex(asked) or "pass")
        }} }}
    }}
"""
"""Past the gateway, and what its modules of Lua make of a request."""


def missing():
    lacking = [str(path) for path in NEEDED if not path.exists()]
    return lacking if shutil.which("nginx") else ["nginx", *lacking]


class Nginx(ServerProcess):
    """A site of the documentation, with the addresses and paths of a test."""

    def _serve(self, site, replaced, main=""):
        for given, here in replaced.items():
            assert site.count(given) == 1, given
            site = site.replace(given, here)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {self.directory}/{kind};" for kind in kinds)
        user = "user root;" if os.geteuid() == 0 else ""
        file = self.directory / "nginx.conf"
        file.write_text(
            f"{user} {main} daemon off; pid {self.directory}/pid; "
            f"error_log {self.directory}/error.log info; events {{ worker_connections 512; }}"
            f"http {{ access_log off; {paths} {site} }}"
        )
        self._launch(["nginx", "-c", str(file), "-e", "stderr"], self._answers, 10)

    def _answers(self):
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False


class GatewayNginx(Nginx):
    def __init__(self, flask, redis_port, *, site=lambda text: text):
        self._flask, self._redis, self._site = flask, redis_port, site

    def start(self):
        self.port, self.plain = self.port or free_port(), free_port()
        shutil.copytree(SOURCE / "idempotence", self.directory / "lua" / "idempotence")
        (self.directory / "secret").write_text(SECRET + "\n")
        (self.directory / "password").write_text("let me look\n")
        replaced = {
            '"/etc/nginx/lua/': f'"{self.directory}/lua/',
            "/etc/nginx/idempotence.secret": f"{self.directory}/secret",
            "/etc/nginx/idempotence.password": f"{self.directory}/password",
            "/var/log/nginx/idempotence.log": f"{self.directory}/access.log",
            '{ "127.0.0.1", 6379 }': f'{{ "{HOST}", {self._redis} }}',
            "server 127.0.0.1:8000;": f"server {HOST}:{self._flask};",
            "listen 80;": f"listen {HOST}:{self.port};",
        }
        plain = PLAIN.format(host=HOST, plain=self.plain, secret=SECRET)
        site = self._site(_with_echo((SOURCE / "nginx.conf").read_text()))
        self._serve(site + plain, replaced, MODULES_USED)

    def cpu_seconds(self):
        workers = psutil.Process(self.pid).children()
        return sum(sum(worker.cpu_times()[:2]) for worker in workers)

    @property
    def verdicts(self):
        file = self.directory / "access.log"
        return [line.rsplit(" ", 1)[1] for line in file.read_text().splitlines()]

    @property
    def errors(self):
        """What the gateway itself has logged as an error: it means a mistake in its code."""
        lines = (self.directory / "error.log").read_text().splitlines()
        return [line for line in lines if "[error]" in line and "idempotence" in line]


def application(redis_url, folder, **variables):
    own = {"GATEWAY_TEST": folder, "EXAMPLE_DATABASE": folder / "shop.sqlite3"}
    env = environment(**{"IDEMPOTENCE_STORAGE_URI": redis_url, **own, **variables})
    app = "helpers.applications.gateway_app:make_app()"
    return Gunicorn(app, env=env, workers=1, threads=16)


def _with_echo(site):
    """Add a second route, whose view answers what it is told, with the rules of the first."""
    for block in (r"(?ms)^ {12}payments = \{.*?^ {12}\},\n", r"(?ms)^    location = .*?^    \}\n"):
        first = re.search(block, site)[0]
        second = first.replace("payments.pay", "echo").replace("/api/payments", "/echo")
        site = site.replace(first, first + second.replace("payments", "echo"))
    return site


class World:
    def __init__(self, nginx, flask, redis, folder):
        self.nginx, self.flask, self.redis, self.folder = nginx, flask, redis, folder
        self._keys = iter(range(1_000_000))

    def new_key(self):
        return f"key-{next(self._keys)}"

    def pay(self, key, amount=7, *, user="alice", port=None, path=PAY, body=None, **more):
        headers = {"Content-Type": JSON, "Authorization": f"Bearer {user}"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        sent = {name: value for name, value in headers.items() if value is not None}
        body = json.dumps({"amount": amount}) if body is None else body
        return send(port or self.nginx.port, path, "POST", sent | {"Idempotency-Key": key}, body)

    @property
    def seen(self):
        file = self.folder / "seen"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @contextlib.contextmanager
    def reaching_flask(self, count):
        before = self.seen
        yield
        assert self.seen - before == count

    @contextlib.contextmanager
    def running(self, key, **request):
        closed, answers, before = self.folder / "closed", [], self.seen
        closed.touch()
        first = threading.Thread(target=lambda: answers.append(self.pay(key, **request)))
        first.start()
        try:
            assert until(lambda: self.seen > before and self.claims())
            yield answers
        finally:
            closed.unlink()
            first.join()

    def claims(self):
        client = self.redis.client()
        return [key for key in client.scan_iter() if client.get(key)[:1] == b"C"]


@contextlib.contextmanager
def make_world(folder, *, site=lambda text: text, **variables):
    with RedisServer() as redis:
        redis.client().execute_command("ACL", "SETUSER", *ACL)
        with (
            application(redis.url, folder, **variables) as flask,
            GatewayNginx(flask.port, redis.port, site=site) as nginx,
        ):
            yield World(nginx, flask, redis, folder)
            assert nginx.errors == []
