// jayson as a peer: `node jayson.cjs serve http|tcp | call http|tcp PORT`
//
// serve: prints its port. call: calls a dragoman server and prints what it got as JSON.
"use strict";

const jayson = require("jayson");

const heard = [];
const methods = {
  // positions come as an array, names as an object
  subtract: (params, done) =>
    done(null, Array.isArray(params) ? params[0] - params[1] : params.minuend - params.subtrahend),
  sum: (params, done) => done(null, params.reduce((one, other) => one + other, 0)),
  fail: (params, done) => done({ code: 1001, message: "Out of stock", data: { left: 3 } }),
  echo: (params, done) => done(null, params),
  note: (params, done) => {
    heard.push(params);
    done();
  },
  heard: (params, done) => done(null, heard),
};

function serve(wire) {
  const door = new jayson.Server(methods)[wire]();
  door.listen(0, "127.0.0.1", () => console.log(door.address().port));
}

function request(client, ...words) {
  return new Promise((resolve, reject) =>
    client.request(...words, (fault, answer) => (fault ? reject(fault) : resolve(answer))),
  );
}

async function call(wire, port) {
  const client = jayson.Client[wire]({ host: "127.0.0.1", port });
  const found = {};
  found.position = await request(client, "subtract", [42, 23]);
  found.name = await request(client, "subtract", { subtrahend: 23, minuend: 42 });
  found.text = await request(client, "echo", ["é中😀\n\u0000"]);
  found.unknown = await request(client, "nothing", []);
  found.wrong = await request(client, "subtract", ["a", "b"]);
  found.declared = await request(client, "divide", [1, 0]);
  found.notification = (await request(client, "update", [1, 2], null)) ?? null;
  const batch = [
    client.request("sum", [1, 2, 4], undefined, false),
    client.request("update", [3], null, false),
    client.request("nothing", [], undefined, false),
    client.request("get_data", [], undefined, false),
  ];
  found.batch = await request(client, batch);
  found.batch_ids = batch.map((one) => one.id ?? null);
  found.many = (await Promise.all(Array.from({ length: 50 }, (_, n) => request(client, "later", [n])))).map(
    (answer) => answer.result,
  );
  found.notified = await request(client, "notified", []);
  return found;
}

const [mode, wire, port] = process.argv.slice(2);
if (mode === "serve") {
  serve(wire);
} else {
  call(wire, Number(port)).then((found) => {
    process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
  });
}
