"""Extensions of SQLAlchemy that listen to sessions, in a view with `within=`."""

from uuid import uuid4

import pytest
import sqlalchemy_continuum
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Column, Integer, String, select
from sqlalchemy.orm import configure_mappers, declarative_base
from sqlalchemy_utils import UUIDType, observes

from flask_idempotence import ConfigurationError, Idempotence, SqlStore, idempotent
from flask_idempotence.stores.sql import metadata


@pytest.fixture(scope="module")
def article():
    """A versioned model. Continuum listens to every session of the process."""
    sqlalchemy_continuum.make_versioned(user_cls=None)
    base = declarative_base()

    class Article(base):
        __tablename__ = "articles"
        __versioned__ = {}  # noqa: RUF012 - as Continuum documents it
        id = Column(Integer, primary_key=True)
        name = Column(String(20))
        code = Column(UUIDType)
        shouted = Column(String(20))

        @observes("name")
        def shout(self, name):
            self.shouted = name.upper()

    configure_mappers()
    yield Article
    sqlalchemy_continuum.remove_versioning()


@pytest.fixture
def shop(tmp_path, article):
    """An application whose async view names an article, and answers the status it is sent."""
    app = Flask("shop")
    app.config.update(
        SECRET_KEY="a secret for the tests",
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db",
        SQLALCHEMY_BINDS={"other": f"sqlite:///{tmp_path}/other.db"},
    )
    db = SQLAlchemy(app)

    class Order(db.Model):
        __bind_key__ = "other"
        id = db.Column(db.Integer, primary_key=True)

    with app.app_context():
        article.metadata.create_all(db.engine)
        db.create_all()
        app.store = SqlStore(db.engine, deadline=5)
        app.store.create_table()
    Idempotence(app, store=app.store)
    app.db, app.order = db, Order

    @app.post("/articles")
    @idempotent(within=db.session)
    async def name():
        sent = request.args
        found = db.session.get(article, 1) or article(id=1, code=uuid4())
        db.session.add(found)
        found.name = sent["name"]
        if "order" in sent:
            db.session.add(Order())
        if "read" in sent:
            db.session.scalars(select(Order)).all()
        return {"name": found.name}, int(sent.get("status", 201))

    app.register_error_handler(ConfigurationError, lambda error: (str(error), 500))
    return app


def post(shop, key, **sent):
    headers = {"Idempotency-Key": key}
    return shop.test_client().post("/articles", query_string=sent, headers=headers)


def test_versions_of_continuum_and_observers_of_utils_commit_with_the_view(shop, article):
    """Every warning is an error: Continuum has a session of its own on the connection."""
    answers = [
        post(shop, "1", name="a"),
        post(shop, "1", name="a"),
        post(shop, "2", name="b"),
        post(shop, "3", name="c", status=422),
        post(shop, "4", name="d"),
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 422, 201]
    version = sqlalchemy_continuum.version_class(article)
    with shop.app_context():
        rows = shop.db.session.execute(
            select(version.name, version.shouted).order_by(version.transaction_id)
        )
        assert [tuple(row) for row in rows] == [("a", "A"), ("b", "B"), ("d", "D")]


def test_a_model_of_another_bind_may_be_read_and_not_written(shop):
    assert post(shop, "1", name="a", read=1).status_code == 201
    answer = post(shop, "2", name="b", order=1)
    assert (answer.status_code, "another database" in answer.text) == (500, True)
    assert post(shop, "2", name="b").status_code == 201
    with shop.app_context():
        assert shop.db.session.scalars(select(shop.order)).all() == []


def test_autogenerate_of_alembic_finds_the_table_as_the_store_has_made_it(shop):
    with shop.app_context(), shop.db.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"include_name": lambda name, kind, _: kind != "table" or "idempotence" in name},
        )
        assert compare_metadata(context, metadata) == []
