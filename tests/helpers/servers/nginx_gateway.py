"""The gateway of docs/gateway on a real nginx, with Flask behind it and Redis beside it."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

from helpers.servers.example import ROOT
from helpers.servers.processes import HOST, Gunicorn, RedisServer, ServerProcess, free_port, until

SOURCE = ROOT / "docs" / "gateway"
MODULES = Path("/usr/lib/nginx/modules")
PAY = "/api/payments"
JSON = "application/json"
SECRET = "a secret for the tests"
NEEDED = (MODULES / "ngx_http_lua_module.so", Path("/usr/share/lua/5.1/nginx/redis.lua"))
ACL = ["gateway", "on", ">let me look", "~idempotence:2:key:*"]
ACL += ["+get", "+pttl", "+multi", "+exec", "+select"]

MAIN = """
{user}
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000;
    include {folder}/site.conf;
    server {{
        listen {host}:{plain};
        access_log off;
        client_max_body_size 8m;
        client_body_buffer_size 64k;
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
}}
"""


def missing():
    lacking = [str(path) for path in NEEDED if not path.exists()]
    return lacking if shutil.which("nginx") else ["nginx", *lacking]


class Nginx(ServerProcess):
    """The site of docs/gateway, with the addresses and paths of a test, which may change it."""

    def __init__(self, flask, redis_port, *, site=lambda text: text):
        self._flask, self._redis, self._site = flask, redis_port, site

    def start(self):
        self.port, self.plain = self.port or free_port(), free_port()
        self.url, self.plain_url = f"http://{HOST}:{self.port}", f"http://{HOST}:{self.plain}"
        lua = self.directory / "lua" / "idempotence"
        lua.mkdir(parents=True, exist_ok=True)
        for file in (SOURCE / "idempotence").glob("*.lua"):
            shutil.copy(file, lua)
        (self.directory / "secret").write_text(SECRET + "\n")
        (self.directory / "password").write_text("let me look\n")
        (self.directory / "site.conf").write_text(self._site(self._of_this_test()))
        main = MAIN.format(
            user="user root;" if os.geteuid() == 0 else "",
            modules=MODULES,
            folder=self.directory,
            host=HOST,
            plain=self.plain,
            secret=SECRET,
        )
        (self.directory / "nginx.conf").write_text(main)
        command = ["nginx", "-c", f"{self.directory}/nginx.conf", "-e", "stderr"]
        self._launch(command, self._answers, 10)

    def _of_this_test(self):
        site = (SOURCE / "nginx.conf").read_text()
        for given, here in {
            '"/etc/nginx/lua/': f'"{self.directory}/lua/',
            "/etc/nginx/idempotence.secret": f"{self.directory}/secret",
            "/etc/nginx/idempotence.password": f"{self.directory}/password",
            "/var/log/nginx/idempotence.log": f"{self.directory}/access.log",
            '{ "127.0.0.1", 6379 }': f'{{ "{HOST}", {self._redis} }}',
            "server 127.0.0.1:8000;": f"server {HOST}:{self._flask};",
            "listen 80;": f"listen {HOST}:{self.port};",
        }.items():
            assert site.count(given) == 1, given
            site = site.replace(given, here)
        return _with_echo(site)

    def _answers(self):
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False

    def cpu_seconds(self):
        ticks = 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                _, parent, *rest = file.read_text().rpartition(")")[2].split()
                if int(parent) == self._process.pid:
                    ticks += int(rest[9]) + int(rest[10])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def verdicts(self):
        file = self.directory / "access.log"
        return [line.rsplit(" ", 1)[1] for line in file.read_text().splitlines()]

    @property
    def errors(self):
        """What the gateway itself has logged as an error: it means a mistake in its code."""
        lines = (self.directory / "error.log").read_text().splitlines()
        return [line for line in lines if "[error]" in line and "idempotence" in line]


def application(redis_url, folder, **environment):
    """The example of `gateway_app`, on a worker with threads."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = {
        "GATEWAY_TEST": str(folder),
        "PYTHONPATH": path,
        "IDEMPOTENCE_STORAGE_URI": redis_url,
        "EXAMPLE_DATABASE": str(folder / "shop.sqlite3"),
        **environment,
    }
    app, options = "helpers.applications.gateway_app:make_app()", {"workers": 1, "threads": 16}
    return Gunicorn(app, env=environment, cwd=ROOT, **options)


def _with_echo(site):
    """Add a second route, whose view answers what it is told, with the rules of the first."""
    for block in (r"(?ms)^ {12}payments = \{.*?^ {12}\},\n", r"(?ms)^    location = .*?^    \}\n"):
        first = re.search(block, site)[0]
        second = first.replace("payments.pay", "echo").replace("/api/payments", "/echo")
        site = site.replace(first, first + second.replace("payments", "echo"))
    return site


class Answer:
    """What came back: status, headers in order without those of the moment, and the body."""

    def __init__(self, response):
        self.status = response.status
        headers = sorted(response.getheaders())
        self.headers = [header for header in headers if header[0].lower() != "date"]
        self.body = response.read()

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body!r}"

    def header(self, name):
        return dict(self.headers).get(name)

    @property
    def replayed(self):
        return self.header("Idempotent-Replayed") == "true"

    @property
    def json(self):
        return json.loads(self.body)


def send(url, path, headers, body=b"", *, method="POST"):
    """Send exactly these headers (a list of pairs, or a dict)."""
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    with closing(
        http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    ) as connection:
        has_host = any(name.lower() == "host" for name, _ in pairs)
        connection.putrequest(method, path, skip_host=has_host, skip_accept_encoding=True)
        for name, value in pairs:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answer(connection.getresponse())


class World:
    """nginx with the gateway, Flask behind it, and Redis beside it."""

    def __init__(self, nginx, flask, redis, folder):
        self.nginx, self.flask, self.redis, self.folder = nginx, flask, redis, folder
        self._keys = iter(range(1_000_000))

    def new_key(self):
        return f"key-{next(self._keys)}"

    def pay(self, key, amount=7, *, user="alice", url=None, path=PAY, body=None, **more):
        headers = {"Content-Type": JSON, "Authorization": f"Bearer {user}"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        sent = {name: value for name, value in headers.items() if value is not None}
        body = json.dumps({"amount": amount}).encode() if body is None else body
        return send(url or self.nginx.url, path, [*sent.items(), ("Idempotency-Key", key)], body)

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
        """While the first request with a key waits for its bank."""
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
def make_world(folder, *, site=lambda text: text, **environment):
    """Start all three; the environment is the application's."""
    with RedisServer() as redis:
        redis.client().execute_command("ACL", "SETUSER", *ACL)
        with (
            application(redis.url, folder, **environment) as flask,
            Nginx(flask.port, redis.port, site=site) as nginx,
        ):
            yield World(nginx, flask, redis, folder)
            assert nginx.errors == []
