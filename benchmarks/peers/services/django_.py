"""django-idempotency-key, with Django REST framework."""

import os

import django
from django.conf import settings

REDIS = os.environ["PEERS_REDIS"]
MIDDLEWARE = "idempotency_key.middleware.ExemptIdempotencyKeyMiddleware"

settings.configure(
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="a secret",
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["rest_framework"],
    USE_TZ=True,
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "UNAUTHENTICATED_USER": None,
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    },
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}},
    IDEMPOTENCY_KEY={
        "STORAGE": {"CLASS": "idempotency_key.storage.CacheKeyStorage", "CACHE_NAME": "default"},
        "LOCK": {
            "CLASS": "idempotency_key.locks.redis.MultiProcessRedisLock",
            "LOCATION": REDIS,
            "TIMEOUT": 1,
        },
    },
)
django.setup()

from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.urls import path  # noqa: E402
from idempotency_key.decorators import idempotency_key  # noqa: E402
from payment import Refused, cookie_of, pay, user_of  # noqa: E402
from rest_framework.decorators import api_view  # noqa: E402
from rest_framework.exceptions import APIException  # noqa: E402
from rest_framework.response import Response  # noqa: E402


@idempotency_key
@api_view(["POST"])
def payments(request):
    user = user_of(request.headers.get("Authorization"))
    try:
        answer = pay(user, request.data["amount"])
    except Refused as refused:
        error = APIException("refused")
        error.status_code = refused.status
        raise error from None
    response = Response(answer, 201)
    if cookie := cookie_of(answer):
        response.set_cookie("session", cookie)
    return response


urlpatterns = [path("payments", payments)]


def make(guarded):
    settings.MIDDLEWARE = [MIDDLEWARE] if guarded else []  # read when a handler is made
    return WSGIHandler()


def guarded():
    return make(guarded=True)
