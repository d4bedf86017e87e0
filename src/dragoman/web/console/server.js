// Who is connected, and on what it runs.
import { html, addView, useState, small, note, fault, short, count, number, list } from "../kit.js";
import { may, now, useAsked } from "./door.js";
import { order, Done } from "./now.js";
import { view, words, hasAll, plain, facts, Rest, seconds, millis, bytes, clock, range, Range } from "./parts.js";

const MOST = { listed: 300 };
const STOP = "console:stop";

// -- connections

const whoOf = (one) => one.client || one.principal || one.remote || one.session || "–";

function Connections() {
  const [found, wrong, again] = useAsked("connections", 2);
  const [value, setValue] = useState("");
  const [done, setDone] = useState();
  const allowed = may.use().includes(STOP);
  const all = list(found?.connections);
  const fitting = all.filter((one) => hasAll(value, Object.values(one)));
  const kinds = Object.entries(Object.groupBy(all, (one) => one.kind));
  const end = (one) => order("end", html`<h2>End this ${short(one.kind, 20)}?</h2><p><code>${short(one.id, 60)}</code> of ${short(whoOf(one), 100)}</p><p>Its ${one.in_flight ? count(one.in_flight, "call") : "calls"} in flight will be dropped.</p>`, "End it", [one.id], (said) => (setDone(said), again()));
  const some = (name) => all.some((one) => one[name] !== undefined);
  const columns = [
    ["Kind", (one) => short(one.kind, 20)],
    ["Who", (one) => html`<b>${short(whoOf(one), 80)}</b> <span class="note">${short([one.principal && one.remote, one.wire].filter(Boolean).join(" · "), 80)}</span>`],
    ["Service", (one) => short(one.service, 60)],
    ["Session", (one) => html`<code>${short(one.session, 24)}</code>`],
    ["About", (one) => short(one.about, 100)],
    some("age") && ["Age", (one) => (one.age === undefined ? "" : seconds(one.age)), "number"],
    ["In flight", (one) => number(one.in_flight ?? 0), "number"],
    ["Lag", (one) => html`<span class=${one.lag ? "warn" : ""}>${number(one.lag ?? 0)}</span>`, "number"],
    ["Drops", (one) => html`<span class=${one.drops ? "fault" : ""}>${number(one.drops ?? 0)}</span>`, "number"],
    allowed && ["", (one) => small("End…", () => end(one), { "aria-label": `End ${one.kind} ${short(one.id, 40)}` }), "number"],
  ].filter(Boolean);
  return view(html`<h1>Connections</h1>${range.use() && html`<${Range} words="It does not apply here: this is what is open now." />`}${wrong && fault(wrong)}<${Done} done=${done} said="it ends" clear=${() => setDone()} />
  ${kinds.length > 0 && html`<dl class="tiles">${kinds.map(([kind, those]) => html`<div class="tile"><dt>${short(kind, 20)}s</dt><dd>${number(those.length)}</dd></div>`)}</dl>`}
  <div class="bar">${words(value, setValue)}</div>
  ${fitting.length ? plain("Connections", columns, fitting.slice(0, MOST.listed), (one) => ({ key: one.id })) : note(found ? (all.length ? "None fits." : "Nobody is connected.") : "◌ Looking…")}
  ${fitting.length > MOST.listed && note(`${number(fitting.length - MOST.listed)} more: filter them.`)}${found?.more > 0 && note(`${number(found.more)} more are not listed.`)}`);
}

// -- the machine

const KNOWN = {
  resident_memory_bytes: ["Memory", bytes],
  cpu_seconds_total: ["Processor time", seconds],
  start_time_seconds: ["Started", (time) => `${new Date(time * 1000).toLocaleDateString()} ${clock(time)}`],
  open_fds: ["Open files", number],
};

function Process({ one: { pid, version, python, platform, loop, tasks, threads, process = {}, ...rest } }) {
  const known = Object.entries(KNOWN).map(([name, [title, words]]) => [title, process[name] !== undefined && words(process[name])]);
  const others = Object.fromEntries(Object.entries(process).filter(([name]) => !KNOWN[name]));
  return html`<section class="card"><h2>Process ${short(rest.key || pid, 40)}</h2>${facts([["dragoman", short(version, 60)], ["Python", short(python, 60)], ["Event loop", short(loop, 100)], ["System", short(platform, 200)], ["Tasks", short(tasks, 20)], ["Threads", short(threads, 20)], ...known])}<${Rest} of=${{ ...others, ...rest }} /></section>`;
}

const WORKERS = [
  ["Worker", (one) => one.number || "–"],
  ["Process", (one) => short(one.key || one.pid, 40), "number"],
  ["State", (one) => html`${short(one.state, 30)}${one.answers === false && html` <span class="fault">✖ its loop is blocked</span>`}`],
  ["Age", (one) => seconds(one.age), "number"],
  ["Channels", (one) => number(one.channels), "number"],
  ["Sessions", (one) => number(one.sessions), "number"],
  ["In flight", (one) => number(one.in_flight), "number"],
  ["Waiting", (one) => number(one.waiting), "number"],
  ["Ended", (one) => number(one.ended), "number"],
];
function Machine() {
  const [found, wrong] = useAsked("machine", 3);
  const [seen] = useAsked("now", 3);
  const { processes, ...rest } = found ?? {};
  const { workers = [], services = [], figures = {} } = seen ?? {};
  return view(html`<h1>Machine</h1>${wrong && fault(wrong)}${!found && note("◌ Looking…")}
  ${workers.length > 0 && html`<h2>Workers</h2>${plain("Workers", WORKERS, workers)}`}
  <div class="cards">${list(processes).map((one) => html`<${Process} key=${one.key + one.pid} one=${one} />`)}</div>
  <${Rest} of=${rest} />
  <${Rest} of=${{ services: services.map(({ wait_p95, ...one }) => ({ ...one, "95 % wait at most": millis(wait_p95 * 1000) })) }} />
  <div class="figures"><${Rest} of=${{ figures: Object.fromEntries(Object.entries(figures).map(([name, value]) => [name.replace("dragoman_", ""), value])) }} /></div>`);
}

addView("connections", () => "Connections", Connections);
addView("machine", () => "Machine", Machine);
