"""The payment as a view of Flask, old or new."""

from flask import abort, jsonify, request
from payment import Refused, cookie_of, pay, user_of


def payments():
    user = user_of(request.headers.get("Authorization"))
    try:
        answer = pay(user, request.get_json()["amount"])
    except Refused as refused:
        abort(refused.status)
    response = jsonify(answer)
    if cookie := cookie_of(answer):
        response.set_cookie("session", cookie)
    return response, 201
