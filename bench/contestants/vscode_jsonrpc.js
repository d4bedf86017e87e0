'use strict';
// vscode-jsonrpc over stdio (`stdio`). BENCH_NODE is the folder that holds node_modules.
const { createRequire } = require('module');
const rpc = createRequire(process.env.BENCH_NODE + '/')('vscode-jsonrpc/node');

const connection = rpc.createMessageConnection(
  new rpc.StreamMessageReader(process.stdin), new rpc.StreamMessageWriter(process.stdout));
connection.onRequest('subtract', (minuend, subtrahend) => minuend - subtrahend);
connection.onClose(() => process.exit(0));
connection.listen();
