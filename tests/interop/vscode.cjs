// vscode-jsonrpc as a peer: `node vscode.cjs stdio | listen | call PORT | start COMMAND...`
//
// stdio, listen: serves, on standard input and output or on one socket whose port is printed.
// call, start: calls a dragoman server on a socket, or one that it starts; prints what it got as JSON.
"use strict";

const net = require("net");
const { spawn } = require("child_process");
const rpc = require("vscode-jsonrpc/node");

function serve(reader, writer) {
  const peer = rpc.createMessageConnection(reader, writer);
  const heard = [];
  let cancelled = 0;
  let started;
  const running = new Promise((resolve) => (started = resolve));
  peer.onRequest("subtract", (minuend, subtrahend) => minuend - subtrahend);
  peer.onRequest("named", (params) => params.minuend - params.subtrahend);
  peer.onRequest("fail", () => new rpc.ResponseError(1001, "Out of stock", { left: 3 }));
  peer.onRequest("wait", (params, token) => {
    started();
    return new Promise((resolve, reject) => {
      token.onCancellationRequested(() => {
        cancelled += 1;
        reject(new rpc.ResponseError(rpc.LSPErrorCodes?.RequestCancelled ?? -32800, "cancelled"));
      });
    });
  });
  peer.onRequest("started", () => running.then(() => true));
  peer.onRequest("cancelled", () => cancelled);
  peer.onRequest("heard", () => heard);
  peer.onNotification("note", (...values) => heard.push(values));
  peer.onRequest("ask", async (params) => 1 + (await peer.sendRequest("double", rpc.ParameterStructures.byPosition, params.number)));
  peer.onRequest("steps", async (params) => {
    for (let step = 0; step < params.count; step++) {
      await peer.sendProgress(new rpc.ProgressType(), params.token, { step });
    }
    return params.count;
  });
  peer.onNotification("exit", () => process.exit(0));
  peer.onClose(() => process.exit(0));
  peer.listen();
}

async function refusal(promise) {
  try {
    return { result: await promise };
  } catch (error) {
    return { code: error.code, message: error.message, data: error.data };
  }
}

async function call(reader, writer) {
  const peer = rpc.createMessageConnection(reader, writer);
  const found = { progress: [], told: [] };
  peer.onRequest("double", (number) => number * 2);
  peer.onNotification("told", (...values) => found.told.push(values));
  peer.onUnhandledProgress((progress) => found.progress.push(progress));
  peer.listen();
  const { byPosition, byName } = rpc.ParameterStructures;
  found.position = await peer.sendRequest("subtract", byPosition, 42, 23);
  found.name = await peer.sendRequest("subtract", byName, { subtrahend: 23, minuend: 42 });
  found.text = await peer.sendRequest("echo", byPosition, "é中😀\n\u0000");
  found.unknown = await refusal(peer.sendRequest("nothing", byPosition, 1));
  found.wrong = await refusal(peer.sendRequest("subtract", byPosition, "a", "b"));
  found.declared = await refusal(peer.sendRequest("divide", byPosition, 1, 0));
  found.many = await Promise.all(Array.from({ length: 200 }, (_, n) => peer.sendRequest("later", byPosition, n)));
  await peer.sendNotification("update", byPosition, 1, 2);
  found.notified = await peer.sendRequest("notified");
  found.asked = await peer.sendRequest("ask", byPosition, 21);
  found.steps = await peer.sendRequest("slow", byPosition, 3);
  const source = new rpc.CancellationTokenSource();
  const waiting = refusal(peer.sendRequest("wait", byPosition, source.token));
  await peer.sendRequest("started");
  source.cancel();
  found.cancelled = await waiting;
  found.stopped = await peer.sendRequest("stopped");
  found.alive = await peer.sendRequest("subtract", byPosition, 2, 1);
  return found;
}

function finish(found) {
  process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
}

const [mode, ...words] = process.argv.slice(2);
if (mode === "stdio") {
  serve(new rpc.StreamMessageReader(process.stdin), new rpc.StreamMessageWriter(process.stdout));
} else if (mode === "listen") {
  const door = net.createServer((socket) => {
    serve(new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket));
  });
  door.listen(0, "127.0.0.1", () => console.log(door.address().port));
} else if (mode === "call") {
  const socket = net.connect(Number(words[0]), "127.0.0.1", () => {
    call(new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket)).then(finish);
  });
} else {
  const child = spawn(words[0], words.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  call(new rpc.StreamMessageReader(child.stdout), new rpc.StreamMessageWriter(child.stdin)).then((found) => {
    child.on("exit", (status) => finish({ ...found, status }));
    child.stdin.end();
  });
}
