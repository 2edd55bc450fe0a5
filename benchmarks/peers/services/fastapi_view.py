"""The payment as a view of FastAPI."""

from fastapi import Header, HTTPException, Response
from payment import Refused, cookie_of, pay_async, user_of
from pydantic import BaseModel


class Payment(BaseModel):
    amount: int


async def payments(asked: Payment, response: Response, authorization: str | None = Header(None)):
    try:
        answer = await pay_async(user_of(authorization), asked.amount)
    except Refused as refused:
        raise HTTPException(refused.status) from None
    if cookie := cookie_of(answer):
        response.set_cookie("session", cookie)
    return answer
