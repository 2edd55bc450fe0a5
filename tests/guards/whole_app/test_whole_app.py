"""Key mode for a whole application: views without rules of their own, and those that have some."""

import asyncio
import functools

import flask_restx
import pytest
from flask import Blueprint, redirect, request
from flask.views import MethodView, View
from flask_login import LoginManager, UserMixin, fresh_login_required, login_user
from helpers.apps import WERKZEUG_REFUSES_EQUAL_RULES, CountingStore, GuardedApp, make_app, verdict
from helpers.servers.processes import all_at_once, until

from flask_idempotence import ConfigurationError, exempt, extension, idempotent, no_repeat_submit
from flask_idempotence.guards.placement import place_guards
from flask_idempotence.guards.wrapping import guards_of


class WholeApp(GuardedApp):
    """An application in whole-app mode; without another one, its view notes its runs."""

    def __init__(self, view=None, methods=("POST",), *, rule="/", **settings):
        settings = {"IDEMPOTENCE_KEY_ALL_ROUTES": True, **settings}
        super().__init__(store=CountingStore, settings=settings)
        self.add_url_rule, self.view_functions = self.app.add_url_rule, self.app.view_functions
        if rule:
            self.add_url_rule(rule, "view", view or self.counted, methods=methods)

    def counted(self, **arguments):
        self.runs += 1
        return f"run {self.runs}"

    def twice(self, path="/", **options):
        return self.verdicts({}, {}, path=path, **options)


REPLAYED = [200, "replay of 200"]
UNGUARDED = [200, 200]


def says_no():
    """Return a view that nobody has marked."""
    return lambda *_: ("no", 503)


class TestWhatIsGuarded:
    def test_a_plain_view_is(self):
        app = WholeApp(methods=["GET", "POST"])
        assert app.twice() == REPLAYED
        assert app.twice(method="GET") == UNGUARDED
        assert app.twice(key=None) == UNGUARDED
        assert verdict(app.send(json={})) == "key-reused"
        assert app.store.claims == 3

    def test_views_of_blueprints_that_come_after_the_extension_are(self):
        app = WholeApp(rule=None)
        inner, outer = Blueprint("inner", __name__), Blueprint("outer", __name__)
        inner.add_url_rule("/inner", "view", app.counted, methods=["POST"])
        outer.add_url_rule("/outer", "view", app.counted, methods=["POST"])
        outer.register_blueprint(inner)
        app.app.register_blueprint(outer, url_prefix="/a")
        app.app.register_blueprint(outer, url_prefix="/b", name="again")
        paths = [f"/{one}/{two}" for one in "ab" for two in ("inner", "outer")]
        assert [app.twice(path) for path in paths] == [REPLAYED] * 4
        assert app.runs == 4

    @pytest.mark.parametrize(
        ("settings", "guarded"),
        [({}, ["POST", "PATCH"]), ({"IDEMPOTENCE_KEY_METHODS": ["PUT"]}, ["PUT"])],
    )
    def test_the_setting_says_which_methods(self, settings, guarded):
        methods = ["POST", "PUT", "PATCH", "DELETE"]
        app = WholeApp(methods=methods, **settings)
        found = {method: app.twice(method=method) for method in methods}
        assert found == {name: REPLAYED if name in guarded else UNGUARDED for name in methods}

    def test_static_files_and_the_token_url_are_left_as_they_are(self):
        app = WholeApp(rule=None, IDEMPOTENCE_KEY_METHODS=["POST", "PUT", "PATCH", "DELETE"])
        app.add_url_rule("/read", "read", lambda: "read")
        app.add_url_rule("/write", "write", lambda: "written", methods=["POST"])
        before = dict(app.view_functions)
        assert app.send(path="/write").text == "written"
        names = {name for name, view in app.view_functions.items() if view is not before[name]}
        assert names == {"write"}
        assert {"static", "idempotence.token", "read"} <= before.keys()
        assert app.app.test_client().get("/token").json["token"]

    def test_a_view_by_several_rules_is_whatever_their_order(self):
        for methods in (["GET", "POST"], ["POST", "GET"]):
            app = WholeApp(rule=None)
            view = app.counted
            for method in methods:
                app.add_url_rule(f"/{method}", "view", view, methods=[method])
            assert app.twice("/POST") == REPLAYED
            assert app.twice("/GET", method="GET") == UNGUARDED

    def test_the_other_settings_are_the_rules(self):
        app = WholeApp(
            says_no(),
            ["POST", "PUT"],
            IDEMPOTENCE_KEY_REQUIRED=True,
            IDEMPOTENCE_KEY_ON_REPEAT="reject",
            IDEMPOTENCE_KEY_GUARANTEE="at-most-once",
        )
        assert app.twice() == [503, "key-repeated"]
        assert app.twice(key=None) == ["key-missing"] * 2
        assert app.twice(key=None, method="PUT") == [503, 503]


