// What methods do: how often, how fast, what fails, and what an entry costs a model; and errors, with what to do.
import { html, addView, useState, useMemo, button, note, fault, short, count, number, Long, sizeOf, own, list } from "../kit.js";
import { useAsked } from "./door.js";
import { rows } from "./rows.js";
import { view, Panel, plain, Rows, Spark, about, millis, bytes, exact, clock, nameOf, stateOf, FAILED, range, within, Range } from "./parts.js";

const SPAN = 900;
const STEP = 10;
const MOST = { listed: 300, errors: 20 };

// A code, its heading in docs/errors.md, and what to do in a line.
const ADVICE = {
  "-32700": ["Parse error", "It is not JSON: dragoman check on the bytes says where."],
  "-32600": ["Invalid Request", "Not a request, or its id is in flight already: dragoman check on the message."],
  "-32601": ["Method not found", "There is no such method: dragoman methods URL lists them."],
  "-32602": ["Invalid params", "The arguments do not fit: the answer's data.errors lists every fault."],
  "-32603": ["Internal error", "The method raised what it does not declare: the server's log has the traceback."],
  "-32000": ["Busy", "The limit that the text names is reached: call later, or raise it."],
  "-32001": ["Draining", "The server is closing: call another, or again later."],
  "-32002": ["Timed out", "The handler's time was up: raise timeout of the method, or handler_timeout."],
  "-32003": ["Too large", "It is above the limit that the text names: split it, or raise that."],
  "-32004": ["Forbidden", "The caller lacks a scope or a role, or may not with these arguments."],
};
const OUTCOMES = { tool_error: "The tool itself says so, to the model.", lost: "The far end went away before the answer.", refused: "It was not begun: the text says why.", dropped: "It was not begun, or not sent.", failed: "Its answer made no sense, or could not be sent." };

function Advice({ one: { code, outcome } }) {
  const [title, words] = ADVICE[code] ?? [undefined, OUTCOMES[outcome]];
  return words && html`<span class="advice">→ ${words}${title && html` <span class="note">docs/errors, “${title}”</span>`}</span>`;
}

const idOf = (one) => JSON.stringify([one.service, one.method, one.target ?? ""]);
const share = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? 0;

// The same as the server counts, of the rows of a range that this page has.
function countRows(all, { from, to }) {
  const steps = Math.max(1, Math.ceil((to - from) / STEP));
  const found = new Map();
  for (const one of all) {
    if (one.direction === "out" || one.ended < from || one.ended > to) continue;
    const key = idOf(one);
    if (!found.has(key)) found.set(key, { service: one.service, method: one.method, target: one.target ?? "", count: 0, failed: 0, bytes: 0, times: [], counts: Array(steps).fill(0), errors: Array(steps).fill(0) });
    const mine = found.get(key);
    const step = Math.min(steps - 1, Math.floor((one.ended - from) / STEP));
    const failed = FAILED.has(one.outcome);
    mine.count++, mine.counts[step]++, (mine.bytes += (one.received ?? 0) + (one.sent ?? 0)), mine.times.push(one.ms);
    if (failed) mine.failed++, mine.errors[step]++;
  }
  return [...found.values()].map(({ times, ...one }) => (times.sort((a, b) => a - b), { ...one, p50: share(times, 0.5), p95: share(times, 0.95), p99: share(times, 0.99) }));
}

// Tokens that the entry of each tool takes in a model's context: a quarter of its bytes, about.
const tokensOf = (served) => new Map(list(served).flatMap((one) => list(one.entries).filter(({ kind }) => kind === "tool").map(({ listed }) => [JSON.stringify([one.name, own(listed, "name")]), Math.ceil(sizeOf(JSON.stringify(listed)) / 4)])));

const SORTS = { Calls: (one) => one.count, Errors: (one) => one.failed, p50: (one) => one.p50, p95: (one) => one.p95, p99: (one) => one.p99, Bytes: (one) => one.bytes };

function Last({ one, at, close }) {
  const [found, wrong] = useAsked("errors", 5);
  const mine = list(found?.errors).filter((error) => error.method === one.method && (error.service ?? "") === one.service && (error.target ?? "") === one.target && within(at, error.time));
  return html`<${Panel} label="Last errors" close=${close} head=${`${short(nameOf(one))}: ${count(mine.length, "error")} kept`}>${wrong && fault(wrong)}${mine.slice(0, MOST.errors).map((error, n) => html`<p><time>${exact(error.time)}</time> ${stateOf(error)} <${Long} text=${error.text ?? ""} most=${300} />${error.code !== mine[n - 1]?.code && html`<br /><${Advice} one=${error} />`}</p>`)}${mine.length > MOST.errors && note(`${number(mine.length - MOST.errors)} more: see Errors.`)}<//>`;
}

