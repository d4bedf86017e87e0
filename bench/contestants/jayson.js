'use strict';
// jayson: `single` and `batch` in process, as worker.py measures, or `http PORT`. BENCH_NODE is the folder of node_modules.
const { createRequire } = require('module');
const jayson = createRequire(process.env.BENCH_NODE + '/')('jayson');

const server = new jayson.Server({ subtract: (args, done) => done(null, args[0] - args[1]) });
const one = (id) => `{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":${id}}`;
const payloads = { single: one(1), batch: '[' + Array.from({ length: 100 }, (_, i) => one(i)).join(',') + ']' };

async function measure(raw) {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const answer = await new Promise((done) => server.call(raw, (error, out) => done(JSON.stringify(error || out))));
    const wall = process.hrtime.bigint();
    const cpu = process.cpuUsage();
    for (let left = JSON.parse(line).calls; left > 0;) {
      // a hundred at a time: the callback comes at once, and a promise for each call would be measured with it
      await new Promise((done) => {
        let open = Math.min(100, left);
        left -= open;
        for (let n = open; n > 0; n--) server.call(raw, (error, out) => { JSON.stringify(error || out); if (--open === 0) done(); });
      });
    }
    const spent = process.cpuUsage(cpu);
    console.log(JSON.stringify({
      cpu: (spent.user + spent.system) / 1e6, wall: Number(process.hrtime.bigint() - wall) / 1e9, answer: answer.slice(0, 200),
    }));
  }
}

const [part, port] = process.argv.slice(2);
if (part === 'http') {
  const http = server.http();
  http.keepAliveTimeout = 120000;
  http.listen(Number(port), '127.0.0.1', 1024);
} else {
  measure(payloads[part]);
}
