"""A Django view with authentication, which tells the service about the caller.

python examples/django_app.py               calls itself and ends

In a project the settings, the users and the middleware are yours; the view stays as it is.
"""

import base64

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from dragoman import Caller, Identity, Service

api = Service("notes")


@api.method
def whoami(who: Identity) -> str:  # given by the view, not by the caller
    return who.subject


def authenticate(request: HttpRequest) -> str | None:
    """Stands for django.contrib.auth: the name of the user, None for a stranger."""
    users = {"Basic " + base64.b64encode(b"ada:analytical").decode(): "ada"}
    return users.get(request.headers.get("Authorization", ""))


@csrf_exempt
@require_POST
def rpc(request: HttpRequest) -> HttpResponse:
    user = authenticate(request)
    if user is None:
        return HttpResponse(status=401, headers={"WWW-Authenticate": "Basic"})
    caller = Caller(scheme="http", remote=request.META["REMOTE_ADDR"], identity=Identity(subject=user))
    answer = api.answer(request.body, caller=caller)
    return HttpResponse(answer or b"", status=204 if answer is None else 200, content_type="application/json")


urlpatterns = [path("rpc", rpc)]

if __name__ == "__main__":
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], SECRET_KEY="for this example alone")
    django.setup()
    client, body = Client(), b'{"jsonrpc":"2.0","method":"whoami","id":1}'
    print(client.post("/rpc", body, content_type="application/json").status_code)  # 401
    key = {"Authorization": "Basic " + base64.b64encode(b"ada:analytical").decode()}
    answer = client.post("/rpc", body, content_type="application/json", headers=key)
    print(answer.content.decode())  # {"jsonrpc":"2.0","result":"ada","id":1}