function Methods() {
  const [found, wrong] = useAsked(`methods?seconds=${SPAN}&step=${STEP}`, 5);
  const [catalog] = useAsked("catalog", 60);
  const kept = rows.use();
  const at = range.use();
  const [by, sort] = useState("Calls");
  const [opened, open] = useState("");
  const tokens = useMemo(() => tokensOf(catalog?.served), [catalog]);
  const all = useMemo(() => (at ? countRows(kept, at) : list(found?.methods)).toSorted((a, b) => SORTS[by](b) - SORTS[by](a)), [found, at, at && kept, by]);
  const span = at ? Math.max(1, at.to - at.from) : SPAN;
  const rate = (one) => one.count / span;
  const shown = all.find((one) => idOf(one) === opened);
  const title = (name) => html`<button type="button" class="plain sort" aria-pressed=${by === name} onClick=${() => sort(name)}>${name}${by === name ? " ▾" : ""}</button>`;
  const columns = [
    ["Method", (one) => html`${button(short(nameOf(one), 80), () => open(idOf(one) === opened ? "" : idOf(one)), { class: "plain name", "aria-expanded": idOf(one) === opened })} <span class="note">${short([one.target && one.method, one.service].filter(Boolean).join(" · "), 80)}</span>`],
    ["Calls by time", (one) => html`<${Spark} counts=${one.counts} errors=${one.errors} label=${`${count(one.count, "call")}, at most ${Math.max(0, ...one.counts)} in ${STEP} seconds`} />`, "sparks"],
    [title("Calls"), (one) => number(one.count), "number"],
    ["A second", (one) => (rate(one) < 0.1 ? rate(one).toFixed(3) : rate(one).toFixed(1)), "number"],
    [title("Errors"), (one) => html`<span class=${one.failed ? "fault" : ""}>${number(one.failed)}${one.failed ? ` (${((one.failed / one.count) * 100).toFixed(one.failed / one.count < 0.1 ? 1 : 0)} %)` : ""}</span>`, "number"],
    ...["p50", "p95", "p99"].map((name) => [title(name), (one) => millis(one[name]), "number"]),
    [title("Bytes"), (one) => bytes(one.bytes), "number"],
    ["Tokens of its entry", (one) => (tokens.has(JSON.stringify([one.service, one.target])) ? `about ${number(tokens.get(JSON.stringify([one.service, one.target])))}` : ""), "number"],
  ];
  return view(html`<h1>Methods</h1><${Range} words="These numbers are of the rows that the timeline has of it." filtered=${true} />${!at && note("Of the last 15 minutes.")}${wrong && fault(wrong)}
  ${shown && html`<${Last} key=${opened} one=${shown} at=${at} close=${() => open("")} />`}
  ${all.length ? plain("Methods", columns, all.slice(0, MOST.listed), (one) => ({ key: idOf(one), class: idOf(one) === opened ? "active" : "" })) : note(found ? "Nothing was called." : "◌ Looking…")}${all.length > MOST.listed && note(`${number(all.length - MOST.listed)} more.`)}`);
}

// -- errors

function groupOf(all) {
  const found = new Map();
  for (const one of all) {
    const key = JSON.stringify([one.outcome, one.code, one.text]);
    const group = found.get(key) ?? { outcome: one.outcome, code: one.code, text: one.text, count: 0, first: one.time, last: one.time, methods: [] };
    found.set(key, group);
    group.count++;
    group.first = Math.min(group.first, one.time);
    group.last = Math.max(group.last, one.time);
    if (!group.methods.includes(nameOf(one)) && group.methods.length < 10) group.methods.push(nameOf(one));
  }
  return [...found.values()].sort((a, b) => b.count - a.count || b.last - a.last);
}

const GROUPS = [
  ["How many", (one) => number(one.count), "number"],
  ["Outcome", stateOf],
  ["Text", (one) => html`<${Long} text=${one.text ?? ""} most=${200} /><div><${Advice} one=${one} /></div>`],
  ["Methods", (one) => html`<span class="note">${one.methods.map((name) => short(name, 60)).join(", ")}</span>`],
  ["First", (one) => clock(one.first), "number"],
  ["Last", (one) => clock(one.last), "number"],
];
const EACH = [
  ["When", (one) => exact(one.time), "narrow-cell"],
  ["Outcome", stateOf],
  ["Method", (one) => html`<b>${short(nameOf(one), 80)}</b> <span class="note">${short(one.service, 40)}</span>`],
  ["Text", (one) => short(one.text, 200), "broad"],
  ["Caller", (one) => html`${short(one.remote, 60)} <span class="note">${one.wire}</span>`],
];

function Errors() {
  const [found, wrong] = useAsked("errors", 3);
  const at = range.use();
  const [opened, open] = useState();
  const all = useMemo(() => list(found?.errors).map((one, n, { length }) => ({ ...one, key: `${one.time} ${one.id} ${length - n}` })).filter((one) => within(at, one.time)), [found, at]);
  const groups = useMemo(() => (at ? groupOf(all) : list(found?.groups)), [all]);
  return view(html`<h1>Errors</h1><${Range} words="" />${wrong && fault(wrong)}
  ${groups.length ? html`${plain("Groups of errors", GROUPS, groups.slice(0, 100))}${groups.length > 100 && note(`${number(groups.length - 100)} more groups.`)}<h2>Each, the newest first</h2>` : note(found ? "There are none." : "◌ Looking…")}
  ${opened && html`<${Panel} key=${opened.key} label="One error" close=${() => open()} head=${html`${short(nameOf(opened))} ${stateOf(opened)}`}><p class="fault"><${Long} text=${opened.text ?? ""} /></p><p><${Advice} one=${opened} /></p>${about(opened, ["When", exact(opened.time)])}<//>`}
  ${all.length > 0 && html`<${Rows} label="Errors, the newest first" columns=${EACH} rows=${all} keyOf=${(one) => one.key} open=${open} opened=${opened?.key} />`}`);
}

addView("methods", () => "Methods", Methods);
addView("errors", () => "Errors", Errors);
