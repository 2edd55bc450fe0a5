"""The recipes of the example, and crowds of equal requests to them."""

import threading
from collections import Counter

from example_app import create_app
from helpers.servers.processes import all_at_once, until

CROWD = 16
PATIENCE = 60
"""Seconds for an intended wait; the machine may be busy."""


class RecipeSite:
    def __init__(self, url, folder, *, within=False, **settings):
        if within:
            settings |= {
                "IDEMPOTENCE_STORAGE_URI": url,
                "IDEMPOTENCE_STORAGE_OPTIONS": {"deadline": 20},
            }
        self.app = create_app(
            TESTING=True,
            EXAMPLE_DATABASE=folder / "shop.sqlite3",
            EXAMPLE_RECIPES_DATABASE=url,
            **settings,
        )
        self.database = self.app.extensions["example_recipes"]
        self.database.prepare()
        if within:
            self.store.create_table()
        self.within = within
        self.answered = 0
        self._lock = threading.Lock()

    @property
    def store(self):
        return self.app.extensions["idempotence"].engine.store

    def post(self, path, sender=None, **form):
        headers = {"Authorization": f"Bearer {sender}"} if sender else {}
        answer = self.app.test_client().post(f"/recipes/{path}", data=form, headers=headers)
        with self._lock:
            self.answered += 1
        return answer

    def crowd(self, path, count=CROWD, **form):
        return self.at_once(*[(path, form)] * count)

    def at_once(self, *requests):
        self.answered = 0
        return all_at_once([lambda path=p, form=f: self.post(path, **form) for p, f in requests])

    def truth(self, what):
        return self.app.test_client().get("/recipes").json[what]

    def first_stays(self, monkeypatch, module, name):
        """Keep the first call of a function waiting until the crowd is answered."""

        def wait():
            assert until(lambda: self.answered >= CROWD - 1, PATIENCE)

        return spy(monkeypatch, module, name, wait)

    def close(self):
        if self.within:
            self.store.close()
        self.database.engine.dispose()
        self.app.extensions["example_database"].close()


def spy(monkeypatch, module, name, before=lambda: None):
    original, calls = getattr(module, name), []

    def watched(*args):
        calls.append(args)
        before()
        return original(*args)

    monkeypatch.setattr(module, name, watched)
    return calls


def wait_for_each_other(monkeypatch, module, name, count=CROWD):
    barrier = threading.Barrier(count, timeout=PATIENCE)
    spy(monkeypatch, module, name, barrier.wait)


def statuses(answers):
    return Counter(answer.status_code for answer in answers)


def values_of(answers, name):
    return [answer.json[name] for answer in answers if answer.status_code < 400]