class Pay(MethodView):
    def post(self):
        return "posted"


class Dispatched(View):
    def dispatch_request(self):
        return "dispatched"


async def later():
    await asyncio.sleep(0)
    return "later"


KINDS = {
    "a class": Pay.as_view("view"),
    "a dispatching class": Dispatched.as_view("view"),
    "an async function": later,
    "a function without a name": functools.partial(str, "tea"),
    "a bound method": Dispatched().dispatch_request,
}


class TestKindsOfViews:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_view_of_any_kind_is(self, kind):
        app = WholeApp(KINDS[kind])
        assert app.twice() == REPLAYED

    def test_a_view_keeps_its_name_and_what_it_carries(self):
        def pay():
            """Pay once."""
            return "paid"

        app, pay.mark = WholeApp(rule=None), "kept"
        app.add_url_rule("/", view_func=pay, methods=["POST"])
        assert app.twice() == REPLAYED
        view = app.view_functions["pay"]
        assert (view.__name__, view.__doc__, view.mark) == ("pay", "Pay once.", "kept")

    def test_a_restx_api_is(self):
        app = WholeApp(rule=None)
        api = flask_restx.Api(app.app)

        @api.route("/orders")
        class Orders(flask_restx.Resource):
            @api.marshal_with(api.model("Order", {"id": flask_restx.fields.Integer}))
            def post(self):
                return {"id": 7, "secret": 1}, 201

        answers = [app.send(path="/orders") for _ in range(2)]
        assert [answer.json for answer in answers] == [{"id": 7}] * 2
        assert [verdict(answer) for answer in answers] == [201, "replay of 201"]
        assert app.app.test_client().get("/swagger.json").json["paths"].keys() == {"/orders"}


def passed(view):
    """Stand around a view as any decorator does, a login check for example."""

    @functools.wraps(view)
    def outer(*arguments, **named):
        return view(*arguments, **named)

    return outer


class Plain(MethodView):
    post = says_no()

    def patch(self):
        return "patched"


async def says_no_later(*_):
    await asyncio.sleep(0)
    return "no", 503


def orders(**members):
    return type("Orders", (Plain,), members).as_view("orders")


