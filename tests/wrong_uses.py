"""Wrong uses of the library: the code, and the three parts that the error holds: what was wrong, where, and what would
be right. The code runs after `WORLD`, inside a loop; `PEER` stands for a block with a served calculator and a peer."""

from __future__ import annotations

WORLD = """
import asyncio
import dragoman, dragoman.sync
from typing import Annotated
from pydantic import Field
from dragoman import Context, Depends, Limits, RpcError, Service, connect, http_app, method, serve
from dragoman.mcp import Client, Server

api = Service("calculator")
app = Server("weather")

@api.method
def subtract(a: int, b: int) -> int:
    return a - b

@app.tool
def forecast(city: str) -> str:
    return "sunny"

@app.prompt
def review(language: str) -> str:
    return language

@app.resource("config://app")
def config() -> str:
    return "dark"

@app.resource("notes://{id}")
def note(id: str) -> str:
    return id

def plain(a: int) -> int:
    return a

async def slow(a: int) -> int:
    return a
"""
PEER = "async with serve(api, urls='memory:q'), connect('memory:q') as peer:\n    "
TCP = "async with serve(api, urls='tcp://127.0.0.1:0') as s, connect(s.urls[0]) as peer:\n    "
MCP = "async with Client(app) as client:\n    "

USES: list[tuple[str, str, str, str]] = [
    # code, what was wrong, where, what would be right
    # services and their methods
    ("Service(7)", "not 7", "Service 7: name", "text that is not empty"),
    ("Service('')", "not ''", "Service '': name", "text that is not empty"),
    ("Service('x', version=1)", "not 1", "Service 'x': version", "text"),
    ("Service('x', limits={'calls': 3})", "not {'calls': 3}", "limits", "a Limits"),
    ("Service('x', middlewares=[])", "no option 'middlewares'", "Service", "did you mean middleware?"),
    ("api.method(7)", "not a int", "@service.method", "a function or another callable"),
    ("api.method('')(plain)", "is not empty", "plain", "leave it out for the function's own"),
    ("api.method(lambda a: a)", "has no name of its own", "<lambda>", "@service.method('name')"),
    ("api.method('rpc.go')(plain)", "are reserved", "rpc.go", "begin with `rpc.`"),
    ("api.method('subtract')(plain)", "already", "calculator has a method 'subtract'", "give another name"),
    ("api.method('x' * 2000)(plain)", "characters", "xxxx...", "at most"),
    ("api.method('go', inlin=True)(plain)", "no option 'inlin'", "@service.method", "did you mean inline?"),
    (
        "api.method('go', colour=1)(plain)",
        "no option 'colour'",
        "@service.method",
        "there are allow, concurrency, deprecated",
    ),
    ("api.method('go', inline='yes')(plain)", "not 'yes'", "go: inline", "True or False"),
    ("api.method('go', timeout=-1)(plain)", "not -1", "go: timeout", "a number of seconds above 0"),
    ("api.method('go', errors=[ValueError])(plain)", "ValueError", "go: errors", "a subclass of RpcError"),
    ("api.method(inline=True)(slow)", "already runs on the loop", "slow", "inline=True is for plain functions"),
    ("def f(a: 'Nowhere'): ...\napi.method(f)", "'Nowhere', which is not known", "f(), parameter 'a'", "import it"),
    ("def f(a: asyncio.Task): ...\napi.method(f)", "cannot be decoded to Task", "f(), parameter 'a'", "use a msgspec"),
    ("def f(a: Context, b: Context): ...\napi.method(f)", "both take the context", "f(): parameters 'a'", "keep one"),
    (
        "class C:\n    @api.method\n    def go(self): ...",
        "within the class C",
        "C.go",
        "mark it with @method (from dragoman import method)",
    ),
    (
        "def f(a: Annotated[int, Field(ge='x')]): ...\napi.method(f)",
        "got str",
        "f(), parameter 'a'",
        "`ge` must be an int or float",
    ),
    (
        "def f(a: Annotated[str, Field(ge=1)]): ...\napi.method(f)",
        "set `ge`",
        "f(), parameter 'a'",
        "on a numeric type",
    ),
    (
        "def f(a: Annotated[int, Field(multiple_of=0)]): ...\napi.method(f)",
        "`multiple_of`",
        "f(), parameter 'a'",
        "must be > 0",
    ),
    (
        "def f(a: Annotated[str, Field(pattern='(')]): ...\napi.method(f)",
        "not a regular expression",
        "f(), parameter 'a'",
        "missing ), unterminated subpattern at position 0",
    ),
    ("Depends(7)", "not 7", "Depends: function", "a function or another callable"),
    ("Depends(plain, scope='request')", "not 'request'", "Depends: scope", "'call' or 'lifespan'"),
    (
        "def f(a: int = Depends(plain)): ...\napi.method(f)",
        "neither a dependency nor a context",
        "Depends(plain()), parameter 'a'",
        "write Annotated[..., Depends(f)]",
    ),
    ("api.include(7)", "7 is not a Service", "Service.include", "@method above those to be called"),
    ("api.include(api)", "cannot include", "calculator", "is it, or includes it"),
    ("api.use(7)", "not 7", "Service.use: middleware", "a function or another callable"),
    ("api.observe(7)", "not 7", "Service.observe", "an Observer"),
    ("api.override(plain, plain)", "nothing here depends", "plain()", "there is none to override"),
    ("api.run()", "one runs here", "calculator.run", "await serve(calculator, urls=...)"),
    ("api.run(transport='htp')", "not 'htp'", "calculator.run: transport", "'stdio' or 'http'"),
    ("api.run(path='mcp')", "not 'mcp'", "calculator.run: path", 'a path as in "/mcp"'),
    ("api.run('tcp://127.0.0.1:0', port=3)", "give URLs, or", "calculator.run", "a URL says all of them"),
    ("Limits(message_size=-1)", "not -1", "Limits: message_size", "a whole number of at least 1"),
    ("Limits(message_size='1MB')", "not '1MB'", "Limits: message_size", "a whole number"),
    ("Limits().but(mesage_size=1)", "no option 'mesage_size'", "Limits", "did you mean message_size?"),
    ("class E(RpcError):\n    code = 'x'", "not 'x'", "E: an error code", "an integer"),
    # names of the packages
    ("from dragoman import Server", "no attribute 'Server'", "'dragoman'", "write from dragoman.mcp import Server"),
    ("from dragoman import Client", "no attribute 'Client'", "'dragoman'", "write from dragoman.mcp import Client"),
    ("from dragoman import FastMCP", "no attribute 'FastMCP'", "'dragoman'", "write from dragoman.mcp import Server"),
    ("from dragoman import Login", "no attribute 'Login'", "'dragoman'", "write from dragoman.auth import Login"),
    (
        "from dragoman.mcp import Service",
        "no attribute 'Service'",
        "'dragoman.mcp'",
        "write from dragoman import Service",
    ),
    ("from dragoman.mcp import FastMCP", "'FastMCP'", "'dragoman.mcp'", "write from dragoman.mcp import Server"),
    ("dragoman.Client", "no attribute 'Client'", "'dragoman'", "write from dragoman.mcp import Client"),
    # serving
    ("await serve(Service, urls='memory:q')", "the class Service", "cannot serve", "give an instance, Service(...)"),
    ("await serve(Server, urls='memory:q')", "the class Server", "cannot serve", "give an instance, Server(...)"),
    ("await serve(api, urls='8000')", "'8000'", "Cannot listen", "write http://127.0.0.1:8000"),
    ("await serve(api, urls=':8000')", "':8000'", "Cannot listen", "write http://127.0.0.1:8000"),
    ("await serve(api, urls='tcp://192.0.2.1:9')", "not an address of this", "tcp://192.0.2.1:9", "take 127.0.0.1"),
    (
        "async with serve(api, urls='tcp://127.0.0.1:0') as s:\n    await serve(api, urls=s.urls)",
        "the address is in use",
        "Cannot listen on tcp://127.0.0.1:",
        "take another port (0: any that is free)",
    ),
    (
        "async with serve(api, urls='http://127.0.0.1:0') as s:\n    await serve(api, urls=s.urls[0].replace('http', 'ws'))",
        "the address is in use",
        "Cannot listen on ws://127.0.0.1:",
        "leave ws:// out: that takes WebSocket, too",
    ),
    ("serve(api, urls=[])", "at least one URL", "serve", "urls=['http://127.0.0.1:8000']"),
    ("serve(api, urls=8000)", "not 8000", "serve: urls", "URLs as in 'http://127.0.0.1:8000'"),
    ("serve(api, url='tcp://127.0.0.1:9')", "no option 'url'", "serve", "did you mean urls?"),
    ("serve(api, urls='memory:q', tls='cert.pem')", "not 'cert.pem'", "serve: tls", "an ssl.SSLContext"),
    ("serve(api, urls='memory:q', framing='lines')", "not 'lines'", "framing", "'newline' or 'content-length'"),
    ("serve(api, urls='memory:q', mode='600')", "not '600'", "mode", "a whole number"),
    ("with serve(api, urls='memory:q'): ...", "not by `with`", "serve(...)", "`async with`"),
    ("await serve(urls='memory:q')", "something to serve", "serve", "a Service"),
    ("await serve('api', urls='memory:q')", "cannot serve", "'api'", "give a Service"),
    ("await serve(plain, urls='memory:q')", "cannot serve", "plain", "give a Service"),
    ("await serve(api, urls='htp://127.0.0.1:0')", "unknown scheme 'htp'", "htp://127.0.0.1:0", "Did you mean http:?"),
    ("await serve(api, urls='127.0.0.1:8000')", "Cannot listen", "'127.0.0.1:8000'", "begins with a scheme: http"),
    (
        "await serve(api, urls='localhost:8000')",
        "unknown scheme 'localhost'",
        "localhost:8000",
        "Did you mean tcp://localhost:8000?",
    ),
    ("await serve(api, urls='tcp://127.0.0.1')", "needs a port", "tcp://127.0.0.1", "as in tcp://127.0.0.1:9000"),
    ("await serve(api, urls='https://127.0.0.1:0')", "needs a certificate", "https://127.0.0.1:0", "give tls="),
    ("await serve(api, urls='unix:/nowhere/x.sock')", "no such folder", "unix:/nowhere/x.sock", "Cannot listen"),
    ("await serve(api, urls='tcp://127.0.0.1:0/x')", "has no path", "tcp://127.0.0.1:0/x", "leave '/x' out"),
    ("await serve(api, urls='tcp://127.0.0.1:0?framng=x')", "means nothing here", "?framng=", "there is ?framing="),
    ("await serve(api, urls='tcp://127.0.0.1:0?framing=x')", "'x'", "no framing is called", "take one of newline"),
    ("await serve(api, api, urls='http://127.0.0.1:0')", "two served objects", "/calculator", "serve({'/a': a})"),
    ("http_app(7)", "cannot serve", "7", "give a Service"),
    ("http_app(api, limit=3)", "no option 'limit'", "http_app", "did you mean limits?"),
    ("await serve(api, urls='memory:q').ended()", "nothing is served yet", "serve(...)", "`await serve(...)`"),
    # connecting and calling
    ("connect(7)", "not 7", "connect: target", "a URL, or a command"),
    ("connect(api)", "<Service calculator", "connect: target", "a URL, or a command"),
    ("connect(['cat', 7])", "'cat', 7", "connect: target", "a list of texts"),
    ("connect('memory:q', timout=3)", "no option 'timout'", "connect", "did you mean timeout?"),
    ("connect('memory:q', timeout='3')", "not '3'", "connect: timeout", "a number of seconds above 0"),
    ("connect('memory:q', dialect='lps')", "no dialect 'lps'", "dialect", "choose one of plain, lsp"),
    ("connect('memory:q', errors=[ValueError])", "ValueError", "connect: errors", "a subclass of RpcError"),
    ("connect('memory:q', headers=['a'])", "not ['a']", "connect: headers", "a dict from text to text"),
    ("connect('memory:q', service=app)", "mcp.Server weather", "connect: service", "a Service"),
    ("connect('memory:q').call('subtract')", "not a Peer yet", "connect(...)", "`async with connect(...) as peer`"),
    ("with connect('memory:q'): ...", "not by `with`", "connect(...)", "dragoman.sync.connect(...) blocks"),
    ("await connect('')", "not empty", "A command", "a URL begins with a scheme"),
    ("await connect('127.0.0.1:9')", "lacks its scheme", "127.0.0.1:9", "write tcp://127.0.0.1:9"),
    ("await connect('localhost:9')", "unknown scheme", "localhost:9", "Did you mean tcp://localhost:9?"),
    ("await connect('http//x.org/rpc')", "lacks its scheme", "http//x.org/rpc", "http://x.org/rpc"),
    ("await connect('htp://x')", "unknown scheme 'htp'", "htp://x", "Did you mean http:?"),
    ("await connect('tcp:x:9')", "tcp:x:9", "tcp:x:9", "write tcp://host:port"),
    ("await connect('memory:none')", "nothing listens", "memory:none", "in this event loop"),
    ("await connect('nosuchprogram a')", "no program 'nosuchprogram'", "nosuchprogram a", "begins with a scheme"),
    ("dragoman.sync.connect('memory:q')", "nothing listens", "memory:q", "in this event loop"),
    (f"{PEER}await peer.call('subtract', 7)", "params are", "subtract", "a list or a dict"),
    (f"{PEER}await peer.notify('subtract', 'ab')", "params are", "subtract", "a list or a dict"),
    (f"{PEER}await peer.call('subtract', timeout='3')", "not '3'", "subtract: timeout", "a number of seconds above 0"),
    (f"{PEER}await peer.call('subtract', timeout=0)", "not 0", "subtract: timeout", "a number of seconds above 0"),
    (f"{PEER}await peer.call('subtract', [1, 2], result=7)", "'7' is not supported", "result=7", "Type"),
    (f"{PEER}await peer.call('subtract', [1, 2], result=str)", "does not fit", "subtract", "Expected a string, got an"),
    (f"{PEER}await peer.call('subtract', ['x', 1])", "got a string", "'field': 'a'", "Expected an integer"),
    (f"{PEER}...\nawait peer.call('subtract', [1, 2])", "was closed here", "memory:q", "connect anew"),
    (f"{PEER}peer.proxy(7)", "not 7", "peer.proxy", "a class with the far end's methods"),
    (f"{PEER}class P: ...\n    peer.proxy(P)", "no public methods", "P", "write `def name(self, ...)"),
    (f"{PEER}peer.batch().call('subtract', [1, 2])", "within its block", "subtract", "`async with peer.batch()"),
    (f"{PEER}with peer.batch(): ...", "not by `with`", "peer.batch()", "`async with`"),
    (
        f"{PEER}async with peer.batch() as b:\n        await b.call('subtract', [1, 2])",
        "is sent at the end of its block",
        "a batch",
        "await its calls behind it",
    ),
    (f"{PEER}await peer.call('subtrac')", "Method not found", "subtrac", "-32601"),
    (
        f"api.debug = True\n{PEER}await peer.call('subtrac')",
        "no method 'subtrac'",
        "-32601",
        "did you mean subtract?",
    ),
    (
        f"{PEER}async with peer.batch() as b:\n        x = b.call('subtrac')\n    await x",
        "not found",
        "subtrac",
        "-32601",
    ),
    (
        f"{PEER}await asyncio.to_thread(asyncio.run, peer.call('subtract', [1, 2]))",
        "belongs to another event loop",
        "subtract",
        "a peer of dragoman.sync.connect(...)",
    ),
    (
        f"{TCP}await asyncio.to_thread(asyncio.run, peer.call('subtract', [1, 2]))",
        "belongs to another event loop",
        "subtract",
        "asyncio.run_coroutine_threadsafe(peer.call(...), loop)",
    ),
    (
        f"{TCP}await asyncio.to_thread(asyncio.run, peer.notify('subtract', [1, 2]))",
        "belongs to another event loop",
        "subtract",
        "loop.call_soon_threadsafe",
    ),
    (
        f"{TCP}await asyncio.to_thread(asyncio.run, peer.batch().__aenter__())",
        "belongs to another event loop",
        "a batch",
        "dragoman.sync.connect(...)",
    ),
    (
        "async with serve(app, urls='http://127.0.0.1:0/mcp') as s, connect(s.urls[0]) as p: await p.call('forecast')",
        "this is an MCP server",
        "Mcp-Session-Id",
        "dragoman.mcp.Client speaks to it",
    ),
    (
        "async with serve(api, urls='http://127.0.0.1:0') as s, Client(s.urls[0]) as client: ...",
        "not MCP",
        "initialize",
        "use dragoman.connect",
    ),
    ("api.answer('[]')", "not '[]'", "a message", "bytes"),
    ("api.answer({'jsonrpc': '2.0'})", "not {'jsonrpc'", "calculator: a message", "bytes"),
    # MCP
    ("Server(7)", "not 7", "Server 7: name", "text that is not empty"),
    ("Server('x', revisions=['2025'])", "['2025']", "Server 'x': revisions", "a record such as NEWEST"),
    ("Server('x', extensions=[7])", "and not 7", "an extension", "an Extension or a ServerExtension"),
    ("Server('x', instruction='a')", "no option 'instruction'", "Server", "did you mean instructions?"),
    ("app.tool(7)", "not a int", "@server.tool", "a function or another callable"),
    ("app.tool(name='forecast')(plain)", "already", "a tool 'forecast'", "give another name"),
    ("app.tool(descripton='x')(plain)", "no option 'descripton'", "@server.tool", "did you mean description?"),
    ("app.tool(description=7)(plain)", "not 7", "tool plain: description", "text, or None"),
    ("app.tool(annotations={'readOnly': True})(plain)", "{'readOnly'", "tool plain: annotations", "ToolAnnotations"),
    ("app.tool(input_schema=7)(plain)", "not 7", "tool plain: input_schema", "a dict"),
    ("app.tool(input_schema={'type': 'array'})(plain)", "an input schema", "plain", '"type": "object" at its root'),
    ("app.resource(plain)", "has a URI", "a resource", '@server.resource("file:///notes.txt")'),
    ("app.resource('notes')(plain)", "is not a URI", "'notes'", "is called like file:///path"),
    ("app.resource('notes://{b}')(plain)", "no parameter 'b'", "notes://{b}", "for the variable of that name"),
    (
        "app.resource('config://x', mime='a/b')(plain)",
        "no option 'mime'",
        "@server.resource",
        "did you mean mime_type?",
    ),
    ("app.prompt(titel='x')(plain)", "no option 'titel'", "@server.prompt", "did you mean title?"),
    ("def p(*a: str): ...\napp.prompt(p)", "arguments have names here", "p, parameter 'a'", "take away the `/` or"),
    ("app.completion('nothing', 'a')(plain)", "no prompt and no template", "'nothing'", "register it before"),
    ("app.completion('review', 'lang')(plain)", "no argument 'lang'", "review", "it has language"),
    (
        "app.completion('review', 'language', inlin=True)(plain)",
        "'inlin'",
        "@server.completion",
        "did you mean inline?",
    ),
    ("app.remove_tool('Forecast')", "no tool 'Forecast'", "tool", "did you mean forecast?"),
    ("app.disable('tol')", "no kind 'tol'", "tol", "did you mean tool?"),
    ("api.remove('subtrac')", "no method 'subtrac'", "calculator", "did you mean subtract?"),
    ("api.disable('subtrac')", "no method 'subtrac'", "calculator", "did you mean subtract?"),
    ("app.remove_tool('forcast')", "no tool 'forcast'", "tool", "did you mean forecast?"),
    ("Client(7)", "not 7", "Client: target", "an mcp.Server"),
    ("Client(api)", "<Service calculator", "Client: target", "dragoman.connect calls a Service"),
    ("Client({'mcpServers': {}})", "not {'mcpServers'", "Client: target", "a URL, a command"),
    ("app.resource('files://{path*}')(plain)", "one segment", "files://{path*}", "write {+path} for several"),
    ("await connect([__import__('tests').__file__])", "may not be run", "Cannot start", "start a Python file by"),
    ("Client(app, on_elict=plain)", "no option 'on_elict'", "Client", "did you mean on_elicit"),
    ("Client(app, timeout='3')", "not '3'", "Client: timeout", "a number of seconds above 0"),
    ("Client(app, revision='2025-11-2')", "no revision '2025-11-2'", "revision", "did you mean 2025-11-25?"),
    ("Client(app, revision='2020-01-01')", "no revision '2020-01-01'", "revision", "there are 2024-11-05"),
    ("with Client(app): ...", "not by `with`", "Client(...)", "mcp.client.blocking.connect(...) blocks"),
    ("await Client(app).list_tools()", "not entered yet", "the client", "`async with Client(...) as client`"),
    (f"{MCP}await client.call_tool('forcast')", "Unknown tool", "forcast", "did you mean forecast?"),
    (f"{MCP}await client.call_tool('review')", "Unknown tool: review", "a prompt", "prompts/get gets it"),
    (f"{MCP}await client.get_prompt('revew')", "Unknown prompt", "revew", "did you mean review?"),
    (f"{MCP}await client.get_prompt('forecast')", "Unknown prompt: forecast", "a tool", "tools/call calls it"),
    (f"{MCP}await client.read_resource('conf://app')", "not found", "conf://app", "did you mean config://app?"),
    (f"{MCP}await client.read_resource('note://1')", "not found", "note://1", "did you mean notes://{id}?"),
    (f"{MCP}await client.complete('revew', 'language', 'p')", "Unknown prompt", "revew", "did you mean review?"),
    (
        f"{MCP}await client.complete('review', 'lang', 'p')",
        "Unknown argument",
        "review: lang",
        "did you mean language?",
    ),
    (f"{MCP}await client.complete('note://{{id}}', 'id', 'p')", "Unknown resource", "note:", "mean notes://{id}?"),
    (f"{MCP}await client.complete('notes://{{id}}', 'idd', 'p')", "Unknown argument", "idd", "did you mean id?"),
    (f"{MCP}await client.request('tools/lst')", "not a method", "tools/lst", "did you mean tools/list?"),
    (f"{MCP}await client.call('tools/lst')", "Method not found", "tools/lst", "-32601"),
    (
        f"{MCP}await asyncio.to_thread(asyncio.run, client.call_tool('forecast', {{'city': 'x'}}))",
        "belongs to another event loop",
        "tools/call",
        "dragoman.sync.connect(...)",
    ),
    (f"{MCP}await client.call_tool('forecast', ['x'])", "must be an object", "`arguments`", "an object"),
    (
        f"{MCP}await client.call_tool('forecast', {{'city': 'x'}}, result=int)",
        "does not fit",
        "the text 'sunny'",
        "ask for result=str",
    ),
    (
        f"{MCP}...\nawait client.call_tool('forecast', {{'city': 'x'}})",
        "was closed here",
        "memory:weather",
        "connect anew",
    ),
]
