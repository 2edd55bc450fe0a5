"""The assertion that a view ran once: whom it counts, and the text of its failure."""

import threading
from functools import wraps

import pytest
from flask import Blueprint, abort, current_app, request
from flask.views import MethodView
from helpers.apps import make_app

from flask_idempotence import Idempotence, Refusal, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.testing import assert_ran_once, token_for

KEY = {"Idempotency-Key": "order-1"}


def shop(*guards, view=None, **settings):
    app, view = make_app(**settings), view or (lambda: "Ordered.")
    for guard in guards:
        view = guard(view)
    app.add_url_rule("/orders", "create_order", view, methods=["POST"])
    return app


def ran_once(app, *calls, endpoint="create_order"):
    with assert_ran_once(app, endpoint):
        for call in calls:
            call()


def failure(app, *calls):
    with pytest.raises(AssertionError) as caught:
        ran_once(app, *calls)
    return str(caught.value)


def orders(app, times, headers=None):
    return [lambda: app.test_client().post("/orders", headers=headers)] * times


class TestHolds:
    @pytest.mark.parametrize(
        ("guards", "times"),
        [
            ([one_time_token()], 2),
            ([idempotent(on_repeat="reject"), no_repeat_submit(60)], 3),
            ([], 1),
        ],
        ids=["token", "two guards", "none"],
    )
    def test_where_repeats_of_an_async_view_are_refused(self, guards, times):
        pytest.importorskip("asgiref")

        async def later():
            return "Ordered.", 200 if guards else 500

        app = shop(*guards, view=later)
        token = token_for(app.test_client())
        ran_once(app, *orders(app, times, {**KEY, "Idempotence-Token": token}))

    def test_for_several_endpoints_in_one_block_class_based_ones_in_a_blueprint_too(self):
        class Payments(MethodView):
            @no_repeat_submit(60)
            def post(self):
                return "Paid."

        app, blueprint = shop(no_repeat_submit(60)), Blueprint("shop", __name__)
        blueprint.add_url_rule("/payments", view_func=Payments.as_view("pay"))
        app.register_blueprint(blueprint)
        with app.app_context(), assert_ran_once(current_app, "shop.pay"):
            ran_once(app, *orders(app, 2))
            statuses = [app.test_client().post("/payments").status_code for _ in range(2)]
            assert statuses == [200, 409]

    def test_where_a_decorator_answers_for_the_guard(self):
        def politely(view):
            def answer():
                try:
                    return view()
                except Refusal:
                    return "You have ordered already."

            return answer

        app = shop(no_repeat_submit(60), politely)
        ran_once(app, *orders(app, 2))

    def test_where_the_view_calls_another_guarded_function(self):
        pay = no_repeat_submit(60)(lambda: "Paid.")

        def order():
            return pay()

        app = shop(view=order)
        ran_once(app, *orders(app, 2))

    def test_in_whole_app_mode_and_leaves_its_guards_in_place(self):
        app = shop(IDEMPOTENCE_KEY_ALL_ROUTES=True)
        ran_once(app, *orders(app, 2, KEY))  # the guards are made at the first request
        assert app.test_client().post("/orders", headers=KEY).headers["Idempotent-Replayed"]
        ran_once(app, *orders(app, 2, {"Idempotency-Key": "order-2"}))

    def test_where_a_lock_in_the_view_has_refused_the_others(self):
        app = make_app(idempotence=(idempotence := Idempotence()))

        @app.post("/orders")
        def create_order():
            with idempotence.lock("stock"):
                return "Ordered."

        def while_locked():
            with app.app_context(), idempotence.lock("stock"):
                thread = threading.Thread(target=app.test_client().post, args=["/orders"])
                thread.start()
                thread.join(5)

        assert failure(app, while_locked) == (
            "'create_order' did not run:\n  POST /orders -> 409 CONFLICT, refused: key-in-progress"
        )
        ran_once(app, while_locked, *orders(app, 1))

    @pytest.mark.parametrize("settings", [{}, {"IDEMPOTENCE_ENABLED": False}])
    def test_where_a_decorator_outside_the_guards_has_answered_the_others(self, settings):
        def login_required(view):
            @wraps(view)
            def checked():
                return view() if "user" in request.args else abort(401)

            return checked

        app = shop(no_repeat_submit(60), idempotent(), login_required, **settings)
        assert failure(app, *orders(app, 1)) == (
            "'create_order' did not run:\n"
            "  POST /orders -> 401 UNAUTHORIZED, did not reach the view"
        )
        ran_once(app, *orders(app, 1), lambda: app.test_client().post("/orders?user=1"))


class TestFails:
    def test_with_a_list_of_requests_where_the_view_ran_twice(self):
        app = shop(idempotent())
        assert failure(app, *orders(app, 2)) == (
            "'create_order' ran 2 times, not once:\n"
            "  POST /orders -> 200 OK, ran (unguarded: no claim)\n"
            "  POST /orders -> 200 OK, ran (unguarded: no claim)"
        )

    def test_for_what_is_no_endpoint(self):
        app = shop()
        assert failure(app) == "'create_order' did not run:\n  no request was sent"
        with pytest.raises(TypeError, match="takes the endpoint's name"):
            ran_once(app, endpoint=app.view_functions["create_order"])
        with pytest.raises(LookupError, match=r"no endpoint 'create_ordr'.*mean 'create_order'"):
            ran_once(app, endpoint="create_ordr")

    def test_where_each_request_has_a_claim_of_its_own(self):
        app = shop(idempotent())
        keys = [{"Idempotency-Key": f"secret-{n}"} for n in range(2)]
        found = failure(app, *(call for key in keys for call in orders(app, 2, key)))
        assert found.count("ran (claimed by a key)") == 2
        assert found.count("POST /orders -> 200 OK, replayed") == 2
        assert "secret" not in found

    def test_where_every_request_is_refused(self):
        app = shop(no_repeat_submit(60))
        app.test_client().post("/orders")
        assert failure(app, *orders(app, 1)) == (
            "'create_order' did not run:\n  POST /orders -> 409 CONFLICT, refused: repeat-submit"
        )

    def test_where_the_view_is_not_reached(self):
        app = shop()
        assert failure(app, lambda: app.test_client().post("/order?card=4242")) == (
            "'create_order' did not run:\n  POST /order -> 404 NOT FOUND, did not reach the view"
        )

    def test_where_the_claim_was_released(self):
        app = shop(no_repeat_submit(60), view=lambda: abort(503))
        line = "POST /orders -> 503 SERVICE UNAVAILABLE, ran (claimed by a lock, then released)"
        assert failure(app, *orders(app, 2)).count(line) == 2

    def test_where_the_view_raises(self):
        app = shop(no_repeat_submit(60, failed=lambda _: True), view=lambda: {}["stock"])

        def order():
            with pytest.raises(KeyError):
                app.test_client().post("/orders")

        line = "POST /orders -> KeyError raised, ran (claimed by a lock, then released)"
        assert failure(app, order, order).count(line) == 2


def test_the_error_of_a_block_is_passed_on():
    app = shop()
    before = app.view_functions["create_order"]
    with pytest.raises(KeyError), assert_ran_once(app, "create_order"):
        raise KeyError
    assert app.view_functions["create_order"] is before
