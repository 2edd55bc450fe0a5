"""`within=` where the application's schemas are not the default one."""

import pytest
from helpers.payment_database import PaymentApp, metadata, payments
from sqlalchemy import create_engine, event, func, select, text

from flask_idempotence import SqlStore

TRANSLATED = {"schema_translate_map": {None: "tenant"}}


@pytest.fixture
def tenant(url, tmp_path):
    """Make engines of a database that has a second schema, with a table of our name in it."""
    engines = []

    def make(**options):
        engine = create_engine(url, **options)
        engines.append(engine)
        if engine.dialect.name == "sqlite":
            attach = f"ATTACH '{tmp_path}/tenant.db' AS tenant"
            event.listen(engine, "connect", lambda made, _: made.execute(attach).close())
        return engine

    plain = make()
    SqlStore(plain).create_table()
    with plain.begin() as connection:
        if plain.dialect.name != "sqlite":
            connection.execute(text("DROP SCHEMA IF EXISTS tenant"))
            connection.execute(text("CREATE SCHEMA tenant"))
        metadata.create_all(connection.execution_options(**TRANSLATED))
        [create] = SqlStore(plain).ddl().split(";")[:1]
        connection.execute(text(create.replace("TABLE flask", "TABLE tenant.flask")))
    yield make
    for engine in engines:
        engine.dispose()


def site_on(engine):
    site = PaymentApp(str(engine.url), prepare=False, store=SqlStore(engine, deadline=5))
    site.engine.dispose()
    site.engine = engine
    site.session.configure(bind=engine)
    return site


def rows(engine, schema):
    with engine.connect() as connection:
        name = "flask_idempotence" if schema is None else f"{schema}.flask_idempotence"
        return list(connection.scalars(text(f"SELECT kind FROM {name}")))


def paid(engine):
    with engine.connect() as connection:
        return connection.scalar(
            select(func.count()).select_from(payments), execution_options=TRANSLATED
        )


@pytest.mark.parametrize("place", ["engine", "session"])
def test_a_translated_schema_is_the_views_and_not_the_stores(tenant, place):
    plain = tenant()
    engine = tenant(execution_options=TRANSLATED) if place == "engine" else plain
    site = site_on(engine)
    if place == "session":
        site.session.configure(bind=engine.execution_options(**TRANSLATED))
    assert site.post().status_code == 201
    assert site.post().headers["Idempotent-Replayed"] == "true"
    assert (site.runs, paid(plain)) == (1, 1)
    assert (rows(plain, None), rows(plain, "tenant")) == (["record"], [])
    site.store.close()
    site.close()


@pytest.fixture
def through(tenant, postgres):
    """Make an application whose transactions have a `search_path`."""
    made = []

    def make(path):
        engine = tenant()
        site = site_on(engine)
        made.append(site)
        event.listen(
            site.session,
            "after_begin",
            lambda _, __, connection: connection.execute(text(f"SET LOCAL search_path TO {path}")),
        )
        return site, engine

    yield make
    for site in made:
        site.store.close()
        site.close()


@pytest.mark.database
class TestASearchPath:
    @pytest.fixture
    def url(self, postgres):
        return postgres.new_database()

    @pytest.mark.parametrize("path", ["tenant, public", "tenant"])
    def test_that_leads_elsewhere_leads_the_completion_to_the_stores_table(self, through, path):
        site, engine = through(path)
        for _ in range(2):
            assert site.post().status_code == 201
        assert (site.runs, paid(engine)) == (1, 1)
        assert (rows(engine, None), rows(engine, "tenant")) == (["record"], [])

    def test_finds_a_table_that_was_moved_at_the_second_request(self, through):
        site, engine = through("tenant, public")
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE tenant.flask_idempotence"))
        assert site.post("one").status_code == 201
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS another"))
            connection.execute(text("ALTER TABLE flask_idempotence SET SCHEMA another"))
            connection.execute(text("ALTER ROLE CURRENT_USER SET search_path TO public, another"))
        site.store.close()
        try:
            assert site.post("two").status_code == 503
            assert site.post("three").status_code == 201
        finally:
            with engine.begin() as connection:
                connection.execute(text("ALTER ROLE CURRENT_USER RESET search_path"))
        assert paid(engine) == 2
