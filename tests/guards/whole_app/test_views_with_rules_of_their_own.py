"""Whole-app mode and views with rules of their own: decorated, exempt, on several applications."""

import functools

import flask_restx
import pytest
from flask import Blueprint, redirect, request
from flask.views import MethodView, View
from flask_login import LoginManager, UserMixin, fresh_login_required, login_user
from guards.whole_app.test_whole_app import (
    REPLAYED,
    UNGUARDED,
    counted,
    send,
    store_of,
    verdicts,
    whole_app,
)
from helpers.apps import make_app, verdict
from helpers.servers.processes import all_at_once, until

from flask_idempotence import ConfigurationError, exempt, extension, idempotent, no_repeat_submit
from flask_idempotence.guards.placement import place_guards
from flask_idempotence.guards.wrapping import guards_of


def says_no():
    """Return a view that nobody has marked."""
    return lambda *_: ("no", 503)


def passed_through(view):
    """Stand around a view as any decorator does, a login check for example."""

    @functools.wraps(view)
    def outer(*arguments, **named):
        return view(*arguments, **named)

    return outer


class Plain(MethodView):
    post = says_no()

    def patch(self):
        return "patched"


def with_methods(**members):
    return type("Orders", (Plain,), members).as_view("orders")


WAYS = {
    "a function": lambda mark: mark(says_no()),
    "a function, below another decorator": lambda mark: passed_through(mark(says_no())),
    "a method": lambda mark: with_methods(post=mark(says_no())),
    "a method, below another decorator": lambda mark: with_methods(
        post=passed_through(mark(says_no()))
    ),
    "a method of a class with another decorator": lambda mark: with_methods(
        post=mark(says_no()), decorators=[passed_through]
    ),
    "the decorators of a class": lambda mark: with_methods(decorators=[mark]),
    "the decorators of a class, another after it": lambda mark: with_methods(
        decorators=[mark, passed_through]
    ),
    "around a class": lambda mark: mark(with_methods()),
    "around a class, below another decorator": lambda mark: passed_through(mark(with_methods())),
    "a dispatching method": lambda mark: type(
        "Orders", (View,), {"dispatch_request": mark(says_no())}
    ).as_view("orders"),
}
"""Where a guard, or the mark that there shall be none, may stand."""


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


class TestGuarded:
    def test_a_guarded_view_goes_by_its_own_rules_and_claims_once(self, way):
        app = whole_app()
        guard = idempotent(guarantee="at-most-once", on_repeat="reject")
        app.add_url_rule("/", "view", way(guard), methods=["POST", "PATCH"])
        assert verdicts(app) == [503, "key-repeated"]
        assert store_of(app).claims == 2

    def test_rules_that_contradict_each_other_are_found(self, way):
        app = make_app(IDEMPOTENCE_KEY_GUARANTEE="at-most-once")
        app.add_url_rule("/", "view", way(idempotent(remember="success")), methods=["POST"])
        with pytest.raises(ConfigurationError, match=r"'view'.*remember"):
            send(app)

    def test_a_method_without_rules_beside_one_with_some_is_guarded(self):
        app = whole_app()
        guarded = idempotent(on_repeat="reject")(lambda self: "posted")
        app.add_url_rule("/", view_func=with_methods(post=guarded))
        assert verdicts(app) == [200, "key-repeated"]
        assert verdicts(app, method="PATCH") == REPLAYED
        assert store_of(app).claims == 4

    def test_a_view_behind_a_guard_of_another_mode_is_guarded_as_well(self):
        app = whole_app()
        view = no_repeat_submit(60)(counted(app.runs))
        app.add_url_rule("/", "view", view, methods=["POST"])
        assert verdicts(app) == REPLAYED
        assert verdicts(app, key="other") == ["repeat-submit"] * 2
        assert app.runs == ["view"]


