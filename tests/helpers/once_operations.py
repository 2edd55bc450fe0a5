"""Operations that shall be carried out once, and a clock that stands still."""

from concurrent.futures import ThreadPoolExecutor

from flask_idempotence import RedisStore, Running
from helpers.apps import StillApp


def elsewhere(call, *args, **kwargs):
    """Call a function in a thread of its own: a block is reentrant in its own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call, *args, **kwargs).result()


class OnceApp(StillApp):
    def once(self, id_="1", scope="invoice", **options):
        return self.idempotence.once(scope, id_, **options)

    def work(self, id_="1", result=None, **options):
        """Do the work if it has not been done; return whether, and what came of it."""
        with self.app.app_context(), self.once(id_, **options) as job:
            if job.first:
                self.runs += 1
                job.result = result
            return job.first, job.result

    def word(self, id_="1", **options):
        """Say in a word what comes of another caller's attempt: "first", "done" or "running"."""
        try:
            return "first" if elsewhere(self.work, id_, **options)[0] else "done"
        except Running:
            return "running"

    def end(self, error, id_="1", *, result=None, by_hand=None):
        with self.app.app_context(), self.once(id_) as job:
            self.runs += job.first
            if result is not None:
                job.result = result
            if by_hand is not None:
                by_hand()
            if error is not None:
                raise error

    def key_of(self, id_="1", **options):
        before = set(self.store.scan(""))
        assert self.word(id_, **options) == "first"
        [key] = set(self.store.scan("")) - before
        return key

    def pass_time(self, seconds, step=1.0):
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.engine.keeper.tick()


def once_app_on(kind, request, **settings):
    if kind == "memory":
        return OnceApp(**settings)
    request.getfixturevalue("redis_url")
    client = request.getfixturevalue("redis_server").client()
    # A busy machine may take longer than the usual second for sixty-four at once.
    return OnceApp(store=RedisStore(client, deadline=30), **settings)
