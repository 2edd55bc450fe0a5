"""What applications do that is easily forgotten."""

import contextlib
import gc
import threading

import pytest
from flask import Response, abort, copy_current_request_context, request
from helpers.apps import Site, fail, make_app

from flask_idempotence import (
    idempotent,
    no_repeat_submit,
)


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


ORDERS = [f"{number:08x}-0000-4000-8000-000000000000" for number in (1, 2)]


@pytest.mark.parametrize(
    "guard",
    [
        idempotent(required=True, key=lambda: request.view_args["order"], compare=False),
        idempotent(compare=lambda: [request.view_args["order"]]),
        no_repeat_submit(60, key=lambda: request.view_args["order"]),
        no_repeat_submit(60, key=lambda: ["pay", request.view_args["order"]], shared=True),
    ],
)
def test_a_uuid_of_the_path_is_a_value_like_any_other(guard):
    app, runs = make_app(), []
    app.add_url_rule(
        "/<uuid:order>",
        "pay",
        guard(lambda order: str(len(runs.append(1) or runs))),
        methods=["POST"],
    )
    client = app.test_client()
    answers = [
        client.post(f"/{order}", headers={"Idempotency-Key": order}) for order in ORDERS * 2
    ]
    assert [answer.status_code in (200, 409) for answer in answers] == [True] * 4
    assert len(runs) == 2