class TestExempt:
    def test_an_exempt_view_is_left_alone(self, way):
        app = whole_app(IDEMPOTENCE_KEY_REQUIRED=True)
        app.add_url_rule("/", "view", way(exempt), methods=["POST"])
        assert verdicts(app) == [503, 503]
        assert verdicts(app, key=None) == [503, 503]
        assert store_of(app).claims == 0

    def test_the_mark_may_stand_above_the_route(self):
        app = whole_app()

        @exempt
        @app.post("/")
        def view():
            return "done"

        @exempt
        @app.post("/passed")
        @passed_through
        def passed():
            return "done"

        assert [verdicts(app), verdicts(app, "/passed")] == [UNGUARDED] * 2

    def test_a_class_may_be_exempt_and_one_method_of_it(self):
        app = whole_app()
        for name, marked, members in [
            ("whole", True, {}),
            ("method", False, {"post": exempt(lambda self: "posted")}),
        ]:
            orders = type("Orders", (Plain,), {"post": lambda self: "posted", **members})
            orders = exempt(orders) if marked else orders
            app.add_url_rule(f"/{name}", view_func=orders.as_view(name))
        found = {name: verdicts(app, f"/{name}", method="PATCH") for name in ("whole", "method")}
        assert found == {"whole": UNGUARDED, "method": REPLAYED}
        assert [verdicts(app, f"/{name}") for name in ("whole", "method")] == [UNGUARDED] * 2

    def test_a_restx_resource_may_be_exempt_and_one_method_of_it(self):
        app = whole_app()
        api = flask_restx.Api(app, doc=False)

        @api.route("/whole")
        @exempt
        class Whole(flask_restx.Resource):
            def post(self):
                return "posted"

        @api.route("/method")
        class Method(flask_restx.Resource):
            @exempt
            def post(self):
                return "posted"

            def patch(self):
                return "patched"

        assert [verdicts(app, path) for path in ("/whole", "/method")] == [UNGUARDED] * 2
        assert verdicts(app, "/method", method="PATCH") == REPLAYED

    def test_without_whole_app_mode_the_mark_changes_nothing(self):
        app = make_app()
        app.add_url_rule("/", "view", idempotent()(exempt(lambda: "done")), methods=["POST"])
        assert verdicts(app) == REPLAYED

    def test_a_view_of_another_package_may_be_exempt_after_its_registration(self):
        app = whole_app(IDEMPOTENCE_KEY_REQUIRED=True)
        admin = Blueprint("admin", __name__, url_prefix="/admin")
        admin.add_url_rule("/", "jobs", counted(app.runs), methods=["POST"])
        admin.add_url_rule("/class", view_func=Plain.as_view("plain"))
        app.register_blueprint(admin)
        for endpoint, view in app.view_functions.items():
            if endpoint.startswith("admin."):
                exempt(view)
        assert verdicts(app, "/admin/", key=None) == UNGUARDED
        assert verdicts(app, "/admin/class", key=None) == [503, 503]
        assert store_of(app).claims == 0

    @pytest.mark.parametrize("kind", ["Flask", "Namespace", "str"])
    def test_only_a_view_or_a_blueprint_may_be_exempt(self, kind):
        values = {
            "Flask": make_app(),
            "Namespace": flask_restx.Namespace("orders"),
            "str": "orders.create",
        }
        with pytest.raises(ConfigurationError, match=f"not a {kind}"):
            exempt(values[kind])

    def test_an_exempt_view_with_a_guard_of_its_own_keeps_it(self):
        app = whole_app()
        app.add_url_rule("/", "view", exempt(idempotent()(lambda: "done")), methods=["POST"])
        assert verdicts(app) == REPLAYED
        assert store_of(app).claims == 2


def shared():
    """A view of a module, which several applications register."""
    return "shared"


shared_guarded = idempotent()(lambda: "guarded")
shared_blueprint = Blueprint("shared", __name__)
shared_blueprint.add_url_rule("/blueprint", "view", lambda: "printed", methods=["POST"])


@pytest.fixture
def members():
    """Return an application and its login check, which `app.locked_out` fails."""
    app = whole_app()
    app.locked_out = False
    return app, lambda: ("locked out", 403) if app.locked_out else None


