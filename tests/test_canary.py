"""The canary sings: each place that it watches fails the test that leaks there, and what is allowed does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.canary import CANARY, found_in

pytest_plugins = ["pytester"]

LEAKS = f"""
import asyncio, json, logging, subprocess, sys, warnings
import pytest
from dragoman import LocalError, Service, serve
from dragoman.routes import RouteRequest, RouteResponse
from dragoman.auth.auditing import Audit, Decision
from dragoman.auth.client.code import random_text
from dragoman.auth.client.errors import AuthorizationFailed
from dragoman.auth.jose import new_key, sign_jws
from dragoman.auth.engine.families import Families
from dragoman.channel import Options
from dragoman.net.urls import parse
from dragoman.transports.http.client.pool import Pool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SECRET = "{CANARY}-x"
log = logging.getLogger("dragoman.some.where")

def test_leak_in_a_log_that_no_one_reads():
    log.debug("sent %s", SECRET)

def test_leak_in_a_traceback():
    try:
        raise ValueError(SECRET)
    except ValueError:
        log.exception("a fault")

def test_leak_of_a_verifier():
    log.info(random_text())

def test_leak_of_a_refresh_token():
    log.info(Families.new_id())

def test_leak_of_a_jwt():
    log.info(sign_jws({{"sub": "ada"}}, new_key("ES256")))

def test_leak_of_a_key():
    log.info(json.dumps(new_key("ES256").private_jwk()))

def test_leak_to_the_output():
    print(SECRET)

def test_leak_to_the_output_that_the_test_reads(capsys):
    print(SECRET, file=sys.stderr)
    assert capsys.readouterr().err

def test_leak_of_a_child():
    subprocess.run([sys.executable, "-c", f"print('{{SECRET}}')"], capture_output=True)

def test_leak_of_a_child_by_lines():
    child = subprocess.Popen([sys.executable, "-c", f"print('{{SECRET}}')"], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout.readline()

def test_leak_of_a_child_of_a_loop():
    async def run():
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", f"print('{{SECRET}}')", stdout=pipe)
        await child.communicate()
    asyncio.run(run())

def test_leak_in_a_warning():
    with pytest.warns(UserWarning):
        warnings.warn(SECRET)

def test_leak_in_an_error_that_is_expected():
    with pytest.raises(KeyError):
        raise KeyError(SECRET)

def test_leak_in_the_cause_of_an_error():
    with pytest.raises(LocalError):
        raise LocalError("no") from ValueError(SECRET)

def test_leak_in_an_error_that_no_one_sees():
    AuthorizationFailed(SECRET)

def test_leak_in_the_audit():
    Audit(lambda decision: None)._record(Decision(outcome="denied", subject=SECRET, at=0.0))

def test_leak_in_a_span():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("x").start_span(SECRET).end()

async def asked(target="/", body=b"{{}}", headers=None):
    seen = []
    async def serve_one(reader, writer):
        seen.append(await reader.readuntil(b"\\r\\n\\r\\n"))
        writer.write(b"HTTP/1.1 204 X\\r\\n\\r\\n")
        writer.close()
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = Pool(parse(f"http://127.0.0.1:{{port}}/"), Options(), "application/json")
    (await pool.ask("POST", body, headers or {{}}, target=target)).close()
    await pool.close()
    server.close()

FORM = {{"content-type": "application/x-www-form-urlencoded"}}

def test_leak_in_the_url_of_a_request():
    asyncio.run(asked(f"/?access_token={{SECRET}}"))

def test_leak_in_the_body_of_a_request():
    asyncio.run(asked(body=SECRET.encode()))

def test_leak_in_a_field_of_a_request():
    asyncio.run(asked(headers={{"x-user": SECRET}}))

def test_leak_in_a_form():
    asyncio.run(asked(body=f"scope={{SECRET}}".encode(), headers=FORM))

def test_leak_of_a_token_that_is_passed_on():
    for _ in range(2):
        asyncio.run(asked(headers={{"authorization": f"Bearer {{SECRET}}"}}))

def test_leak_in_what_a_server_answers():
    api = Service("x", version="1")
    @api.route("/broken")
    def broken(request: RouteRequest) -> RouteResponse:
        return RouteResponse(status=500, body=SECRET.encode())
    async def run():
        async with serve(api, urls="http://127.0.0.1:0") as serving:
            reader, writer = await asyncio.open_connection("127.0.0.1", parse(serving.urls[0]).port)
            writer.write(b"GET /broken HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\n\\r\\n")
            assert await reader.readuntil(b"\\r\\n\\r\\n")
            writer.close()
    asyncio.run(run())

def test_allowed_in_a_request():
    asyncio.run(asked(headers={{"authorization": f"Bearer {{SECRET}}", "dpop": SECRET}}))

def test_allowed_in_a_form():
    asyncio.run(asked(body=f"code={{SECRET}}&refresh_token={{SECRET}}".encode(), headers=FORM))

def test_allowed_in_the_url_for_a_person():
    print(f"https://as.example/authorize?state={{random_text()}}&scope=a")

def test_allowed_where_nothing_is_secret():
    log.debug("a call %s", "eyJ is not a token")
"""


@pytest.mark.leaks
def test_each_place_is_watched(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeconftest("from tests.canary import watch\n\ndef pytest_configure(config):\n    watch(config)\n")
    pytester.makepyfile(LEAKS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA")
    leaks = LEAKS.count("def test_leak_")
    result.assert_outcomes(failed=leaks, passed=LEAKS.count("def test_allowed_"))
    assert sum(line.startswith("a canary turned up where it must not") for line in result.outlines) == leaks
    assert all("leak" in line for line in result.outlines if line.startswith("FAILED"))


@pytest.mark.parametrize(
    "text",
    [f"token={CANARY}", f"Basic {'YXBwOmNhbmFyeS03ZjNhLXg='}", '{"kty": "EC", "d": "' + "x" * 43 + '"}', "-----BEGIN EC PRIVATE KEY-----"],
    ids=["a secret", "a client's secret", "a JWK", "a PEM"],
)  # fmt: skip
def test_what_is_found_is_not_repeated(text: str) -> None:
    found = found_in(text)
    assert found is not None
    assert CANARY not in found
    assert "YXBw" not in found


@pytest.mark.parametrize("text", ["", "eyJhbGciOiJFUzI1NiJ9", "Basic realm=x", '{"d": "short"}', "a canary"])
def test_what_is_no_secret(text: str) -> None:
    assert found_in(text) is None
