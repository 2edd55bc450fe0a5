"""Guards that a Blueprint carries to its views, and views that are exempt."""

import pytest
from apiflask import APIBlueprint, APIFlask
from flask import Blueprint
from flask.views import MethodView
from flask_smorest import Api
from flask_smorest import Blueprint as SmorestBlueprint
from helpers.apps import KEY, bare_app, make_app, verdict
from werkzeug.routing import Rule

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    exempt,
    idempotent,
    no_repeat_submit,
    one_time_token,
)


def shop(*views, name="shop"):
    """Return a Blueprint with these views."""
    blueprint = Blueprint(name, __name__)
    for view in views or ("pay",):
        blueprint.add_url_rule(f"/{view}", view, lambda: "done", methods=["POST"])
    return blueprint


def app_with(*blueprints, **settings):
    app = make_app(**settings)
    for blueprint in blueprints:
        app.register_blueprint(blueprint)
    return app


def answers(app, path="/pay", count=3, **options):
    return [app.test_client().post(path, **options) for _ in range(count)]


def statuses(app, path="/pay", count=3, **options):
    return [answer.status_code for answer in answers(app, path, count, **options)]


@pytest.mark.parametrize(
    ("decorate", "expected"),
    [
        (no_repeat_submit, [200, "repeat-submit"]),
        (no_repeat_submit(5), [200, "repeat-submit"]),
        (idempotent, [200, "replay of 200"]),
        (idempotent(on_repeat="reject"), [200, "key-repeated"]),
        (one_time_token, ["token-missing"] * 2),
        (one_time_token("pay"), ["token-missing"] * 2),
    ],
)
def test_its_views_are_guarded_and_those_that_are_registered_later(decorate, expected):
    blueprint, late = shop(), shop("late", name="late")
    app = app_with(late)
    for each in (blueprint, late):
        assert decorate(each) is each
    blueprint.add_url_rule("/later", "later", lambda: "done", methods=["GET", "POST"])
    app.register_blueprint(blueprint)
    for path in ("/pay", "/later", "/late"):
        assert [verdict(answer) for answer in answers(app, path, 2, headers=KEY)] == expected
    assert [app.test_client().get("/later").status_code for _ in range(2)] == [200, 200]


def test_a_rule_without_methods_is_guarded_for_each_unsafe_one():
    app = app_with(no_repeat_submit(5)(shop()))
    app.url_map.add(Rule("/any", endpoint="shop.pay"))
    for method in ("PUT", "DELETE", "PURGE"):
        sent = [app.test_client().open("/any", method=method).status_code for _ in range(2)]
        assert sent == [200, 409], method


def test_the_nearest_guard_of_a_mode_counts():
    child, parent = shop("far", name="child"), shop("own")
    no_repeat_submit(5, "the parent's")(parent)
    parent.register_blueprint(child, url_prefix="/child")
    own = no_repeat_submit(5, "the view's own")(lambda: "done")
    child.add_url_rule("/own", "own", own, methods=["POST"])
    nearer = no_repeat_submit(5, "the nearer one's")(shop("near", name="nearer"))
    child.register_blueprint(nearer, url_prefix="/nearer")
    app = app_with(parent, IDEMPOTENCE_KEY_ALL_ROUTES=True)

    for path, message in (
        ("/own", "the parent's"),
        ("/child/far", "the parent's"),
        ("/child/own", "the view's own"),
        ("/child/nearer/near", "the nearer one's"),
    ):
        assert answers(app, path, 2)[1].json["detail"] == message


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


def test_it_may_be_registered_twice_and_on_several_applications():
    blueprint = no_repeat_submit(5)(shop())
    for _ in range(2):
        app = app_with(blueprint)
        app.register_blueprint(blueprint, url_prefix="/again", name="second")
        assert [statuses(app, path, 2) for path in ("/pay", "/again/pay")] == [[200, 409]] * 2
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
    guard = idempotent(guarantee="at-most-once")
    app = app_with(guard(shop()), IDEMPOTENCE_ON_STORE_ERROR="allow")
    with pytest.raises(ConfigurationError, match="at-most-once, which cannot be kept"):
        app.test_client().post("/pay", headers=KEY)


def test_a_view_and_a_blueprint_may_be_exempt_from_its_guard():
    child, parent = exempt(shop(name="child")), no_repeat_submit(5)(shop())
    parent.add_url_rule("/free", "free", exempt(lambda: "free"), methods=["POST"])
    parent.register_blueprint(child, url_prefix="/child")
    late = shop("late", name="late")
    app = app_with(parent, late, IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_REQUIRED=True)
    exempt(late)  # after its registration
    for path in ("/free", "/child/pay", "/late"):
        assert statuses(app, path) == [200, 200, 200]
    assert statuses(app, headers=KEY) == [200, 409, 409]


class Payments(MethodView):
    def post(self):
        return {"paid": True}

    @no_repeat_submit(5, "the method's own")
    def delete(self):
        return {"paid": False}


def flask_blueprint():
    blueprint = Blueprint("shop", __name__)
    blueprint.add_url_rule("/pay", view_func=Payments.as_view("pay"))
    return make_app(), blueprint


def smorest_blueprint():
    blueprint = SmorestBlueprint("shop", __name__)
    blueprint.route("/pay")(Payments)
    return make_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.1.0"), blueprint


def apiflask_blueprint():
    app, blueprint = APIFlask("shop"), APIBlueprint("shop", "shop")
    app.config.update(SECRET_KEY="a secret", TESTING=True)
    Idempotence(app)
    blueprint.add_url_rule("/pay", view_func=Payments.as_view("pay"))
    return app, blueprint


@pytest.mark.parametrize("made", [flask_blueprint, smorest_blueprint, apiflask_blueprint])
def test_the_methods_of_a_class_are_guarded_each_by_its_nearest_guard(made):
    app, blueprint = made()
    no_repeat_submit(5, "the Blueprint's")(blueprint)
    (Api(app) if made is smorest_blueprint else app).register_blueprint(blueprint)
    for method, message in (("POST", "the Blueprint's"), ("DELETE", "the method's own")):
        first, again = (app.test_client().open("/pay", method=method) for _ in range(2))
        assert (first.status_code, again.status_code) == (200, 409)
        assert message in again.text
