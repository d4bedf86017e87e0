// What is in flight: each call with the place where it is, and how it is stopped.
import { html, addView, useState, button, small, short, clean, note, fault, number, count } from "../kit.js";
import { ask, link, may, now, useAsked } from "./door.js";
import { view, words, hasAll, Panel, plain, sure, seconds, bytes, millis, nameOf, callerOf, range, within, Range } from "./parts.js";

const MOST = { listed: 200, named: 10 };
const STOP = "console:stop";

export const tile = (name, value, bad) => html`<div class=${`tile ${bad ? "bad" : ""}`}><dt>${name}</dt><dd>${value}</dd></div>`;
const full = ({ file, line, function: named }) => html`<code>${short(file, 300)}:${line} <b>${short(named, 120)}</b></code>`;

// The last lines of a path: what is in sight of a narrow column.
const brief = ({ file, line, function: named }) => html`<code title=${clean(`${file}:${line}`)}>${short(file.split(/[/\\]/).slice(-2).join("/"), 60)}:${line} <b>${short(named, 60)}</b></code>`;

// Ask before ids are stopped or ended; what became of each.
export async function order(path, words, yes, ids, put) {
  if (!(await sure(words, yes))) return;
  try {
    put((await ask(path, { ids })).done);
  } catch ({ message }) {
    put(ids.map((id) => ({ id, error: message })));
  }
}

export function Done({ done, said, clear }) {
  return done && html`<section class="done" role="status" aria-label="What became of it">${done.map(({ id, error }) => html`<p class=${error ? "fault" : "state"}>${error ? `✖ ${short(id, 60)}: ${short(error, 300)}` : `✔ ${short(id, 60)}: ${said}`}</p>`)}${small("Dismiss", clear)}</section>`;
}

// The calls in flight: of the feed, which has 20 of them four times a second, and of the last answer, which says where.
function merge(line, calls, more, off) {
  const where = new Map(calls.map((one) => [one.id, one.where]));
  if (off || line.in_flight > line.calls.length) return [calls, more];
  return [line.calls.map((one) => ({ ...one, where: where.get(one.id) })), 0];
}

const textsOf = (one) => [one.method, one.target, one.name, one.service, one.principal, one.remote, one.where?.at?.file, one.where?.at?.function];

function Stack({ one, close }) {
  const { where } = one;
  return html`<${Panel} label="The stack" close=${close} head=${html`${short(nameOf(one))} <span class="note">${short(one.id, 60)}, ${short(one.state, 20)}</span>`}>${where ? html`<p class="note">${where.kind === "thread" ? "In a thread" : "A coroutine"}; outermost first.</p><ol class="stack">${where.stack.map((frame) => html`<li class=${where.at && frame.line === where.at.line && frame.file === where.at.file ? "at" : ""}>${full(frame)}</li>`)}</ol>` : note("Where it is cannot be seen: it waits for its start, or runs in the server itself.")}<//>`;
}

