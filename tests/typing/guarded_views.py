"""What type checkers make of guarded views: nothing here runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import assert_type

from flask import Flask, Response
from flask.views import MethodView

from flask_idempotence import (
    Idempotence,
    KeyInProgress,
    MemoryStore,
    Refusal,
    Store,
    current_guard,
    exempt,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

app = Flask(__name__)
idempotence = Idempotence(app, store=MemoryStore())


@idempotent
def bare(order: int) -> str:
    return str(order)


@idempotent(required=True, ttl=60, key_pattern=".{20,}", remember=lambda r: r.status_code < 300)
def with_key(order: int, *, loud: bool = False) -> tuple[str, int]:
    return str(order), 201 if loud else 200


@idempotent(on_repeat="reject", guarantee="at-least-once", on_store_error="reject")
@idempotent(key=lambda: "event", compare=False, remember="success")
@idempotent(compare=lambda: ["order", 1])
def with_choices() -> str:
    return "success"


@no_repeat_submit
def bare_lock() -> None: ...


@app.post("/orders/<int:order>")
@no_repeat_submit(5, "Please wait.", ignore=["sent_at"])
def with_lock(order: int) -> dict[str, int]:
    return {"order": order}


@no_repeat_submit(0, key=lambda: "order", shared=True, wait=timedelta(seconds=5))
def with_shared_lock(order: int) -> str:
    return str(order)


def id_of(order: int) -> int:
    return order


@idempotence.once("mail", key=id_of, wait=5)
@idempotence.lock(("stock", 7), lease=5, wait=timedelta(seconds=5))
def locked(order: int) -> str:
    return str(order)


@idempotence.lock("report")
async def locked_later(order: int) -> int:
    return order


@one_time_token(purpose="pay", restore_on_failure=True)
async def with_token(order: int) -> Response:
    return Response(str(order))


@one_time_token
@one_time_token("pay")
@exempt
def bare_token(order: int) -> str:
    return str(order)


class Orders(MethodView):
    @idempotent()
    def post(self, order: int) -> str:
        return str(order)


assert_type(bare(1), str)
assert_type(with_key(1, loud=True), tuple[str, int])
assert_type(with_lock(order=1), dict[str, int])
assert_type(with_choices(), str)
assert_type(bare_token(1), str)
assert_type(Orders().post(1), str)
assert_type(with_shared_lock(1), str)
assert_type(locked(order=1), str)
assert_type(idempotence.forget("mail", ("a", 7)), bool)
with idempotence.lock("stock") as lock, idempotence.once("mail", 7, wait=1) as job:
    assert_type(job.first, bool)
as_function: Callable[[int], str] = bare
nothing: Callable[[], None] = bare_lock


async def in_a_loop() -> None:
    assert_type(await with_token(1), Response)
    assert_type(await locked_later(1), int)


# Errors, all of them: where mypy finds none, the ignore is unused, which fails.
bare()  # type: ignore
with_key(1, True)  # type: ignore
with_lock(1, 2)  # type: ignore
spent = with_token(order="one")  # type: ignore
Orders().post("one")  # type: ignore
idempotent(required="yes")  # type: ignore
idempotent(compare=True)  # type: ignore
idempotent(compare="order")  # type: ignore
idempotent(on_repeat="refuse")  # type: ignore
idempotent(guarantee="exactly-once")  # type: ignore
idempotent(remember="all")  # type: ignore
idempotent(on_store_error="ignore")  # type: ignore
no_repeat_submit(on_store_error="ignore")  # type: ignore
no_repeat_submit(interval="5")  # type: ignore
no_repeat_submit(shared=1.5)  # type: ignore
no_repeat_submit(wait="5")  # type: ignore
locked("one")  # type: ignore
idempotence.lock(1.5)  # type: ignore
idempotence.lock("stock", 5)  # type: ignore
idempotence.once("mail", 7, wait="5")  # type: ignore
idempotence.forget("mail", None)  # type: ignore
one_time_token(purpose=1)  # type: ignore
one_time_token(on_store_error="ignore")  # type: ignore
one_time_token("pay", True)  # type: ignore
one_time_token(restore_on_failure="yes")  # type: ignore
bare_token("one")  # type: ignore


@idempotence.identity_loader
def who() -> str | None:
    return None


@idempotence.identity_loader
def account() -> tuple[str, int | None]:
    return "acme", 7


def row() -> dict[str, object]:
    return {"id": 7, "tenant_id": "acme"}


idempotence.identity_loader(row)  # type: ignore


@idempotence.result_failed
def is_failed(response: Response) -> bool:
    return response.status_code >= 400


assert_type(who(), str | None)
assert_type(account(), tuple[str, int | None])
assert_type(is_failed(Response()), bool)
assert_type(idempotence.issue_token("pay"), str)
assert_type(current_guard.mode, str | None)
assert_type(current_guard.replayed, bool)
assert_type(KeyInProgress().code, int)
assert_type(KeyInProgress().retry_after, int | None)
store: Store = MemoryStore()
refusal: Refusal = KeyInProgress(retry_after=2)
