"""Key mode for a whole application: every view that has no rules of its own."""

import asyncio
import functools

import flask_restx
import flask_smorest
from flask import Blueprint
from flask.views import MethodView, View
from helpers.apps import make_app, verdict

from flask_idempotence import MemoryStore


class CountingStore(MemoryStore):
    """Counts how often it was asked for a claim."""

    def __init__(self):
        super().__init__()
        self._claims = []

    @property
    def claims(self):
        return len(self._claims)

    def claim(self, *arguments):
        self._claims.append(arguments)
        return super().claim(*arguments)


def whole_app(**settings):
    """Return an application in whole-app mode, with a list for the runs of its views."""
    app = make_app(store=CountingStore(), **{"IDEMPOTENCE_KEY_ALL_ROUTES": True, **settings})
    app.runs = []
    return app


def store_of(app):
    return app.extensions["idempotence"].store


def send(app, path="/", key="k", method="POST", **options):
    headers = {} if key is None else {"Idempotency-Key": key}
    return app.test_client().open(path, method=method, headers=headers, buffered=True, **options)


def verdicts(app, path="/", times=2, **options):
    return [verdict(send(app, path, **options)) for _ in range(times)]


REPLAYED = [200, "replay of 200"]
UNGUARDED = [200, 200]


def counted(runs, name="view"):
    """Return a view that notes its runs."""

    def view(**arguments):
        runs.append(name)
        return f"{name}: {len(runs)}"

    return view


class TestWhatIsGuarded:
    def test_no_view_is_unless_the_setting_says_so(self):
        app = whole_app(IDEMPOTENCE_KEY_ALL_ROUTES=False)
        app.add_url_rule("/", "view", counted(app.runs), methods=["POST"])
        assert verdicts(app) == UNGUARDED

    def test_a_plain_view_is(self):
        app = whole_app()
        app.add_url_rule("/", "view", counted(app.runs), methods=["GET", "POST"])
        assert verdicts(app) == REPLAYED
        assert verdicts(app, method="GET") == UNGUARDED
        assert verdicts(app, key=None) == UNGUARDED
        assert verdict(send(app, json={})) == "key-reused"
        assert store_of(app).claims == 3

    def test_views_of_blueprints_that_come_after_the_extension_are(self):
        app = whole_app()
        inner, outer = Blueprint("inner", __name__), Blueprint("outer", __name__)
        inner.add_url_rule("/inner", "view", counted(app.runs), methods=["POST"])
        outer.add_url_rule("/outer", "view", counted(app.runs), methods=["POST"])
        outer.register_blueprint(inner)
        app.register_blueprint(outer, url_prefix="/a")
        app.register_blueprint(outer, url_prefix="/b", name="again")
        paths = [f"/{one}/{two}" for one in "ab" for two in ("inner", "outer")]
        assert [verdicts(app, path) for path in paths] == [REPLAYED] * 4
        assert len(app.runs) == 4

    def test_the_setting_says_which_methods(self):
        app = whole_app(IDEMPOTENCE_KEY_METHODS=["PUT"])
        methods = ["POST", "PUT", "PATCH", "DELETE"]
        app.add_url_rule("/", "view", counted(app.runs), methods=methods)
        found = {method: verdicts(app, method=method) for method in methods}
        assert found == {method: REPLAYED if method == "PUT" else UNGUARDED for method in methods}
        default = whole_app()
        default.add_url_rule("/", "view", counted(default.runs), methods=methods)
        guarded = [name for name in methods if verdicts(default, method=name) == REPLAYED]
        assert guarded == ["POST", "PATCH"]

    def test_static_files_and_the_token_url_are_left_as_they_are(self):
        app = whole_app(IDEMPOTENCE_KEY_METHODS=["POST", "PUT", "PATCH", "DELETE"])
        app.add_url_rule("/read", "read", lambda: "read")
        app.add_url_rule("/write", "write", lambda: "written", methods=["POST"])
        before = dict(app.view_functions)
        assert send(app, "/write").text == "written"
        names = {name for name, view in app.view_functions.items() if view is not before[name]}
        assert names == {"write"}
        assert {"static", "idempotence.token", "read"} <= before.keys()
        assert app.test_client().get("/token").json["token"]

    def test_a_view_by_several_rules_is_whatever_their_order(self):
        for methods in (["GET", "POST"], ["POST", "GET"]):
            app = whole_app()
            view = counted(app.runs)
            for method in methods:
                app.add_url_rule(f"/{method}", "view", view, methods=[method])
            assert verdicts(app, "/POST") == REPLAYED
            assert verdicts(app, "/GET", method="GET") == UNGUARDED

    def test_the_other_settings_are_the_rules(self):
        app = whole_app(
            IDEMPOTENCE_KEY_REQUIRED=True,
            IDEMPOTENCE_KEY_ON_REPEAT="reject",
            IDEMPOTENCE_KEY_GUARANTEE="at-most-once",
        )
        app.add_url_rule("/", "view", lambda: ("no", 503), methods=["POST", "PUT"])
        assert verdicts(app) == [503, "key-repeated"]
        assert verdicts(app, key=None) == ["key-missing"] * 2
        assert verdicts(app, key=None, method="PUT") == [503, 503]

    def test_the_toggle_is_read_when_a_request_comes(self):
        app = whole_app()
        app.add_url_rule("/", "view", counted(app.runs), methods=["POST"])
        for toggle in ("IDEMPOTENCE_ENABLED", "IDEMPOTENCE_KEY_ENABLED"):
            app.config[toggle] = False
            assert verdicts(app) == UNGUARDED
            app.config[toggle] = True
        assert store_of(app).claims == 0
        assert verdicts(app) == REPLAYED


