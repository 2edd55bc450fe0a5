"""Who is compared: what each needs, how it is set up here, and what it says that it is for."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADER = "Idempotency-Key"


@dataclass(frozen=True)
class Peer:
    """One library, set up in one way."""

    name: str
    title: str
    package: str
    """The name of its distribution, whose version is told."""
    requirements: tuple[str, ...]
    service: str
    """The module in `services/` that offers the payment with it."""
    scope: str
    """What it says that it is for, in our words."""
    settings: str
    """How it is set up here, where that is not its default."""
    told: tuple[str, ...] = ()
    """Further distributions whose version matters."""
    asgi: bool = False
    header: str = HEADER
    variant: str = ""
    postgres: bool = False
    cookies: bool = True
    """Whether what it guards is a response, which may set a cookie."""

    @property
    def environment(self) -> str:
        """The directory of its environment, which variants share."""
        return self.package.lower()


_OURS = ("gunicorn", f"-e {ROOT}")
_POWERTOOLS = ("aws-lambda-powertools[aws-sdk,redis]", "flask", "gunicorn")
_POWERTOOLS_SCOPE = (
    "Makes AWS Lambda functions, and any other function, safe to retry: the same payload within "
    "a time window gets the same result. Its key is cut out of the event by an expression; who "
    "asks is in it if the application puts it there. It knows nothing of HTTP."
)
_OURS_SCOPE = (
    "Makes the side effects of Flask views happen once, on one process or many: keys are scoped "
    "by the sender, compared with the first request, and leases renewed while the view runs."
)

PEERS = (
    Peer(
        name="ours",
        title="Flask-Idempotence",
        package="flask-idempotence",
        requirements=_OURS,
        service="ours",
        scope=_OURS_SCOPE,
        settings="`@idempotent(required=True)`, Redis.",
        told=("flask", "redis"),
    ),
    Peer(
        name="ours-at-most-once",
        title="Flask-Idempotence, at most once",
        package="flask-idempotence",
        requirements=_OURS,
        service="ours",
        scope=_OURS_SCOPE + " With this guarantee, what ran is never run again.",
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
        scope=_POWERTOOLS_SCOPE,
        settings=(
            "`idempotent_function` around what the Flask view calls, "
            '`event_key_jmespath=\'["user", "key"]\'`, a day of retention, its Redis persistence, '
            "a Lambda context that tells 30 s of remaining time where it is timed; its two errors "
            "mapped to 409 and 422."
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
        scope=_POWERTOOLS_SCOPE,
        settings='the same, and `payload_validation_jmespath="body"`.',
        told=("flask", "redis"),
        variant="validating",
        cookies=False,
    ),
    Peer(
        name="flask-idempotent",
        title="Flask-Idempotent",
        package="flask-idempotent",
        # What it imports went away in Flask 2.3 and Jinja 3.1; it does not say that it needs six.
        requirements=(
            "Flask-Idempotent",
            "six",
            "flask<2.3",
            "werkzeug<3",
            "jinja2<3.1",
            "gunicorn",
        ),
        service="flask_idempotent_",
        scope=(
            "Exceedingly simple by design: helps when a form is sent twice or an API request is "
            "repeated after a network failure, within four minutes; not against malice."
        ),
        settings=(
            "`Idempotent(app)`, key in `X-Idempotent-Key`; `IDEMPOTENT_TIMEOUT` 10 s rather than "
            "60, so that the tests end. It needs a Flask before 2.3, a Jinja before 3.1, and "
            "`six`, which it does not ask for."
        ),
        told=("flask", "jinja2", "redis"),
        header="X-Idempotent-Key",
    ),
    Peer(
        name="django-idempotency-key",
        title="django-idempotency-key",
        package="django-idempotency-key",
        requirements=("django-idempotency-key", "django<5", "gunicorn"),
        service="django_",
        scope=(
            "Keeps a client that lost its answer from creating the same object twice. Its lock "
            "stands around the store, not around the view."
        ),
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
        scope=(
            "Middleware that says that mutating endpoints run exactly once, however many requests "
            "come; for JSON answers. Two users with one key are taken for one, which it says, and "
            "it can demand UUIDs against accidents."
        ),
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
        scope=(
            "Middleware that processes each write once and replays its answer. It promises that "
            "its own records are consistent; that the effect and the record are one needs a store "
            "in the same transaction, which it says. Answers that set cookies, and 5xx, are "
            "documented as never stored."
        ),
        settings=(
            "`IdempotencyMiddleware` with `TortoiseStore` on PostgreSQL (it has no Redis store), "
            "`scope` names the user, as its documentation advises."
        ),
        told=("fastapi", "starlette", "tortoise-orm", "asyncpg"),
        asgi=True,
        postgres=True,
    ),
)
