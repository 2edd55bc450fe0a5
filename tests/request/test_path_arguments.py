"""Path arguments of the application's own converters, and routes with several rules."""

from uuid import UUID

import pytest
from helpers.applications.login_apps import REPEATED, CountingApp
from helpers.apps import verdict
from werkzeug.routing import BaseConverter

from flask_idempotence import no_repeat_submit

pytestmark = pytest.mark.parametrize("guard", ["key", "lock"])


class Order:
    def __init__(self, number):
        self.number = number


class TitledOrder(Order):
    def __str__(self):
        return "An order"


class SoldOrder(Order):
    def __str__(self):
        raise RuntimeError("it has no text")


def with_orders(guard, kind):
    class OrderConverter(BaseConverter):
        def to_python(self, value):
            return kind(value)

    counter = CountingApp(guard)
    counter.app.url_map.converters["order"] = OrderConverter
    counter.add("/orders/<order:order>/<path:rest>", "order")
    return counter


@pytest.mark.parametrize("kind", [Order, TitledOrder, SoldOrder, list, lambda text: {"id": text}])
def test_the_text_of_the_path_counts(guard, kind):
    counter = with_orders(guard, kind)
    first, again = (counter.send("/orders/1/pay") for _ in range(2))
    assert [verdict(first), verdict(again)] == [200, REPEATED[guard]]
    # The lock sees another request; a key was used for another one.
    other = {"key": "key-reused", "lock": 200}[guard]
    assert verdict(counter.send("/orders/2/pay")) == other
    assert verdict(counter.send("/orders/1/ship")) == other


def test_so_it_does_where_a_preprocessor_puts_an_object_in_the_place_of_a_text(guard):
    counter = CountingApp(guard)
    counter.add("/orders/<number>", "order")

    @counter.app.url_value_preprocessor
    def load(endpoint, values):
        values["number"] = TitledOrder(values["number"])

    assert verdict(counter.send("/orders/1")) == 200
    assert verdict(counter.send("/orders/1")) == REPEATED[guard]
    assert verdict(counter.send("/orders/2")) == {"key": "key-reused", "lock": 200}[guard]


def test_two_rules_of_one_endpoint_are_two_requests(guard):
    counter = CountingApp(guard)
    counter.app.add_url_rule(
        "/refund", "view", counter.app.view_functions["view"], methods=["POST"]
    )
    assert verdict(counter.send("/")) == 200
    assert verdict(counter.send("/refund")) == {"key": "key-reused", "lock": 200}[guard]
    assert verdict(counter.send("/")) == REPEATED[guard]


def test_so_they_are_where_a_function_stands_for_the_arguments(guard):
    counter, runs = CountingApp(guard), []
    view = no_repeat_submit(interval=60, key=lambda: "cart")(lambda: str(runs.append(1)))
    for rule in ("/in", "/out"):
        counter.app.add_url_rule(rule, "move", view, methods=["POST"])
    codes = [counter.send(path).status_code for path in ("/in", "/out", "/in")]
    assert (codes, len(runs)) == ([200, 200, 409], 2)


def test_beside_an_object_every_argument_counts(guard):
    counter = with_orders(guard, Order)
    view = no_repeat_submit(interval=60, ignore=["nonce"])(lambda **arguments: "done")
    counter.app.add_url_rule("/<nonce>/<order:order>/", "ignoring", view, methods=["POST"])
    paths = ("/1/a/", "/1/a/", "/2/a/", "/2/b/")
    assert [counter.send(path).status_code for path in paths] == [200, 409, 200, 200]


def test_an_argument_that_does_not_count_leaves_the_others_as_they_are(guard):
    counter = CountingApp(guard)
    view = no_repeat_submit(interval=60, ignore=["nonce"])(lambda **arguments: "done")
    counter.app.add_url_rule("/<nonce>/<uuid:order>/", "ignoring", view, methods=["POST"])
    paths = (f"/1/{UUID(int=1)}/", f"/2/{UUID(int=1)}/", f"/2/{UUID(int=2)}/")
    assert [counter.send(path).status_code for path in paths] == [200, 409, 200]
