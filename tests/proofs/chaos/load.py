"""The clients: threads that send operations of several users, and retry as real clients do."""

import contextlib
import http.client
import itertools
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from helpers.servers.processes import Gunicorn

from .history import Attempt

USERS = ("anna", "berta", "carl", "dora")
MODES = {"once": 30, "least": 30, "patient": 10, "lock": 20, "token": 10, "restoring": 10}
"""How many of a hundred operations, or so, are of which mode."""

TOKENS = ("token", "restoring")
PATIENCE = 2.5
"""Seconds that a client waits for an answer before it asks again."""

FINAL_STATUSES = {400, 403, 404, 409, 422}


@dataclass(frozen=True)
class Case:
    """What several users send at once, each of them perhaps twice: the same key and body."""

    number: int
    mode: str
    users: tuple[str, ...]
    copies: int
    work: float
    end: str


def cases(seed: int, long_work: float) -> Iterator[Case]:
    """Yield cases, always the same ones for a seed."""
    rng = random.Random(seed)
    for number in itertools.count(1):
        mode = rng.choices([*MODES], [*MODES.values()])[0]
        end = _end_of(number, rng)
        is_long = number % 30 == 7
        if is_long or end == "exit":
            mode = rng.choice([mode for mode in MODES if mode not in TOKENS])
        yield Case(
            number=number,
            mode=mode,
            users=tuple(rng.sample(USERS, 1 if is_long or end in {"exit", "kill"} else 2)),
            copies=2 if is_long else rng.choice([1, 1, 2]),
            work=long_work if is_long else rng.choice([0, 0.02, 0.1, 0.3]),
            end="success" if is_long else end,
        )


def _end_of(number: int, rng: random.Random) -> str:
    # What costs a worker is rare, and yet certain to come soon.
    if number % 60 == 11:
        return "exit"
    if number % 150 == 31:
        return "kill"
    return rng.choices(["success", "failure"], [95, 5])[0]


class Task:
    """One user's case; its copies share the token, and whether it is answered."""

    def __init__(self, case: Case, user: str):
        self.case = case
        self.user = user
        self.token = None
        self.lock = threading.Lock()

    @property
    def operation(self) -> str:
        return f"{self.case.mode}/{self.case.number}/{self.user}"


class Load:
    """Clients of an application; the seed is that of the cases and of the clients' pauses."""

    clients = 16

    def __init__(self, server: Gunicorn, seed: int, long_work: float):
        self._server, self._seed = server, seed
        self._tasks = self._make_tasks(cases(seed, long_work))
        self._lock = threading.Lock()
        self._ends = False
        self._give_up_at = float("inf")
        self.attempts: list[Attempt] = []
        self.given_up: list[str] = []
        self.tasks: list[Task] = []

    def _make_tasks(self, cases: Iterator[Case]) -> Iterator[Task]:
        for case in cases:
            tasks = [Task(case, user) for user in case.users]
            self.tasks += tasks
            yield from tasks * case.copies

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(self.clients)
        chances = [random.Random(f"{self._seed} {number}") for number in range(self.clients)]
        self._working = [self._pool.submit(self._work, rng) for rng in chances]

    def end(self, within: float) -> None:
        """Begin nothing new, and wait until all is answered or so many seconds are over."""
        self._give_up_at = time.monotonic() + within
        self._ends = True
        for future in self._working:
            future.result()
        self._pool.shutdown()

    def _work(self, rng) -> None:
        while not self._ends:
            with self._lock:
                task = next(self._tasks)
            self._see_through(task, rng)

    def _see_through(self, task: Task, rng) -> None:
        """Ask until there is a final answer; a few ask once more, and a few are thieves."""
        while not (self._has_token(task) and is_final(self.send(task))):
            if time.monotonic() > self._give_up_at:
                self.given_up.append(task.operation)
                return
            time.sleep(rng.uniform(0.05, 0.3))
        if rng.random() < 0.3:
            self.send(task)
        if task.case.mode == "lock" and task.case.work > PATIENCE:
            self._click_on(task)

    def _click_on(self, task: Task) -> None:
        """Send a lock's slow operation again and again, until it is long over."""
        ends = time.monotonic() + 1.5 * task.case.work
        while time.monotonic() < ends and not self._ends:
            self.send(task)
            time.sleep(0.5)

    def _has_token(self, task: Task) -> bool:
        if task.case.mode not in TOKENS:
            return True
        with task.lock:
            if task.token is None:
                answer = self._exchange("GET", "/token", task.user, {}, None)
                task.token = answer.json["token"] if answer and answer.status == 200 else None
                if task.token and task.case.number % 3 == 0:
                    self.send(task, thief=USERS[USERS.index(task.user) - 1])
            return task.token is not None

    def send(self, task: Task, *, probe: bool = False, thief: str = "") -> Attempt:
        case, user = task.case, thief or task.user
        attempt = uuid.uuid4().hex
        headers = {"X-Attempt": attempt, "Content-Type": "application/json"}
        if case.mode in TOKENS:
            headers["Idempotence-Token"] = task.token
        elif case.mode != "lock":
            headers["Idempotency-Key"] = f"key {case.number}"
        body = json.dumps({"number": case.number, "work": case.work, "end": case.end})
        sent = time.monotonic()
        answer = self._exchange("POST", f"/{case.mode}", user, headers, body)
        about = {"probe": probe, "stolen": bool(thief)}
        if answer:
            got = answer.headers
            told = answer.json if "json" in got.get("Content-Type", "") else {}
            about |= {"status": answer.status, "slug": told.get("type", "").rpartition(":")[2]}
            about |= {"body": told if "run" in told else {}}
            about |= {"replayed": got["Idempotent-Replayed"] == "true"}
            about |= {"stored": got["Idempotent-Stored"] != "false"}
        operation = f"{case.mode}/{case.number}/{user}"
        made = Attempt(attempt, operation, sent, time.monotonic(), **about)
        self.attempts.append(made)
        return made

    def _exchange(self, method, path, user, headers, body):
        headers = {**headers, "Authorization": f"Bearer {user}", "Connection": "close"}
        with contextlib.suppress(http.client.HTTPException, OSError):
            return self._server.ask(path, method, headers, body, timeout=PATIENCE)
        return None  # the worker died, or does not answer in time

    def probe(self) -> None:
        """Send everything with a key, and every lock, once more, now that all is calm."""

        def probe(task):
            return any(self.send(task, probe=True).status is not None for _ in range(5))

        left = [task for task in self.tasks if task.case.mode not in TOKENS]
        with ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(probe, left))


def kind_of(attempt: Attempt) -> str:
    if attempt.status is None:
        return "no answer"
    told = f"{attempt.status} {attempt.slug}".strip()
    return f"{told} replayed" if attempt.replayed else told


def is_final(attempt: Attempt) -> bool:
    if attempt.slug == "key-in-progress":
        return False
    if attempt.mode == "once" and attempt.replayed:
        return True
    return attempt.status == 201 or attempt.status in FINAL_STATUSES