WAYS = {
    "a function": lambda mark: mark(says_no()),
    "a function, below another decorator": lambda mark: passed(mark(says_no())),
    "a method": lambda mark: orders(post=mark(says_no())),
    "an async method": lambda mark: orders(post=mark(says_no_later)),
    "a method, below another decorator": lambda mark: orders(post=passed(mark(says_no()))),
    "a method of a class with another decorator": lambda mark: orders(
        post=mark(says_no()), decorators=[passed]
    ),
    "the decorators of a class": lambda mark: orders(decorators=[mark]),
    "the decorators of a class, another after it": lambda mark: orders(decorators=[mark, passed]),
    "around a class": lambda mark: mark(orders()),
    "around a class, below another decorator": lambda mark: passed(mark(orders())),
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
        app = WholeApp(way(idempotent(guarantee="at-most-once", on_repeat="reject")))
        assert app.twice() == [503, "key-repeated"]
        assert app.store.claims == 2

    def test_rules_that_contradict_each_other_are_found(self, way):
        guard = idempotent(remember="success")
        app = WholeApp(way(guard), IDEMPOTENCE_KEY_GUARANTEE="at-most-once")
        with pytest.raises(ConfigurationError, match=r"'view'.*remember"):
            app.send()

    def test_a_view_behind_a_guard_of_another_mode_is_guarded_as_well(self):
        app = WholeApp(no_repeat_submit(60)(lambda: "done"))
        assert app.twice() == REPLAYED
        assert app.twice(key="other") == ["repeat-submit"] * 2


class TestExempt:
    def test_an_exempt_view_is_left_alone(self, way):
        app = WholeApp(way(exempt), IDEMPOTENCE_KEY_REQUIRED=True)
        assert app.twice() == [503, 503]
        assert app.twice(key=None) == [503, 503]
        assert app.store.claims == 0

    @pytest.mark.parametrize("base", [MethodView, flask_restx.Resource])
    def test_a_class_may_be_exempt_and_one_method_of_it(self, base):
        app = WholeApp(rule=None)
        api = flask_restx.Api(app.app, doc=False)
        members = {"post": lambda self: "posted", "patch": lambda self: "patched"}
        whole = exempt(type("Orders", (base,), members))
        method = type("Orders", (base,), {**members, "post": exempt(lambda self: "posted")})
        for name, orders in (("whole", whole), ("method", method)):
            if base is flask_restx.Resource:
                api.add_resource(orders, f"/{name}", endpoint=name)
            else:
                app.add_url_rule(f"/{name}", view_func=orders.as_view(name))
        assert [app.twice(f"/{name}") for name in ("whole", "method")] == [UNGUARDED] * 2
        assert app.twice("/whole", method="PATCH") == UNGUARDED
        assert app.twice("/method", method="PATCH") == REPLAYED

    def test_without_whole_app_mode_the_mark_changes_nothing(self):
        app = WholeApp(rule=None, IDEMPOTENCE_KEY_ALL_ROUTES=False)
        view = exempt(lambda: "done")
        app.add_url_rule("/guarded", "guarded", idempotent()(view), methods=["POST"])
        app.add_url_rule("/plain", "plain", lambda: "done", methods=["POST"])
        assert [app.twice("/guarded"), app.twice("/plain")] == [REPLAYED, UNGUARDED]

    def test_a_view_of_another_package_may_be_exempt_after_its_registration(self):
        app = WholeApp(rule=None, IDEMPOTENCE_KEY_REQUIRED=True)
        admin = Blueprint("admin", __name__, url_prefix="/admin")
        admin.add_url_rule("/", "jobs", lambda: "done", methods=["POST"])
        admin.add_url_rule("/class", view_func=Plain.as_view("plain"))
        app.app.register_blueprint(admin)
        for endpoint, view in app.view_functions.items():
            if endpoint.startswith("admin."):
                exempt(view)
        assert app.twice("/admin/", key=None) == UNGUARDED
        assert app.twice("/admin/class", key=None) == [503, 503]
        assert app.store.claims == 0

    def test_only_a_view_or_a_blueprint_may_be_exempt(self):
        for value in (make_app(), flask_restx.Namespace("orders"), "orders.create"):
            with pytest.raises(ConfigurationError, match=f"not a {type(value).__name__}"):
                exempt(value)

    def test_an_exempt_view_with_a_guard_of_its_own_keeps_it(self):
        app = WholeApp(exempt(idempotent()(lambda: "done")))
        assert app.twice() == REPLAYED
        assert app.store.claims == 2


def shared():
    """A view of a module, which several applications register."""
    return "shared"


shared_guarded = idempotent()(lambda: "guarded")
shared_blueprint = Blueprint("shared", __name__)
shared_blueprint.add_url_rule("/blueprint", "view", lambda: "printed", methods=["POST"])


class TestLoginChecks:
    """A user sends a request, is locked out, and sends it again."""

    def test_one_below_the_guard_does_not_run_before_a_replay(self):
        answers = ["done", ("locked out", 403)]
        app = WholeApp(lambda: answers.pop(0))
        assert app.twice() == REPLAYED
        assert len(answers) == 1

    def test_one_in_before_request_does(self):
        app, checks = WholeApp(), [None, ("locked out", 403)]
        app.app.before_request(lambda: checks.pop(0))
        assert app.twice() == [200, 403]


class TestApplications:
    @pytest.mark.parametrize("whole_first", [True, False])
    def test_a_view_of_two_applications_is_guarded_on_the_one_that_asks_for_it(self, whole_first):
        whole, plain = WholeApp(rule=None), WholeApp(rule=None, IDEMPOTENCE_KEY_ALL_ROUTES=False)
        for app in (whole, plain):
            app.add_url_rule("/", view_func=shared, methods=["POST"])
            app.add_url_rule("/guarded", "guarded", shared_guarded, methods=["POST"])
            app.app.register_blueprint(shared_blueprint)
        for app in (whole, plain) if whole_first else (plain, whole):
            expected = REPLAYED if app is whole else UNGUARDED
            assert [app.twice(path) for path in ("/", "/blueprint")] == [expected] * 2
            assert app.twice("/guarded") == REPLAYED
        late = WholeApp(rule=None)
        late.add_url_rule("/", view_func=shared, methods=["POST"])
        assert late.twice() == REPLAYED

    @pytest.mark.skipif(WERKZEUG_REFUSES_EQUAL_RULES, reason="Werkzeug refuses it itself")
    def test_a_fault_of_one_endpoint_leaves_the_others_guarded(self):
        app = WholeApp()
        app.add_url_rule("/token", "mine", lambda: "mine")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="answer GET /token"):
                app.app.test_client().get("/token")
        assert app.twice() == REPLAYED
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
        app = WholeApp(rule=None)
        for name in "abcd":
            app.add_url_rule(f"/{name}", name, app.counted, methods=["POST"])
        answers = all_at_once(
            [functools.partial(app.send, path=f"/{name}") for name in "abcd" * 2]
        )
        assert {verdict(answer) for answer in answers} <= {200, "replay of 200", "key-in-progress"}
        assert app.runs == 4
        assert app.store.claims == 8
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
        lambda: ("again", 401) if remedy == "401" else redirect("/login", 302)
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