class TestLoginChecks:
    """A user sends a request, is locked out, and sends it again."""

    def test_one_below_the_guard_does_not_run_before_a_replay(self, members):
        app, check = members
        app.add_url_rule("/", "view", lambda: check() or "done", methods=["POST"])
        assert verdict(send(app)) == 200
        app.locked_out = True
        assert verdict(send(app)) == "replay of 200"

    def test_one_in_before_request_does(self, members):
        app, check = members
        app.before_request(check)
        app.add_url_rule("/", "view", lambda: "done", methods=["POST"])
        assert verdict(send(app)) == 200
        app.locked_out = True
        assert verdict(send(app)) == 403


class TestApplications:
    @pytest.mark.parametrize("whole_first", [True, False])
    def test_a_view_of_two_applications_is_guarded_on_the_one_that_asks_for_it(self, whole_first):
        whole, plain = whole_app(), make_app()
        for app in (whole, plain):
            app.add_url_rule("/", view_func=shared, methods=["POST"])
            app.add_url_rule("/guarded", "guarded", shared_guarded, methods=["POST"])
            app.register_blueprint(shared_blueprint)
        for app in (whole, plain) if whole_first else (plain, whole):
            expected = REPLAYED if app is whole else UNGUARDED
            assert [verdicts(app, path) for path in ("/", "/blueprint")] == [expected] * 2
            assert verdicts(app, "/guarded") == REPLAYED
        late = whole_app()
        late.add_url_rule("/", view_func=shared, methods=["POST"])
        assert verdicts(late) == REPLAYED

    def test_a_fault_of_one_endpoint_leaves_the_others_guarded(self):
        app = whole_app()
        app.add_url_rule("/", "view", counted(app.runs), methods=["POST"])
        app.add_url_rule("/token", "mine", lambda: "mine")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="answer GET /token"):
                app.test_client().get("/token")
        assert verdicts(app) == REPLAYED
        assert len(list(guards_of(app.view_functions["view"], "POST"))) == 1

    def test_several_first_requests_at_once_find_every_view_guarded_once(self, monkeypatch):
        inside, most = [], []

        def one_at_a_time(app, methods):
            inside.append(1)
            if not most:
                until(lambda: len(inside) > 1, seconds=0.3)
            faults = list(place_guards(app, methods))
            most.append(len(inside))
            inside.pop()
            return faults

        monkeypatch.setattr(extension, "place_guards", one_at_a_time)
        app = whole_app()
        for name in "abcd":
            app.add_url_rule(f"/{name}", name, counted(app.runs, name), methods=["POST"])
        answers = all_at_once([functools.partial(send, app, f"/{name}") for name in "abcd" * 2])
        assert {verdict(answer) for answer in answers} <= {200, "replay of 200", "key-in-progress"}
        assert sorted(app.runs) == list("abcd")
        assert store_of(app).claims == 8
        assert set(most) == {1}
        for name in "abcd":
            assert len(list(guards_of(app.view_functions[name], "POST"))) == 1


@pytest.mark.parametrize(
    ("remedy", "answers"),
    [("none", [302, 302]), ("below the check", [302, 200]), ("401", [401, 200])],
)
def test_a_check_inside_the_guard_leaves_its_redirect_and_below_the_check_it_does_not(
    remedy, answers
):
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    manager = LoginManager(app)

    @manager.user_loader
    def load(name):
        user = UserMixin()
        user.id = name
        return user

    manager.needs_refresh_handler(
        lambda: ("again", 401) if remedy == "401" else redirect("/login")
    )
    app.add_url_rule("/in", "in", lambda: [login_user(load("ann"), fresh="fresh" in request.args)])
    pay = idempotent()(lambda: "paid") if remedy == "below the check" else lambda: "paid"
    app.add_url_rule("/pay", "pay", fresh_login_required(pay), methods=["POST"])
    client, statuses = app.test_client(), []
    for query in ("", "?fresh"):
        client.get(f"/in{query}")
        answer = client.post("/pay", headers={"Idempotency-Key": "the-same-key"})
        statuses.append(answer.status_code)
    assert statuses == answers
