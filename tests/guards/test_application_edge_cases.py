"""What applications do that is easily forgotten."""

import contextlib
import gc
import threading

import pytest
from flask import Response, abort, copy_current_request_context
from helpers.apps import Site, fail, make_app

from flask_idempotence import no_repeat_submit


@pytest.mark.parametrize("helper_fails", [True, False])
def test_a_thread_with_a_copy_of_the_context_settles_nothing(helper_fails):
    def view():
        @copy_current_request_context
        def helper():
            if helper_fails:
                raise ValueError

        def quiet():
            with contextlib.suppress(ValueError):
                helper()

        thread = threading.Thread(target=quiet)
        thread.start()
        thread.join()
        codes.append(site.submit().status_code)
        abort(400)

    site, codes = Site(view, "lock"), []
    for _ in range(2):  # released by the real end of the first
        assert site.submit().status_code == 400
    assert codes == [409, 409]


def test_a_teardown_function_that_raises_keeps_ours_from_nothing():
    site = Site(fail, "lock", PROPAGATE_EXCEPTIONS=True)
    site.token = "none"  # the route of tokens is torn down, too

    @site.app.teardown_request
    def remove(error):
        raise OSError("the database is away")

    for _ in range(3):
        with pytest.raises((OSError, ExceptionGroup)):  # a group since Flask 3.2
            site.submit()
    assert site.runs == 3


def test_a_view_that_is_called_in_a_test_context_settles_at_its_end():
    site = Site(fail, "lock")
    view = site.app.view_functions["view"]
    for _ in range(2):
        context = site.app.test_request_context("/", method="POST")
        with context, pytest.raises(ValueError, match="view"):
            view()
    assert site.runs == 2


def test_the_garbage_collector_may_find_a_dropped_response_anywhere():
    """It runs in the middle of anything, also where a lock is held that settling would need."""

    class InACycle(Response):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.me = self

    app = make_app()

    @app.post("/<int:number>")
    @no_repeat_submit(60, failed=lambda response: True)
    def view(number):
        return InACycle(iter(["a"]))

    @app.after_request
    def replace(response):
        return Response("replaced")

    def send():
        client = app.test_client()
        for number in range(400):
            client.post(f"/{number}")

    before = gc.get_threshold()
    gc.set_threshold(7)
    thread = threading.Thread(target=send, daemon=True)
    try:
        thread.start()
        thread.join(60)
    finally:
        gc.set_threshold(*before)
    assert not thread.is_alive(), "deadlock"
