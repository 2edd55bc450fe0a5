"""Guards that a Blueprint carries to its views, and views that are exempt."""

from collections import Counter

import pytest
from apiflask import APIBlueprint, APIFlask
from flask import Blueprint, Flask
from flask.views import MethodView
from flask_smorest import Api
from flask_smorest import Blueprint as SmorestBlueprint
from helpers.apps import bare_app, make_app

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    exempt,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

KEY = {"Idempotency-Key": "0b3d3f0e-6d1c-4c43-9d6e-8c8c3b8d5c11"}


def shop(*views, name="shop", **options):
    """Return a Blueprint with views, which count their runs."""
    blueprint = Blueprint(name, __name__, **options)
    blueprint.runs = Counter()
    for view in views or ("pay",):
        blueprint.add_url_rule(f"/{view}", view, counted(blueprint.runs, view), methods=["POST"])
    return blueprint


def counted(runs, name):
    def view():
        runs[name] += 1
        return f"{name} {runs[name]}"

    return view


def app_with(*blueprints, **settings):
    app = make_app(**settings)
    for blueprint in blueprints:
        app.register_blueprint(blueprint)
    return app


def statuses(app, path="/pay", count=3, **options):
    return [app.test_client().post(path, **options).status_code for _ in range(count)]


def test_each_decorator_takes_a_blueprint_and_returns_it():
    for decorate in (
        no_repeat_submit(5),
        no_repeat_submit,
        idempotent(),
        idempotent,
        one_time_token,
    ):
        blueprint = shop()
        assert decorate(blueprint) is blueprint


@pytest.mark.parametrize(
    ("decorate", "expected"),
    [
        (no_repeat_submit(5), [200, 409, 409]),
        (idempotent(on_repeat="reject"), [200, 409, 409]),
        (one_time_token("pay"), [400, 400, 400]),
    ],
)
def test_its_views_are_guarded(decorate, expected):
    blueprint = decorate(shop())
    assert statuses(app_with(blueprint), headers=KEY) == expected
    assert blueprint.runs.total() == expected.count(200)


def test_views_that_are_registered_later_are_guarded_and_safe_methods_are_not():
    blueprint = no_repeat_submit(5)(Blueprint("shop", __name__))
    app = app_with()
    blueprint.add_url_rule("/pay", "pay", lambda: "paid", methods=["GET", "POST"])
    app.register_blueprint(blueprint)
    assert statuses(app) == [200, 409, 409]
    assert [app.test_client().get("/pay").status_code for _ in range(2)] == [200, 200]


def test_a_blueprint_may_be_guarded_after_its_registration():
    blueprint = shop()
    app = app_with(blueprint)
    no_repeat_submit(5)(blueprint)
    assert statuses(app) == [200, 409, 409]


def test_the_nearest_guard_of_a_mode_counts():
    child, parent = shop("far", "near", name="child"), shop("own")
    no_repeat_submit(5, "the parent's")(parent)
    parent.register_blueprint(child, url_prefix="/child")
    own = no_repeat_submit(5, "the view's own")(lambda: "done")
    child.add_url_rule("/own", "own", own, methods=["POST"])
    nearer = no_repeat_submit(5, "the nearer one's")(shop("near", name="nearer"))
    child.register_blueprint(nearer, url_prefix="/nearer")
    app = app_with(parent, IDEMPOTENCE_KEY_ALL_ROUTES=True)

    def told(path):
        client = app.test_client()
        client.post(path)
        return client.post(path).json["detail"]

    assert told("/own") == told("/child/far") == "the parent's"
    assert told("/child/own") == "the view's own"
    assert told("/child/nearer/near") == "the nearer one's"


def test_modes_are_nested_token_outside_lock_outside_key():
    blueprint = shop()
    for decorate in (idempotent(required=True), one_time_token(), no_repeat_submit(5)):
        decorate(blueprint)
    app = app_with(blueprint)
    client = app.test_client()

    def send(**headers):
        token = client.get("/token").json["token"]
        answer = client.post("/pay", headers={"Idempotence-Token": token, **headers})
        return answer.headers.get("Idempotence-Refusal", answer.status_code)

    assert client.post("/pay").headers["Idempotence-Refusal"] == "token-missing"
    assert send() == "key-missing"  # a failed result, which releases the lock
    assert [send(**KEY), send(**KEY)] == [200, "repeat-submit"]


