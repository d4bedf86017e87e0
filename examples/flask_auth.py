"""A Flask view with authentication, which tells the service about the caller.

python examples/flask_auth.py               calls itself and ends
flask --app examples/flask_auth.py run      serves it
"""

import hmac

from flask import Flask, Response, request

from dragoman import Caller, Identity, Service

app = Flask(__name__)
api = Service("notes")
PASSWORDS = {"ada": "analytical"}


@api.method
def whoami(who: Identity) -> str:  # given by the view, not by the caller
    return who.subject


@app.post("/")
def rpc() -> Response:
    sent = request.authorization
    name, password = (sent.username or "", sent.password or "") if sent and sent.type == "basic" else ("", "")
    if not hmac.compare_digest(PASSWORDS.get(name, "").encode(), password.encode()) or name not in PASSWORDS:
        return Response(status=401, headers={"WWW-Authenticate": "Basic"})
    caller = Caller(scheme="http", remote=request.remote_addr or "", identity=Identity(subject=name))
    answer = api.answer(request.get_data(), caller=caller)
    return Response(answer, 204 if answer is None else 200, mimetype="application/json")


if __name__ == "__main__":
    with app.test_client() as client:
        body = b'{"jsonrpc":"2.0","method":"whoami","id":1}'
        print(client.post("/", data=body).status_code)  # 401
        print(client.post("/", data=body, auth=("ada", "guess")).status_code)  # 401
        print(client.post("/", data=body, auth=("ada", "analytical")).text)  # {"jsonrpc":"2.0","result":"ada","id":1}