class TestKindsOfViews:
    def test_the_methods_of_a_class_are(self):
        class Pay(MethodView):
            def post(self):
                return "posted"

            def patch(self):
                return "patched"

            def get(self):
                return "got"

        app = whole_app()
        app.add_url_rule("/", view_func=Pay.as_view("pay"))
        assert [verdicts(app, method=name) for name in ("POST", "PATCH")] == [REPLAYED] * 2
        assert verdicts(app, method="GET") == UNGUARDED

    def test_a_dispatching_class_is(self):
        class Pay(View):
            methods = ("POST",)

            def dispatch_request(self):
                return "done"

        app = whole_app()
        app.add_url_rule("/", view_func=Pay.as_view("pay"))
        assert verdicts(app) == REPLAYED

    def test_an_async_view_is(self):
        app = whole_app()

        @app.post("/")
        async def pay():
            await asyncio.sleep(0)
            return {"run": app.runs.append(1) or len(app.runs)}

        answers = [send(app) for _ in range(3)]
        assert [answer.json for answer in answers] == [{"run": 1}] * 3

    def test_a_function_without_a_name_is(self):
        app = whole_app()
        view = functools.partial(lambda name: app.runs.append(name) or name, "tea")
        app.add_url_rule("/", "view", view, methods=["POST"])
        app.add_url_rule("/bound", "bound", Waiter().serve, methods=["POST"])
        assert [verdicts(app), verdicts(app, "/bound")] == [REPLAYED] * 2

    def test_a_view_keeps_its_name_and_what_it_carries(self):
        def pay():
            """Pay once."""
            return "paid"

        app, pay.mark = whole_app(), "kept"
        app.add_url_rule("/", view_func=pay, methods=["POST"])
        assert verdicts(app) == REPLAYED
        view = app.view_functions["pay"]
        assert (view.__name__, view.__doc__, view.mark) == ("pay", "Pay once.", "kept")

    def test_a_restx_api_is(self):
        app = whole_app()
        api = flask_restx.Api(app)

        @api.route("/orders")
        class Orders(flask_restx.Resource):
            @api.marshal_with(api.model("Order", {"id": flask_restx.fields.Integer}))
            def post(self):
                app.runs.append(1)
                return {"id": 7, "secret": 1}, 201

        answers = [send(app, "/orders") for _ in range(2)]
        assert [answer.json for answer in answers] == [{"id": 7}] * 2
        assert [verdict(answer) for answer in answers] == [201, "replay of 201"]
        assert app.test_client().get("/swagger.json").json["paths"].keys() == {"/orders"}

    def test_a_smorest_api_is(self):
        app = whole_app(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
        blueprint = flask_smorest.Blueprint("orders", __name__)

        @blueprint.route("/orders")
        class Orders(MethodView):
            @blueprint.response(201)
            def post(self):
                return {"run": app.runs.append(1) or len(app.runs)}

        flask_smorest.Api(app).register_blueprint(blueprint)
        answers = [send(app, "/orders") for _ in range(2)]
        assert [answer.json for answer in answers] == [{"run": 1}] * 2
        assert [verdict(answer) for answer in answers] == [201, "replay of 201"]


class Waiter:
    def serve(self):
        return "served"
