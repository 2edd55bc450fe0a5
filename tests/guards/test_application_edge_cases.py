"""What applications do that is easily forgotten."""

import contextlib
import threading

import pytest
from flask import abort, copy_current_request_context
from helpers.apps import Site, fail


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
