"""The file of docs/how-to/long-work.md, saved and started as its reader does."""

import os
import re
import sys
from pathlib import Path

import pytest
from helpers.repository import ROOT, text_of
from helpers.servers.processes import all_at_once, environment, free_port, until

pytest.importorskip("rq")
from helpers.brokers import Consumer, files_of

pytestmark = pytest.mark.queue
PAGE = ROOT / "docs" / "how-to" / "long-work.md"
PATIENCE = 60
WORKER, SERVER = (
    command.split() for command in re.findall(r"(?m)^```sh\n(.*)\n```$", text_of(PAGE))
)
WORK = '    return {"year": year, "orders": 4711}\n'
SENT = "            report.apply_async((step.key, year), task_id=step.key)\n"
ANSWER = '    return {"state": "queued"}, 202'
DIE_ONCE = """if not os.path.exists("died"):
    open("died", "x").close()
    os.kill(os.getpid(), 9)
"""


class Server(Consumer):
    ready = "/jobs/unknown"

    def start(self):
        self.port = self.port or free_port()  # a host with another port has other keys
        command = [*self._command, "--port", str(self.port)]
        options = {"cwd": self._broker.directory, "env": self._broker.env}
        self._launch(command, self._answers, PATIENCE, **options)

    def order(self, key, **headers):
        answers = []
        headers["Idempotency-Key"] = key

        def is_taken():
            answers.append(self.ask("/reports/2026", "POST", headers))
            return answers[-1].status != 409

        assert until(is_taken, PATIENCE), self.log
        assert answers[-1].status == 202, self.log
        return answers[-1].headers["Location"]

    def result(self, address):
        answers = []

        def is_over():
            answers.append(self.ask(address))
            return answers[-1].status == 200

        assert until(is_over, PATIENCE), self.log
        running = {(answer.status, answer.json["state"]) for answer in answers[:-1]}
        assert running <= {(202, "running")}
        return answers[-1].json


class Page:
    def __init__(self, directory, store):
        self.directory, self.book = directory, directory / "book"
        self.book.touch()
        self.code = files_of(text_of(PAGE))["long_work.py"]
        self.insert(WORK, 'with open("book", "a") as book: book.write(f"{year}\\n")\n')
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        broker = store.removesuffix("/0") + "/1"
        self.env = environment(store, lease=1, PATH=path, BROKER_URL=broker)

    def insert(self, line, code, *, behind=False):
        """Put code before a line of the page, or behind it, in the same block."""
        assert self.code.count(line) == 1
        margin = re.match(" *", line)[0]
        more = "".join(margin + each for each in code.splitlines(keepends=True))
        self.code = self.code.replace(line, line + more if behind else more + line)
        (self.directory / "long_work.py").write_text(self.code)

    def worker(self):
        return Consumer(self, [*WORKER, "--concurrency", "2"])

    def server(self):
        return Server(self, SERVER)

    @property
    def begun(self):
        return len(self.book.read_text().split())


@pytest.fixture
def page(tmp_path, redis_url):
    return Page(tmp_path, redis_url)


DONE = {"state": "done", "result": {"year": 2026, "orders": 4711}}


def test_repeats_at_once_get_one_address_and_the_job_runs_once(page):
    page.insert(WORK, "__import__('time').sleep(0.5)\n")
    with page.server() as server, page.worker():
        [address] = set(all_at_once([lambda: server.order("key")] * 8))
        assert server.result(address) == DONE
        assert server.order("key") == address
        assert page.begun == 1
        others = {server.order("other"), server.order("key", Authorization="Bearer bob")}
        assert len({address, *others}) == 3
        assert [server.result(other) for other in others] == [DONE] * 2
    assert page.begun == 3


KILLS = {"before it sends": (SENT, False), "behind that": (SENT, True), "after": (ANSWER, False)}


@pytest.mark.parametrize(("place", "behind"), KILLS.values(), ids=KILLS)
def test_a_repeat_after_a_kill_gets_the_address_of_the_one_job(page, place, behind):
    page.insert(place, DIE_ONCE, behind=behind)
    with page.server() as server, page.worker():
        with pytest.raises(ConnectionError):
            server.order("key")
        assert until(lambda: server.status == -9, PATIENCE)
        server.start()
        address = server.order("key")
        assert server.result(address) == DONE
        assert not until(lambda: page.begun > 1, 3)  # a second message comes again after 2 s
        assert (server.result(address), page.begun) == (DONE, 1)


def test_a_job_whose_worker_is_killed_is_begun_again_when_the_lease_has_ended(page):
    page.insert(WORK, DIE_ONCE)
    with page.server() as server, page.worker():
        assert server.result(server.order("key")) == DONE
    assert page.begun == 2


def test_a_job_that_fails_stays_failed_and_a_new_key_orders_it_again(page):
    page.insert(WORK, 'if not os.path.exists("paper"):\n    raise ValueError\n')
    with page.server() as server, page.worker():
        address = server.order("key")
        assert server.result(address) == {"state": "failed"}
        (page.directory / "paper").touch()
        assert server.order("key") == address
        assert server.result(address) == {"state": "failed"}
        assert server.result(server.order("new")) == DONE
