"""A hostile site: a page of another origin in the same browser, and what it tries against an address of this machine.

Each attempt is a script that gets `at`, the origin it is after, and returns what it could read, or null. What it did is
seen at the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct, field

LURE = "<!doctype html><title>lure</title><body><p>Win a prize</p></body>"
WORKER = """
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("message", async ({ data, ports }) => {
  const got = [];
  for (const [url, init] of data) got.push(await fetch(url, init).then((one) => one.text(), () => ""));
  ports[0].postMessage(got);
});
"""


class Site(Struct, eq=False):
    """Where it is, and the Referer of every request that it got."""

    url: str
    server: asyncio.Server | None = None
    referrers: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.lower().split("\r\n")
        self.referrers += [one.partition(":")[2] for one in lines if one.startswith("referer:")]
        script = head.split(" ")[1].endswith(".js")
        body, kind = (WORKER, "text/javascript") if script else (LURE, "text/html")
        text = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        )
        writer.write(text.encode())
        await writer.drain()
        writer.close()

    async def leave(self) -> None:
        """Free the port."""
        assert self.server is not None
        self.server.close()
        await self.server.wait_closed()


@asynccontextmanager
async def hostile_site() -> AsyncIterator[Site]:
    """Serve it on a port of loopback."""
    site = Site("")
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.server = server
    site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield site


HELPERS = """
const read = (url, init) => fetch(url, init).then(async (one) => (one.status ? `${one.status} ${await one.text()}` : await one.text()) || null, () => null);
const add = (name, members) => new Promise((next) => {
  const made = Object.assign(document.createElement(name), members);
  made.onload = () => next([made, true]);
  made.onerror = () => next([made, false]);
  document.body.append(made);
});
const later = (ms) => new Promise((next) => setTimeout(next, ms));
const inside = (frame) => { try { return frame.contentDocument?.body?.innerText || null; } catch { return null; } };
const submit = async (action, method, enctype, fields) => {
  const frame = Object.assign(document.createElement("iframe"), { name: `f${Math.random()}` });
  document.body.append(frame);
  const form = Object.assign(document.createElement("form"), { action, method, enctype, target: frame.name });
  for (const [name, value] of Object.entries(fields)) form.append(Object.assign(document.createElement("input"), { name, value }));
  document.body.append(form);
  const loaded = new Promise((next) => (frame.onload = next));
  form.submit();
  await loaded;
  return inside(frame);
};
const ORDER = '{"ids":["1","2","3"]}';
const JSON_TYPE = { "Content-Type": "application/json" };
"""

_SHAPES = {
    "simple": "{}",
    "with what the browser has": '{ credentials: "include" }',
    "without reading": '{ mode: "no-cors" }',
    "without reading, with credentials": '{ mode: "no-cors", credentials: "include" }',
    "as its own": '{ mode: "same-origin" }',
    "with a token": '{ headers: { Authorization: "Bearer x" } }',
    "with a Host": '{ headers: { Host: "127.0.0.1", Origin: at, "Sec-Fetch-Site": "same-origin" } }',
    "with where it comes from": '{ mode: "no-cors", referrer: location.href, referrerPolicy: "unsafe-url" }',
    "as to a local address": '{ targetAddressSpace: "loopback" }',
    "by following nothing": '{ mode: "no-cors", redirect: "manual" }',
}
_ORDERS = {
    "JSON": "{ method: 'POST', body: ORDER, headers: JSON_TYPE }",
    "JSON, with credentials": "{ method: 'POST', body: ORDER, headers: JSON_TYPE, credentials: 'include' }",
    "text": "{ method: 'POST', body: ORDER, mode: 'no-cors' }",
    "a blob of JSON": "{ method: 'POST', body: new Blob([ORDER], { type: 'application/json' }), mode: 'no-cors' }",
    "a blob without a type": "{ method: 'POST', body: new Blob([ORDER]), mode: 'no-cors' }",
    "a form": "{ method: 'POST', body: new URLSearchParams({ ids: '1' }), mode: 'no-cors' }",
    "parts": "{ method: 'POST', body: (() => { const form = new FormData(); form.append('ids', '1'); return form; })(), mode: 'no-cors' }",
    "that outlives the page": "{ method: 'POST', body: ORDER, mode: 'no-cors', keepalive: true }",
    "another method": "{ method: 'PUT', body: ORDER, headers: JSON_TYPE }",
}
ATTEMPTS: Mapping[str, str] = {
    **{f"fetch, {name}": f"return read(at + '/api/now', {init});" for name, init in _SHAPES.items()},
    **{
        f"fetch the feed, {name}": f"return read(at + '/api/feed', {_SHAPES[name]});"
        for name in ("simple", "without reading")
    },
    **{f"order by {name}": f"return read(at + '/api/stop', {init});" for name, init in _ORDERS.items()},
    **{f"call by {name}": f"return read(at + '/api/try?at=/', {init});" for name, init in _ORDERS.items()},
    "XMLHttpRequest": """return new Promise((next) => {
      const one = new XMLHttpRequest();
      one.open("POST", at + "/api/stop");
      one.withCredentials = true;
      one.onloadend = () => next(one.responseText || null);
      one.send(ORDER);
    });""",
    "a beacon of text": "navigator.sendBeacon(at + '/api/stop', ORDER); return read(at + '/api/now', {});",
    "a beacon of JSON": "navigator.sendBeacon(at + '/api/stop', new Blob([ORDER], { type: 'application/json' })); return read(at + '/api/now', {});",
    "a form by GET": "return submit(at + '/api/stop', 'GET', '', { ids: '1' });",
    "a form by POST": "return submit(at + '/api/stop', 'POST', 'application/x-www-form-urlencoded', { ids: '1' });",
    "a form of text that is JSON": """return submit(at + '/api/stop', 'POST', 'text/plain', { '{"ids":["1"],"x":"': '"}' });""",
    "a form of parts": "return submit(at + '/api/stop', 'POST', 'multipart/form-data', { ids: '1' });",
    "a form that ends connections": """return submit(at + '/api/end', 'POST', 'text/plain', { '{"ids":["1"],"x":"': '"}' });""",
    "an image": "return (await add('img', { src: at + '/api/now' }))[1] || null;",
    "a script": "return (await add('script', { src: at + '/api/now' }))[1] || null;",
    "the page's own script": "return (await add('script', { src: own, type: 'module' }))[1] || null;",
    "the page's own script, without asking": "return (await add('script', { src: own }))[1] || null;",
    "an import": "return import(own).then((one) => Object.keys(one).join(), () => null);",
    "a style sheet": "return (await add('link', { rel: 'stylesheet', href: at + '/api/now' }))[1] || null;",
    "a preload": "return (await add('link', { rel: 'preload', as: 'fetch', href: at + '/api/now' }))[1] || null;",
    "a module that is preloaded": "return (await add('link', { rel: 'modulepreload', href: own }))[1] || null;",
    "a frame": "return inside((await add('iframe', { src: at + '/' }))[0]);",
    "a frame of the API": "return inside((await add('iframe', { src: at + '/api/now' }))[0]);",
    "a frame in a sandbox": "return inside((await add('iframe', { src: at + '/', sandbox: 'allow-scripts allow-forms' }))[0]);",
    "a frame with a script for a URL": "return inside((await add('iframe', { srcdoc: `<iframe src='${at}/'></iframe>` }))[0])?.includes('dragoman') || null;",
    "an object": "return Promise.race([add('object', { data: at + '/' }).then(([one]) => inside(one)), later(500).then(() => null)]);",
    "an embedded page": "return Promise.race([add('embed', { src: at + '/' }).then(() => null), later(500).then(() => null)]);",
    "a film": "return Promise.race([new Promise((next) => { const one = document.createElement('video'); one.onloadeddata = () => next('seen'); one.onerror = () => next(null); one.src = at + '/api/now'; }), later(2000).then(() => null)]);",
    "a font": "return new FontFace('x', `url(${at}/api/now)`).load().then(() => 'loaded', () => null);",
    "an event source": """return new Promise((next) => {
      const one = new EventSource(at + "/api/feed");
      one.onopen = () => next("open");
      one.onmessage = ({ data }) => next(data);
      one.onerror = () => (one.close(), next(null));
    });""",
    "a web socket": """return new Promise((next) => {
      const one = new WebSocket(at.replace("http", "ws") + "/");
      one.onopen = () => next("open");
      one.onclose = ({ reason }) => next(reason || null);
    });""",
    "a web socket at the API": """return new Promise((next) => {
      const one = new WebSocket(at.replace("http", "ws") + "/api/now");
      one.onopen = () => next("open");
      one.onclose = ({ reason }) => next(reason || null);
    });""",
    "a worker": "try { new Worker(own); return 'made'; } catch { return null; }",
    "a worker of its own": """const url = URL.createObjectURL(new Blob([`try { importScripts("${own}"); postMessage("got it"); } catch { postMessage(null); }`]));
      return new Promise((next) => { new Worker(url).onmessage = ({ data }) => next(data); });""",
    "a service worker there": "return navigator.serviceWorker.register(own, { scope: at + '/' }).then(() => 'registered', () => null);",
    "a service worker here": """await navigator.serviceWorker.register("/worker.js");
      const { active } = await navigator.serviceWorker.ready;
      const { port1, port2 } = new MessageChannel();
      const got = new Promise((next) => (port1.onmessage = ({ data }) => next(data)));
      const tries = [[at + "/api/now", {}], [at + "/api/now", { mode: "no-cors" }], [at + "/api/stop", { method: "POST", body: ORDER, mode: "no-cors" }]];
      active.postMessage(tries, [port2]);
      return (await got).join("") || null;""",
    "the cache": "return (await caches.open('x')).add(at + '/').then(() => 'kept', () => null);",
    "times of its answers": """await read(at + "/api/now", { mode: "no-cors" });
      return performance.getEntriesByName(at + "/api/now").some((one) => one.responseStatus || one.decodedBodySize) || null;""",
    "a window": """const one = open(at + "/");
      await later(300);
      let found = null;
      try { found = one.document.body.innerText; } catch {}
      try { found ??= one.location.href.startsWith("http") ? one.location.href : null; } catch {}
      one?.postMessage({ ids: ["1"] }, "*");
      one?.close();
      return found;""",
    "a window with a secret of its choice": """const one = open(at + "/#javascript:alert(1)", "dragoman");
      await later(300);
      let found = null;
      try { one.location = "javascript:alert(document.domain)"; } catch {}
      try { found = one.sessionStorage.getItem("dragoman"); } catch {}
      one?.close();
      return found;""",
}
"""What it tries, by name."""