def test_a_blueprint_that_is_registered_twice_guards_both():
    blueprint = no_repeat_submit(5)(shop())
    app = make_app()
    app.register_blueprint(blueprint, url_prefix="/a")
    app.register_blueprint(blueprint, url_prefix="/b", name="second")
    assert statuses(app, "/a/pay", 2) == [200, 409]
    assert statuses(app, "/b/pay", 2) == [200, 409]


def test_applications_of_a_factory_share_a_guarded_blueprint():
    blueprint = no_repeat_submit(5)(shop())
    for _ in range(2):
        assert statuses(app_with(blueprint), count=2) == [200, 409]
    with pytest.raises(ConfigurationError, match="has served a request already"):
        idempotent(blueprint)


def test_it_carries_one_guard_of_each_mode():
    with pytest.raises(ConfigurationError, match="has such a guard already"):
        no_repeat_submit(3)(no_repeat_submit(5)(shop()))


def test_without_the_extension_each_request_to_it_raises():
    app = bare_app()
    app.register_blueprint(no_repeat_submit(5)(shop()))
    with pytest.raises(ConfigurationError, match=r"call Idempotence\(app\)"):
        app.test_client().post("/pay")


def test_an_endpoint_whose_guard_cannot_be_kept_is_closed():
    blueprint = idempotent(guarantee="at-most-once")(shop())
    app = app_with(blueprint, IDEMPOTENCE_ON_STORE_ERROR="allow")
    with pytest.raises(ConfigurationError, match="at-most-once, which cannot be kept"):
        app.test_client().post("/pay", headers=KEY)
    assert blueprint.runs.total() == 0


class TestExempt:
    def test_a_view_of_a_guarded_blueprint(self):
        blueprint = no_repeat_submit(5)(shop())
        blueprint.add_url_rule("/free", "free", exempt(lambda: "free"), methods=["POST"])
        app = app_with(blueprint)
        assert statuses(app, "/free") == [200, 200, 200]
        assert statuses(app) == [200, 409, 409]

    def test_a_blueprint_from_its_parent_and_from_the_whole_application(self):
        child, parent = exempt(shop(name="child")), no_repeat_submit(5)(shop())
        parent.register_blueprint(child, url_prefix="/child")
        app = app_with(parent, IDEMPOTENCE_KEY_ALL_ROUTES=True)
        assert statuses(app, "/child/pay", headers=KEY) == [200, 200, 200]
        assert child.runs.total() == 3

    def test_a_blueprint_after_its_registration(self):
        blueprint = shop()
        app = app_with(blueprint, IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_REQUIRED=True)
        exempt(blueprint)
        assert statuses(app) == [200, 200, 200]


class Payments(MethodView):
    def post(self):
        return {"paid": True}

    def delete(self):
        return {"paid": False}

    delete = no_repeat_submit(5, "the method's own")(delete)


def test_the_methods_of_a_class_are_guarded_each_by_its_nearest_guard():
    blueprint = Blueprint("shop", __name__)
    blueprint.add_url_rule("/pay", view_func=Payments.as_view("pay"))
    app = app_with(no_repeat_submit(5, "the Blueprint's")(blueprint))
    client = app.test_client()
    told = {
        method: [client.open("/pay", method=method).json.get("detail") for _ in range(2)][1]
        for method in ("POST", "DELETE")
    }
    assert told == {"POST": "the Blueprint's", "DELETE": "the method's own"}


def test_blueprints_of_flask_smorest():
    app = make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.1.0")
    blueprint = no_repeat_submit(5)(SmorestBlueprint("shop", __name__))
    blueprint.route("/pay")(Payments)
    Api(app).register_blueprint(blueprint)
    assert statuses(app) == [200, 409, 409]


def test_blueprints_of_apiflask():
    app = APIFlask("shop")
    app.config.update(SECRET_KEY="a secret", TESTING=True)
    Idempotence(app)
    blueprint = no_repeat_submit(5)(APIBlueprint("shop", "shop"))
    blueprint.post("/pay")(lambda: {"paid": True})
    app.register_blueprint(blueprint)
    assert statuses(app) == [200, 409, 409]


def test_a_guard_above_its_route_is_found_behind_the_blueprints_guard():
    blueprint = no_repeat_submit(5)(Blueprint("shop", __name__))

    @idempotent()
    @blueprint.post("/pay")
    def pay():
        return "paid"

    app = Flask("shop")
    app.register_blueprint(blueprint)
    with pytest.raises(ConfigurationError, match="is above its route"):
        Idempotence(app)
