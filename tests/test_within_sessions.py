"""Sessions of every kind within a guard: what they hold before it, in it and after it."""

import sqlite3
import subprocess
import sys

import pytest
from flask import Flask, jsonify
from flask.views import MethodView
from flask_sqlalchemy import SQLAlchemy
from ledgers import Books, metadata, payments
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    LeaseLost,
    MemoryStore,
    Running,
    SqlStore,
    StoreUnavailable,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

KEY = {"Idempotency-Key": "one"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.database)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/books.db"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
def books(url):
    made = []

    def make(*args, **kwargs):
        made.append(Books(kwargs.pop("url", url), *args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __table__ = payments.to_metadata(Base.metadata)


def pay(session, amount=3):
    return session.execute(insert(payments).values(amount=amount))


def told(site):
    """Have the site answer a ConfigurationError by its text."""
    site.app.register_error_handler(ConfigurationError, lambda error: (str(error), 500))
    return site


def is_clean(session):
    """Whether a session is as if no guard had ever been there."""
    from flask_idempotence import transactions  # noqa: PLC0415

    watched = [("before_commit", "_refuse_commit"), ("after_soft_rollback", "_refuse_rollback")]
    return (
        not session.in_transaction()
        and not session.info
        and not any(
            event.contains(session, name, getattr(transactions, function))
            for name, function in watched
        )
    )


def swallow(session):
    session.add(Payment(id=1))  # without its amount
    try:
        session.flush()
    except IntegrityError:
        return "done"


def lose():
    hold = current_guard._hold
    hold.engine.store.remove(hold.key)
    hold.engine.store.claim(hold.key, b"r" * 16, b"f" * 16, 30, 0)


def released(session):
    with session.begin_nested():
        pay(session)


WAYS_OUT = {
    "a success": (lambda session: (str(pay(session)), 201), 201, 1),
    "a failed result": (lambda session: (str(pay(session)), 422), 422, 0),
    "a transient one": (lambda session: (str(pay(session)), 503), 503, 0),
    "an exception": (lambda session: pay(session) and {}["none"], 500, 0),
    "nothing": (lambda session: pay(session) and None, 500, 0),
    "a commit": (lambda session: (pay(session), session.commit()), 500, 0),
    "a rollback": (lambda session: (pay(session), session.rollback()), 500, 0),
    "a close": (lambda session: (pay(session), session.close(), "done")[2], 500, 0),
    "a close and more": (
        lambda session: (session.close(), str(pay(session)))[1],
        500,
        0,
    ),
    "a block of its own": (lambda session: session.begin().__enter__(), 500, 0),
    "a broken flush": (lambda session: session.add(Payment(id=1)) or "done", 500, 0),
    "a swallowed flush": (swallow, 500, 0),
    "a lost claim": (lambda session: (lose(), str(pay(session)))[1], 409, 0),
    "a commit within a savepoint": (
        lambda session: (session.begin_nested(), pay(session), session.commit()),
        500,
        0,
    ),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_session_that_lives_on_is_left_clean_on_every_way_out(books, way):
    act, status, count = WAYS_OUT[way]
    site = books(key="X-Key")  # this guard's view is not asked
    with Session(site.engine) as session:
        app = Flask("beside")
        app.config["SECRET_KEY"] = "a secret for the tests"
        Idempotence(app, store=site.store)
        app.add_url_rule(
            "/",
            view_func=idempotent(within=lambda: session)(lambda: act(session)),
            methods=["POST"],
            endpoint="act",
        )
        app.add_url_rule(
            "/next",
            view_func=idempotent(within=session)(lambda: str(pay(session, 8))),
            methods=["POST"],
            endpoint="next",
        )
        assert app.test_client().post("/", headers=KEY).status_code == status
        assert is_clean(session)
        assert site.amounts() == [3] * count
        assert app.test_client().post("/next", headers=KEY).status_code == 200
        assert is_clean(session)
        assert site.amounts() == [*[3] * count, 8]


@pytest.mark.parametrize(("how", "did"), [("commit", "committed"), ("rollback", "rolled it back")])
def test_the_line_that_ends_the_transaction_is_the_one_that_raises(books, how, did):
    told = []

    def view(session):
        pay(session)
        with pytest.raises(ConfigurationError, match=did) as raised:
            getattr(session, how)()
        told.append(raised.value)
        return "no", 422

    site = books(view)
    assert site.post().status_code == 422
    assert told
    assert site.count() == 0


def test_an_exception_that_propagates_leaves_the_session_clean(books):
    def view(session):
        pay(session)
        raise KeyError("mine")

    site = books(view, settings={"TESTING": True, "PROPAGATE_EXCEPTIONS": True})
    with site.app.app_context(), pytest.raises(KeyError, match="mine"):
        site.post()
    assert site.count() == 0
    assert list(site.store.scan("")) == []


def test_flask_sqlalchemy_s_session_is_committed_with_the_answer(url):
    db = SQLAlchemy(model_class=type("Base", (DeclarativeBase,), {}))

    class Order(db.Model):
        id = db.Column(db.Integer, primary_key=True)
        amount = db.Column(db.Integer, nullable=False)

    app = Flask("shop")
    app.config.update(
        SECRET_KEY="a secret", SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCE_STORAGE_URI=url
    )
    db.init_app(app)
    Idempotence(app)
    seen = []

    @app.before_request
    def look():
        seen.append(db.session.get(Order, 1))  # as a login check does

    @app.post("/orders/<int:status>")
    @idempotent(required=True, within=db.session)
    def order(status):
        before = seen[-1] and seen[-1].amount
        db.session.add(Order(amount=5))
        return jsonify(before=before), status

    @app.post("/async")
    @idempotent(required=True, within=db.session)
    async def later():
        db.session.add(Order(amount=6))
        return "ok"

    with app.app_context():
        db.create_all()
        app.extensions["idempotence"].store.create_table()
    client = app.test_client()
    answers = [
        client.post(f"/orders/{status}", headers=KEY | {"Idempotency-Key": f"{number}"})
        for number, status in enumerate([201, 201, 422, 500])
    ]
    assert [each.status_code for each in answers] == [201, 201, 422, 500]
    assert [each.json["before"] for each in answers] == [None, 5, 5, 5]
    assert client.post("/async", headers=KEY).text == "ok"
    assert client.post("/async", headers=KEY).headers["Idempotent-Replayed"] == "true"
    with app.app_context():
        assert list(db.session.scalars(select(Order.amount))) == [5, 5, 6]
        db.session.remove()  # its connection goes back before the pool is emptied
        db.engine.dispose()
    app.extensions["idempotence"].store.close()


def test_sessions_of_other_databases_are_let_alone(tmp_path):
    import flask_idempotence.written  # noqa: F401, PLC0415 - its listeners are about all sessions

    class Sparse(sqlite3.Connection):
        def __getattribute__(self, name):
            if name == "total_changes":
                raise AttributeError(name)
            return super().__getattribute__(name)

    engine = create_engine(f"sqlite:///{tmp_path}/a.db", connect_args={"factory": Sparse})
    metadata.create_all(engine)
    with Session(engine) as session:
        pay(session)
        session.commit()
        assert not session.info
    engine.dispose()


def test_an_async_view_with_a_session_of_each_thread_is_refused(books):
    site = books()

    async def view():
        return "never"

    with pytest.raises(ConfigurationError, match="scopefunc"):
        idempotent(within=site.session)(view)
    idempotent(within=scoped_session(sessionmaker(site.engine), scopefunc=lambda: 1))(view)


def test_the_methods_of_a_view_class_may_stand_within(books):
    site = books()

    class Payments(MethodView):
        @idempotent(within=site.session)
        def post(self):
            return str(pay(site.session)), 201

    class Others(MethodView):
        decorators = (idempotent(within=site.session),)

        def put(self):
            return str(pay(site.session)), 422

    site.app.add_url_rule("/class", view_func=Payments.as_view("class"))
    site.app.add_url_rule("/others", view_func=Others.as_view("others"))
    client = site.app.test_client()
    assert [client.post("/class", headers=KEY).status_code for _ in range(2)] == [201, 201]
    assert client.put("/others", headers=KEY).status_code == 422
    assert site.amounts() == [3]


def test_a_session_that_does_not_begin_by_itself_is_begun(books):
    site = books(sessions={"autobegin": False})
    assert site.post(amount=4).status_code == 201
    assert site.amounts() == [4]


def test_a_guard_that_cannot_begin_gives_its_claim_up(books, monkeypatch):
    site = books()
    monkeypatch.setattr(Session, "begin", lambda self: {}["cannot"])
    assert site.post().status_code == 500
    assert list(site.store.scan("")) == []
    monkeypatch.undo()
    assert site.post().status_code == 201


@pytest.mark.parametrize("options", [{}, {"isolation_level": "AUTOCOMMIT"}])
@pytest.mark.parametrize("savepoint", [False, True])
def test_what_is_rolled_back_leaves_nothing_however_the_engine_begins(books, options, savepoint):
    def view(session):
        if savepoint:
            with session.begin_nested():
                pay(session)
            session.begin_nested().rollback()
        else:
            pay(session)
        return "no", 422

    site = books(view, engine=options)
    assert site.post().status_code == 422
    assert site.count() == 0
    site._view = lambda session: (view(session), "yes")[1]
    assert site.post("two").status_code == 200
    assert site.count() == 1


def test_an_engine_that_begins_by_an_event_is_taken_as_it_is(tmp_path):
    site = Books(f"sqlite:///{tmp_path}/books.db")
    event.listen(site.engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
    event.listen(site.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    site.engine.dispose()
    site.before = lambda: site.session.execute(select(payments)).all()
    assert site.post(amount=4).status_code == 201  # the first, too: it has only read
    site.before = lambda: pay(site.session)
    assert site.post("two").status_code == 500
    assert site.amounts() == [4]
    site.close()


def test_connections_that_commit_by_themselves_are_refused(tmp_path):
    class Eager(sqlite3.Connection):
        autocommit = True

    url = f"sqlite:///{tmp_path}/books.db"
    Books(url).close()
    site = told(Books(url, prepare=False))
    eager = create_engine(url, connect_args={"factory": Eager})
    site.session.configure(bind=eager)
    assert "autocommit" in site.post().text
    assert list(site.store.scan("")) == []
    assert site.runs == 0
    site.close()
    eager.dispose()


WRITES_BEFORE = {
    "an object": lambda session: session.add(Payment(amount=1)),
    "a flushed object": lambda session: (session.add(Payment(amount=1)), session.flush()),
    "a statement": pay,
    "a text": lambda session: session.execute(text("INSERT INTO payments (amount) VALUES (1)")),
    "a savepoint": lambda session: [pay(session) for _ in [session.begin_nested()]],
    "a savepoint released": released,
    "something, then a savepoint": lambda session: (pay(session), session.begin_nested()),
}


@pytest.mark.parametrize("what", WRITES_BEFORE)
def test_a_session_already_written_to_is_refused(books, what):
    site = told(books())
    session = site.session
    for warm in (True, False):
        site.before = None if warm else lambda: WRITES_BEFORE[what](session())
        answer = site.post(key=str(warm))
        assert answer.status_code == (201 if warm else 500)
    assert "before its guard begins" in answer.text
    assert site.runs == 1
    assert len(list(site.store.scan(""))) == 1


def test_the_first_request_of_all_is_looked_at_as_well(books):
    site = told(books())
    site.before = lambda: pay(site.session)
    assert "before its guard begins" in site.post().text
    assert site.runs == 0


def test_a_release_of_the_registry_s_session_in_the_view_is_told(books):
    site = told(books(lambda session: (pay(session), session.remove(), session() and "done")[2]))
    assert "must not have ended" in site.post().text
    assert site.count() == 0
    assert list(site.store.scan("")) == []


@pytest.mark.parametrize("key", ["one", None])
def test_a_view_that_goes_on_after_a_refusal_of_postgresql_is_told(postgres, key):
    def view(session):
        pay(session)
        try:
            session.execute(text("INSERT INTO payments (amount) VALUES (NULL)"))
        except IntegrityError:
            return "done", 201

    site = told(Books(postgres.new_database(), view))
    answer = site.post(key)
    assert answer.status_code == 500
    assert "had refused" in answer.text
    assert site.count() == 0
    assert list(site.store.scan("")) == []
    site.close()


@pytest.fixture
def two(books, tmp_path):
    """A site whose sessions write payments to one database, and orders to another."""
    orders = payments.to_metadata(type(metadata)(), name="orders")
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    orders.create(other)
    site = told(books(sessions={"binds": {orders: other}}))
    site.orders, site.other = orders, other
    yield site
    site.session.remove()
    other.dispose()


def orders_of(site):
    with site.other.connect() as connection:
        return connection.scalar(select(func.count()).select_from(site.orders))


def test_reading_from_another_database_is_no_matter(two):
    two._view = lambda session: (
        session.scalars(select(two.orders.c.id)).all(),
        str(pay(session)),
    )[1]
    two.before = lambda: two.session.scalars(select(two.orders.c.id)).all()
    assert two.post().status_code == 200
    assert two.amounts() == [3]


def test_writing_to_another_database_is_refused_and_rolled_back(two):
    def view(session):
        pay(session)
        session.execute(insert(two.orders).values(amount=1))
        return "done"

    two._view = view
    assert "another database" in two.post().text
    assert (two.count(), orders_of(two), list(two.store.scan(""))) == (0, 0, [])


def test_having_written_to_another_database_before_is_refused(two):
    two.before = lambda: two.session.execute(insert(two.orders).values(amount=1))
    assert "before its guard begins" in two.post().text
    assert two.runs == 0


def test_keep_does_not_keep_what_an_exception_has_rolled_back(books):
    def view(session):
        pay(session)
        current_guard.keep()
        raise KeyError

    site = books(view)
    assert [site.post().status_code for _ in range(2)] == [500, 500]
    assert (site.runs, site.count()) == (2, 0)


def test_guards_of_other_kinds_stand_outside_and_inside(books):
    site = books()
    app, session = site.app, site.session

    @app.post("/nested")
    @no_repeat_submit(interval=30)
    @one_time_token(restore_on_failure=True)
    @idempotent(within=session)
    def nested():
        return str(pay(session)), 422 if len(site.amounts()) < 1 and not nested_runs else 201

    nested_runs = []
    client = app.test_client()

    def send(key):
        token = client.get("/token").json["token"]
        headers = {"Idempotency-Key": key, "Idempotence-Token": token}
        return client.post("/nested", headers=headers)

    assert send("one").status_code == 422
    assert site.count() == 0
    nested_runs.append(1)
    assert send("two").status_code == 201
    assert send("two").json["type"].endswith("repeat-submit")
    assert site.amounts() == [3]


def test_two_guards_within_one_session_are_refused(books):
    site = told(books())
    inner = site.idempotence

    def view(session):
        with inner.once("inner", 1, within=session):
            pay(session)

    site._view = view
    assert "cannot stand around one another" in site.post().text
    assert (site.count(), list(site.store.scan(""))) == (0, [])


def test_a_guarded_view_within_another_session_commits_it(books):
    site = books()
    with Session(site.engine) as other:

        @idempotent(within=other)
        def inner():
            return str(pay(other, 9))

        def view(session):
            session.execute(select(payments)).all()
            return inner()

        site._view = view
        assert site.post().status_code == 200
    assert site.amounts() == [9]


def test_a_guarded_view_within_the_same_session_is_one_transaction(books):
    site = books()

    @idempotent(within=site.session)
    def inner():
        return str(pay(site.session, 9))

    site._view = lambda session: (inner(), 422)
    assert site.post().status_code == 422
    assert site.count() == 0


def test_a_pool_of_one_connection_is_enough(books):
    site = books(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 2})
    site.before = lambda: site.session.execute(select(payments)).all()
    assert [site.post(str(key), amount=key).status_code for key in range(5)] == [201] * 5
    assert site.amounts() == list(range(5))


@pytest.mark.parametrize("store", ["memory", "other"])
def test_a_store_elsewhere_is_refused_before_anything_is_claimed(books, tmp_path, store):
    site = books()
    elsewhere = SqlStore(create_engine(f"sqlite:///{tmp_path}/elsewhere.db"))
    elsewhere.create_table()
    app = site.app
    app.extensions["idempotence"].engine.store = elsewhere if store == "other" else MemoryStore()
    assert "in the session's own database" in told(site).post().text
    assert list(elsewhere.scan("")) == []
    elsewhere.close()


def test_without_sqlalchemy_the_extra_is_named():
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from flask_idempotence import ConfigurationError, idempotent, Idempotence\n"
        "for use in (lambda: idempotent(within=print),\n"
        "            lambda: Idempotence().once('a', 1, within=print)):\n"
        "    try: use()\n"
        "    except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count('pip install "flask-idempotence[sql]"') == 2


def test_hooks_and_handlers_that_raise_change_nothing_of_what_is_committed(books):
    site = books()
    raising = []

    def raise_where(name):
        if name in raising:
            raise ArithmeticError(name)

    site.app.after_request(lambda response: raise_where("after") or response)
    site.app.teardown_request(lambda _: raise_where("teardown"))
    site.app.register_error_handler(KeyError, lambda _: raise_where("handler") or ("no", 200))
    raising.append("after")
    assert site.post("one", amount=1).status_code == 500
    raising[:] = ["teardown"]
    with pytest.raises(ArithmeticError):
        site.post("two", amount=2)
    raising[:] = ["handler"]
    site._view = lambda session: pay(session) and {}["none"]
    assert site.post("three").status_code == 500
    raising.clear()
    site._view = None
    assert [site.post(key, amount=n).status_code for n, key in enumerate(["one", "two"], 1)] == [
        201,
        201,
    ]
    assert site.amounts() == [1, 2]
    assert site.post("three", amount=3).headers.get("Idempotent-Replayed") is None
    assert site.amounts() == [1, 2, 3]


def test_a_handler_that_raises_on_what_cannot_be_committed_is_500_and_free(books):
    def view(session):
        session.add(Payment(id=1))
        return "paid"

    def handler(error):
        raise ArithmeticError

    site = books(view, handlers={IntegrityError: handler})
    assert [site.post().status_code for _ in range(2)] == [500, 500]
    assert (site.runs, site.count(), list(site.store.scan(""))) == (2, 0, [])


def test_a_safe_method_of_the_view_passes_without_a_transaction(books):
    site = books()

    @site.app.route("/form", methods=["GET", "POST"])
    @idempotent(within=site.session)
    def form():
        return str(pay(site.session))

    client = site.app.test_client()
    for method in (client.get, client.head):
        assert method("/form", headers=KEY).status_code == 200
    assert (site.count(), list(site.store.scan(""))) == (0, [])


def test_whole_app_mode_leaves_a_view_within_a_session_to_its_own_guard(books):
    site = books(settings={"IDEMPOTENCE_KEY_ALL_ROUTES": True})
    bare = []
    site.app.add_url_rule("/bare", "bare", lambda: bare.append(1) or "ok", methods=["POST"])
    assert [site.post(amount=4).status_code for _ in range(2)] == [201, 201]
    assert site.amounts() == [4]
    client = site.app.test_client()
    assert [client.post("/bare", headers=KEY).text for _ in range(2)] == ["ok", "ok"]
    assert bare == [1]


@pytest.mark.parametrize(
    ("remember", "status", "runs", "count"),
    [
        ("final", 201, 1, 1),
        ("success", 201, 1, 1),
        ("success", 404, 2, 0),
        ("final", 404, 1, 0),
        (lambda response: False, 201, 2, 0),
        (lambda response: True, 201, 1, 1),
        (lambda response: True, 503, 1, 0),
    ],
)
def test_what_is_remembered_decides_with_the_result_what_is_committed(
    books, remember, status, runs, count
):
    site = books(lambda session: (str(pay(session)), status), remember=remember)
    assert [site.post().status_code for _ in range(2)] == [status, status]
    assert (site.runs, site.count()) == (runs, count)


# once(within=…)


def once(site, id_=1, **more):
    return site.idempotence.once("jobs", id_, within=site.session, **more)


def in_block(site, *steps):
    """Do some steps, functions of the session, in a block; an exception is raised."""
    with once(site) as operation:
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            operation.result = step(site.session) and None


@pytest.mark.parametrize("in_request", [False, True])
def test_a_block_is_committed_with_its_result(books, in_request):
    site = books()
    around = site.app.test_request_context if in_request else site.app.app_context
    results = []
    for _ in range(2):
        with around():
            with once(site) as operation:
                if operation.first:
                    pay(site.session)
                    operation.result = ["paid"]
            results.append((operation.first, operation.result))
            assert is_clean(site.session())
    assert results == [(True, ["paid"]), (False, ["paid"])]
    assert site.amounts() == [3]


@pytest.mark.parametrize("by_hand", [[], [lambda session: current_guard.keep()]])
def test_an_exception_rolls_a_block_back_and_lets_it_come_again(books, by_hand):
    site = books()
    with site.app.app_context():
        with pytest.raises(KeyError):
            in_block(site, pay, *by_hand, KeyError())
        assert is_clean(site.session())
        with once(site) as again:
            assert again.first
            pay(site.session, 8)
    assert site.amounts() == [8]


def test_a_result_that_is_none_of_json_is_rolled_back(books):
    site = books()
    with site.app.app_context():
        work = site.idempotence.once("jobs", 1, within=site.session)(
            lambda: pay(site.session) and object()
        )
        with pytest.raises(TypeError):
            work()
        assert is_clean(site.session())
        with once(site) as again:
            assert again.first
    assert site.count() == 0


def test_a_block_that_has_lost_its_claim_is_rolled_back(books):
    site = books()
    with site.app.app_context():
        with pytest.raises(LeaseLost):
            in_block(site, lambda session: lose(), pay)
        assert is_clean(site.session())
        with pytest.raises(Running), once(site):
            raise AssertionError
        assert is_clean(site.session())
    assert site.count() == 0


def test_a_block_that_is_ended_from_outside_is_rolled_back(books):
    site = books()
    with site.app.app_context():
        with pytest.raises(SystemExit):
            in_block(site, pay, SystemExit())
        assert is_clean(site.session())
        with pytest.raises(Running), once(site):  # until the lease ends
            raise AssertionError
    assert site.count() == 0


def test_a_decorated_function_is_committed_once_for_each_id(books):
    site = books()

    @site.idempotence.once("jobs", key=lambda number: number, within=site.session)
    def work(number):
        pay(site.session, number)
        return {"number": number}

    with site.app.app_context():
        assert [work(number)["number"] for number in (5, 5, 6)] == [5, 5, 6]
    assert site.amounts() == [5, 6]


def test_a_block_whose_flush_fails_raises_that_and_comes_again(books):
    site = books()
    with site.app.app_context():
        with pytest.raises(IntegrityError):
            in_block(site, lambda session: session.add(Payment(id=1)))
        assert is_clean(site.session())
        with once(site) as again:
            assert again.first
            pay(site.session)
    assert site.amounts() == [3]


def test_switched_off_a_block_is_committed_and_rolled_back_all_the_same(books):
    site = books(settings={"IDEMPOTENCE_ENABLED": False})
    with site.app.app_context():
        for _ in range(2):
            with once(site):
                pay(site.session)
        with pytest.raises(KeyError):
            in_block(site, pay, KeyError())
    assert site.amounts() == [3, 3]
    assert list(site.store.scan("")) == []


def test_a_block_whose_database_is_locked_raises_what_the_policy_says(tmp_path):
    site = Books(f"sqlite:///{tmp_path}/books.db", engine={"connect_args": {"timeout": 0.1}})
    rival = sqlite3.connect(tmp_path / "books.db", isolation_level=None)
    with site.app.app_context():
        with pytest.raises(StoreUnavailable):
            in_block(
                site,
                lambda session: session.add(Payment(amount=1)),
                lambda session: rival.execute("BEGIN IMMEDIATE"),
                lambda session: setattr(site.store._link, "seconds", 0.1),  # nor may the release
            )
        assert is_clean(site.session())
    rival.close()
    assert site.count() == 0
    site.close()


def test_a_view_s_own_database_error_is_the_application_s(tmp_path):
    site = Books(f"sqlite:///{tmp_path}/books.db", engine={"connect_args": {"timeout": 0.1}})
    seen = []
    site.app.register_error_handler(OperationalError, lambda e: (seen.append(e) or "busy", 503))
    rival = sqlite3.connect(tmp_path / "books.db", isolation_level=None)

    def view(session):
        rival.execute("BEGIN IMMEDIATE")
        try:
            return str(pay(session))
        finally:
            rival.execute("ROLLBACK")

    site._view = view
    assert site.post().status_code == 503
    assert seen
    assert (site.count(), list(site.store.scan(""))) == (0, [])
    rival.close()
    site.close()
