"""The compared libraries: requirements, and set-up here."""

from dataclasses import dataclass

from . import ROOT

HEADER = "Idempotency-Key"


@dataclass(frozen=True)
class Peer:
    """One library, set up in one way."""

    name: str
    title: str
    package: str
    """The name of its distribution, whose version is printed."""
    requirements: tuple[str, ...]
    service: str
    """The module in `services/` that offers the payment with it."""
    settings: str
    """Its set-up here, as far as it is not the default."""
    told: tuple[str, ...] = ()
    """Further distributions whose version matters."""
    asgi: bool = False
    header: str = HEADER
    variant: str = ""
    postgres: bool = False
    cookies: bool = True
    """Whether it guards a response, which may set a cookie."""

    @property
    def environment(self) -> str:
        """The directory of its environment, which variants share."""
        return self.package.lower()


_OURS = ("gunicorn", f"-e {ROOT}")
_POWERTOOLS = ("aws-lambda-powertools[aws-sdk,redis]", "flask", "gunicorn")

PEERS = (
    Peer(
        name="ours",
        title="Flask-Idempotence",
        package="flask-idempotence",
        requirements=_OURS,
        service="ours",
        settings="`@idempotent(required=True)`, Redis.",
        told=("flask", "redis"),
    ),
    Peer(
        name="ours-at-most-once",
        title="Flask-Idempotence, at most once",
        package="flask-idempotence",
        requirements=_OURS,
        service="ours",
        settings='`@idempotent(required=True, guarantee="at-most-once")`, Redis.',
        told=("flask", "redis"),
        variant="at-most-once",
    ),
    Peer(
        name="powertools",
        title="Powertools",
        package="aws-lambda-powertools",
        requirements=_POWERTOOLS,
        service="powertools",
        settings=(
            "`idempotent_function` around what the Flask view calls, "
            '`event_key_jmespath=\'["user", "key"]\'`, a day of retention, its Redis persistence, '
            "a Lambda context that reports 30 s of remaining time in the timed runs; its two "
            "errors mapped to 409 and 422."
        ),
        told=("flask", "redis"),
        cookies=False,
    ),
    Peer(
        name="powertools-validating",
        title="Powertools, validating",
        package="aws-lambda-powertools",
        requirements=_POWERTOOLS,
        service="powertools",
        settings='the same, and `payload_validation_jmespath="body"`.',
        told=("flask", "redis"),
        variant="validating",
        cookies=False,
    ),
    Peer(
        name="flask-idempotent",
        title="Flask-Idempotent",
        package="flask-idempotent",
        # Flask 2.3 and Jinja 3.1 removed names that it imports; it needs six without requiring it.
        requirements=(
            "Flask-Idempotent",
            "six",
            "flask<2.3",
            "werkzeug<3",
            "jinja2<3.1",
            "gunicorn",
        ),
        service="flask_idempotent_",
        settings=(
            "`Idempotent(app)`, key in `X-Idempotent-Key`; `IDEMPOTENT_TIMEOUT` 10 s rather than "
            "60, so that the tests end. It needs a Flask before 2.3, a Jinja before 3.1, and "
            "`six`, which it does not declare."
        ),
        told=("flask", "jinja2", "redis"),
        header="X-Idempotent-Key",
    ),
    Peer(
        name="idemkit",
        title="idemkit",
        package="idemkit",
        requirements=("idemkit[redis]", "flask", "gunicorn"),
        service="idemkit_",
        settings=(
            "`WSGIIdempotencyMiddleware` with `RedisBackend`, `scope` names the user, "
            "`require_key_for_mutations=True`. Under Werkzeug's own server its requests hang, so "
            "it runs under Gunicorn, as all here that have no ASGI."
        ),
        told=("flask", "redis"),
    ),
    Peer(
        name="django-idempotency-key",
        title="django-idempotency-key",
        package="django-idempotency-key",
        requirements=("django-idempotency-key", "django<5", "gunicorn"),
        service="django_",
        settings=(
            "`ExemptIdempotencyKeyMiddleware` and `@idempotency_key` above `@api_view`, "
            "`CacheKeyStorage` on django-redis, `MultiProcessRedisLock` with a `TIMEOUT` of 1 s; "
            "a repeat is answered with 409 and the first body, which is its default "
            "(`CONFLICT_STATUS_CODE`)."
        ),
        told=("django", "djangorestframework", "django-redis", "redis"),
    ),
    Peer(
        name="asgi-idempotency-header",
        title="asgi-idempotency-header",
        package="asgi-idempotency-header",
        requirements=("asgi-idempotency-header[fastapi,redis]", "uvicorn"),
        service="asgi_header",
        settings="`IdempotencyHeaderMiddleware` with `RedisBackend`, all else its default.",
        told=("fastapi", "starlette", "redis"),
        asgi=True,
    ),
    Peer(
        name="fastapi-idempotency",
        title="fastapi-idempotency",
        package="fastapi-idempotency",
        requirements=(
            "fastapi-idempotency[tortoise]",
            "tortoise-orm[asyncpg]",
            "fastapi",
            "uvicorn",
        ),
        service="fastapi_",
        settings=(
            "`IdempotencyMiddleware` with `TortoiseStore` on PostgreSQL (it has no Redis store), "
            "`scope` names the user, as its documentation advises."
        ),
        told=("fastapi", "starlette", "tortoise-orm", "asyncpg"),
        asgi=True,
        postgres=True,
    ),
)
