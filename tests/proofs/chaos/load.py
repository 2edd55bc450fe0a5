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
from dataclasses import dataclass, field

from helpers.servers.processes import Gunicorn

from .history import Attempt, what_is_told

USERS = ("anna", "berta", "carl", "dora")
MODES = {"once": 30, "least": 30, "patient": 10, "lock": 20, "token": 10, "restoring": 10}
"""How many of a hundred operations, or so, are of which mode."""

TOKENS = ("token", "restoring")
PATIENCE = 2.5
"""Seconds that a client waits for an answer before it asks again."""

FINAL_STATUSES = {400, 403, 404, 409, 422}


@dataclass(eq=False)
class Task:
    number: int
    mode: str
    user: str
    work: float
    end: str
    token: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def tasks(seed: int, long_work: float) -> Iterator[Task]:
    """Yield tasks, always the same ones for a seed; two users send the same key and body."""
    rng = random.Random(seed)
    for number in itertools.count(1):
        mode = rng.choices([*MODES], [*MODES.values()])[0]
        end = rng.choices(["success", "failure"], [95, 5])[0]
        work, copies = rng.choice([0, 0.02, 0.1, 0.3]), rng.choice([1, 1, 2])
        # What costs a worker is rare, and yet certain to come soon.
        if number % 60 == 11:
            end = "exit"
        elif number % 150 == 31:
            end = "kill"
        elif number % 30 == 7:
            work, copies, end = long_work, 2, "success"
        is_alone = end in {"exit", "kill"} or work == long_work
        if work == long_work or end == "exit":
            mode = rng.choice([mode for mode in MODES if mode not in TOKENS])
        for user in rng.sample(USERS, 1 if is_alone else 2):
            yield from [Task(number, mode, user, work, end)] * copies


class Load:
    """Clients of an application; the seed is that of the cases and of the clients' pauses."""

    clients = 16

    def __init__(self, server: Gunicorn, seed: int, long_work: float):
        self._server, self._seed = server, seed
        self._tasks = tasks(seed, long_work)
        self._lock = threading.Lock()
        self._ends = False
        self._give_up_at = float("inf")
        self.attempts: list[Attempt] = []
        self.given_up: list[str] = []
        self.begun: dict[Task, None] = {}

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
                self.begun[task] = None
            self._see_through(task, rng)

    def _see_through(self, task: Task, rng) -> None:
        """Ask until there is a final answer; a few ask once more, and a few are thieves."""
        while not (self._has_token(task) and is_final(self.send(task))):
            if time.monotonic() > self._give_up_at:
                self.given_up.append(f"{task.mode}/{task.number}/{task.user}")
                return
            time.sleep(rng.uniform(0.05, 0.3))
        if rng.random() < 0.3:
            self.send(task)
        if task.mode == "lock" and task.work > PATIENCE:
            self._click_on(task)

    def _click_on(self, task: Task) -> None:
        """Send a lock's slow operation again and again, until it is long over."""
        ends = time.monotonic() + 1.5 * task.work
        while time.monotonic() < ends and not self._ends:
            self.send(task)
            time.sleep(0.5)

    def _has_token(self, task: Task) -> bool:
        if task.mode not in TOKENS:
            return True
        with task.lock:
            if task.token is None:
                answer = self._exchange("GET", "/token", task.user, {}, None)
                task.token = answer.json["token"] if answer and answer.status == 200 else None
                if task.token and task.number % 3 == 0:
                    self.send(task, thief=USERS[USERS.index(task.user) - 1])
            return task.token is not None

    def send(self, task: Task, *, probe: bool = False, thief: str = "") -> Attempt:
        user = thief or task.user
        attempt = uuid.uuid4().hex
        headers = {"X-Attempt": attempt, "Content-Type": "application/json"}
        if task.mode in TOKENS:
            headers["Idempotence-Token"] = task.token
        elif task.mode != "lock":
            headers["Idempotency-Key"] = f"key {task.number}"
        body = json.dumps({"number": task.number, "work": task.work, "end": task.end})
        sent = time.monotonic()
        answer = self._exchange("POST", f"/{task.mode}", user, headers, body)
        about = {"probe": probe, "stolen": bool(thief)}
        if answer:
            about |= what_is_told(answer.status, answer.headers, answer.text)
        operation = f"{task.mode}/{task.number}/{user}"
        made = Attempt(attempt, operation, sent, time.monotonic(), **about)
        self.attempts.append(made)
        return made

    def _exchange(self, method, path, user, headers, body):
        headers = {**headers, "Authorization": f"Bearer {user}", "Connection": "close"}
        with contextlib.suppress(http.client.HTTPException, OSError):
            return self._server.ask(path, method, headers, body, timeout=PATIENCE)
        return None  # the worker died, or does not answer in time

    def probe(self) -> None:

        def probe(task):
            return any(self.send(task, probe=True).is_settled for _ in range(5))

        left = [task for task in self.begun if task.mode not in TOKENS]
        with ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(probe, left))


def is_final(attempt: Attempt) -> bool:
    """Whether a client has no reason to repeat it."""
    if attempt.mode == "once" and attempt.replayed:
        return True
    is_refused = attempt.status in FINAL_STATUSES and attempt.slug != "key-in-progress"
    return attempt.status == 201 or is_refused