function Now() {
  const line = now.use();
  const off = link.use() !== "";
  const [found, wrong] = useAsked("now?where=1", 1);
  const [machine] = useAsked("machine", 5);
  const [chosen, choose] = useState(new Set());
  const [opened, open] = useState("");
  const [value, setValue] = useState("");
  const [done, setDone] = useState();
  const allowed = may.use().includes(STOP);
  const at = range.use();
  const [calls, more] = merge(line, found?.calls ?? [], found?.more ?? 0, off);
  const time = line.time || Date.now() / 1000;
  const fitting = calls.filter((one) => within(at, time - one.age, time) && hasAll(value, textsOf(one)));
  const drawn = fitting.slice(0, MOST.listed);
  const ids = drawn.map((one) => one.id).filter((id) => chosen.has(id));
  const stack = calls.find((one) => one.id === opened);
  const figures = found?.figures ?? {};
  const figure = (name) => figures[`dragoman_${name}`];
  const memory = (machine?.processes ?? []).reduce((sum, one) => sum + (one.process.resident_memory_bytes ?? 0), 0);
  const lag = Math.max(0, ...(machine?.processes ?? []).map((one) => one.lag ?? 0));
  const toggle = (id) => choose((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id]));
  const stop = (those) => {
    const named = calls.filter((one) => those.includes(one.id));
    const said = html`<h2>Stop ${count(those.length, "call")}?</h2><ul>${named.slice(0, MOST.named).map((one) => html`<li><code>${short(nameOf(one))}</code> of ${short(callerOf(one), 60)}, ${seconds(one.age)} old</li>`)}</ul>${named.length > MOST.named && note(`and ${number(named.length - MOST.named)} more`)}<p>Their callers get an error at once. A method that runs in a thread goes on until it returns.</p>`;
    order("stop", said, `Stop ${those.length === 1 ? "it" : "them"}`, those, (all) => (setDone(all), choose(new Set())));
  };
  const columns = [
    ...(allowed ? [["", (one) => html`<input type="checkbox" aria-label=${`Choose ${short(nameOf(one), 60)} ${short(one.id, 30)}`} checked=${chosen.has(one.id)} onChange=${() => toggle(one.id)} />`]] : []),
    ["Call", (one) => html`${button(short(nameOf(one), 80), () => open(opened === one.id ? "" : one.id), { class: "plain name", "aria-expanded": opened === one.id })} <span class="note">${short([one.target && one.method, one.service].filter(Boolean).join(" · "), 80)}</span>`],
    ["Caller", (one) => html`${short(callerOf(one), 60)} <span class="note">${short(one.wire, 20)}</span>`],
    ["Age", (one) => seconds(one.age), "number"],
    ["Waited", (one) => html`${one.state === "waiting" && html`<span class="warn">◌ waits</span> `}${millis(one.wait * 1000)}`, "number"],
    ["Left", (one) => (one.left === null ? "–" : seconds(one.left)), "number"],
    ["Worker", (one) => one.worker || "–", "number"],
    ["Where", (one) => (one.where?.at ? brief(one.where.at) : "–"), "where"],
  ];
  return view(html`<h1>In flight</h1><${Range} words="Calls in flight that were there then are shown." />
  <dl class="tiles">${tile("In flight", number(line.in_flight))}${tile("Waiting", number(figure("calls_waiting") ?? 0), figure("calls_waiting") > 0)}${tile("Ended", number(line.ended))}${tile("Errors", number(line.errors))}${tile("Loop lag", millis(lag * 1000), lag > 0.1)}${memory > 0 && tile("Memory", bytes(memory))}${tile("Kept", bytes(figure("kept_bytes") ?? 0))}${tile("Unsent", bytes(figure("unsent_bytes") ?? 0))}</dl>
  ${wrong && fault(wrong)}<${Done} done=${done} said="stopped" clear=${() => setDone()} />
  <div class="bar">${words(value, setValue)}${allowed && html`${button(`Stop ${count(ids.length, "call")}`, () => stop(ids), { class: "stop", disabled: ids.length === 0 })}${small(ids.length === drawn.length && ids.length ? "Choose none" : "Choose all", () => choose(new Set(ids.length === drawn.length ? [] : drawn.map((one) => one.id))), { disabled: drawn.length === 0 })}`}</div>
  ${stack && html`<${Stack} key=${stack.id} one=${stack} close=${() => open("")} />`}
  ${drawn.length ? plain("Calls in flight", columns, drawn, (one) => ({ key: one.id, class: one.id === opened ? "active" : "" })) : note(found ? (calls.length ? "No call fits." : "Nothing is in flight.") : "◌ Looking…")}
  ${fitting.length - drawn.length + more > 0 && note(`${number(fitting.length - drawn.length + more)} more, which are younger.`)}`);
}

addView("now", () => `Now (${now.use().in_flight})`, Now);
