"""asgi-idempotency-header, with FastAPI."""

import os

from fastapi import FastAPI, Header, HTTPException, Response
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from payment import Refused, cookie_of, pay_async, user_of
from pydantic import BaseModel
from redis.asyncio import from_url


class Payment(BaseModel):
    amount: int


def make(guarded):
    app = FastAPI()
    if guarded:
        backend = RedisBackend(redis=from_url(os.environ["PEERS_REDIS"]))
        app.add_middleware(IdempotencyHeaderMiddleware, backend=backend)

    @app.post("/payments", status_code=201)
    async def payments(asked: Payment, response: Response, authorization: str = Header(None)):
        try:
            answer = await pay_async(user_of(authorization), asked.amount)
        except Refused as refused:
            raise HTTPException(refused.status) from None
        if cookie := cookie_of(answer):
            response.set_cookie("session", cookie)
        return answer

    return app


def guarded():
    return make(guarded=True)
