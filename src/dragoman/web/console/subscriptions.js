// The subscriptions to events: where these are posted to and how that goes; how one is ended, or tried again.
import { html, addView, useState, button, pick, box, fault, short, count, number, list, small } from "../kit.js";
import { ask, may, now } from "./door.js";
import { order, tile, Done } from "./now.js";
import { view, Panel, Rows, Filter, facts, seconds, clock, usePages, range, Range } from "./parts.js";

const STATES = { active: "✔ active", retrying: "◌ retrying", resting: "◼ resting" };
const KINDS = { retrying: "warn", resting: "fault" };
const COUNTS = { emitted: "emitted", delivered: "delivered", failed: "attempts failed", abandoned: "given up", streams: "streams open" };

const stateOf = (one) => html`<span class=${KINDS[one.state]}>${STATES[one.state]}</span>`;
const idOf = (one) => one.id.split(":").pop();
const whoOf = (one) => short(one.principal, 60) || "–";
const inTime = (at, time) => (at > time ? `in ${seconds(at - time)}` : "now");
const when = (at) => at !== undefined && `${clock(at)}, ${new Date(at * 1000).toLocaleDateString()}`;

function Detail({ one, close, put, again, time }) {
  const done = (said) => (all) => (put(all.map(({ error }) => ({ id: `${one.name} to ${one.receiver}`, error })), said), again());
  const end = () => order("subscriptions/end", html`<h2>End this subscription?</h2><p><code>${short(one.name)}</code> to ${short(one.receiver, 100)} for ${whoOf(one)}</p><p>Nothing more is posted there. Its client may subscribe again.</p>`, "End it", [one.id], (all) => (done("has ended")(all), close()));
  const retry = () => ask("subscriptions/retry", { ids: [one.id] }).then((answered) => done("is tried again")(answered.done), ({ message }) => done("")([{ error: message }]));
  const tools = may.use().includes("console:stop") && html`${one.state !== "active" && button("Try again now", retry, { class: "small" })}${button("End…", end, { class: "small stop" })}`;
  return html`<${Panel} label="One subscription" close=${close} head=${html`${short(one.name)} ${stateOf(one)}`} tools=${tools}>
  ${facts([["Receiver", short(one.receiver, 100)], ["Caller", whoOf(one)], ["Issuer", short(one.issuer, 100)], ["Server", short(one.server, 100)], ["Position", number(one.position)], ["Behind", number(one.behind)], ["Attempts", one.attempts > 0 && number(one.attempts)], ["Next try", one.due && `${inTime(one.due, time)} (${clock(one.due)})`], ["Last refusal", one.state !== "active" && short(one.refusal, 60)], ["Failing since", when(one.refused)], ["Last accepted", when(one.delivered) || "never"], ["Expires", when(one.expires)], ["Delivers", one.worker || (one.here ? "this process" : "another process")], ["Id", html`<code>${short(idOf(one), 60)}</code>`]])}
  ${one.arguments && html`<h2>Arguments</h2>${box(one.arguments)}`}<//>`;
}

const columns = (time) => [
  ["State", stateOf, "narrow-cell"],
  ["Event", (one) => html`<b>${short(one.name, 80)}</b> <span class="note">${short(one.server, 60)}</span>`, "broad"],
  ["Receiver", (one) => short(one.receiver, 100)],
  ["Caller", whoOf],
  ["Behind", (one) => number(one.behind), "number narrow-cell"],
  ["Last refusal", (one) => one.state !== "active" && html`${short(one.refusal, 60)}${one.attempts > 0 && ` · ${one.attempts}×`}`],
  ["Next try", (one) => one.due && inTime(one.due, time), "number narrow-cell"],
  ["Expires", (one) => clock(one.expires), "number narrow-cell"],
];

function Subscriptions({ query = "" }) {
  const [state, setState] = useState(0);
  const [opened, open] = useState();
  const [done, setDone] = useState();
  const time = now.use().time || Date.now() / 1000;
  const { found, wrong, again, all, next } = usePages(`subscriptions?limit=100&state=${["", ...Object.keys(STATES)][state]}&q=${encodeURIComponent(query)}`, "subscriptions", "after");
  const one = all.find(({ id }) => id === opened?.id) ?? opened;
  const kept = Object.values(found?.kept ?? {});
  const sum = (name) => kept.reduce((n, those) => n + those[name], 0);
  const bad = { retrying: true, resting: true, abandoned: true };
  const tiles = [...["subscriptions", "retrying", "resting"].map((name) => [name, name, sum(name)]), ...Object.entries(COUNTS).map(([name, title]) => [name, title, found?.counts?.[name] ?? 0])];
  return view(html`<h1>Event subscriptions</h1>${range.use() && html`<${Range} words="It does not apply here: this is how they are now." />`}${list(found?.away).map((name) => html`<p class="warn">The subscriptions of ${short(name, 100)} cannot be read now.</p>`)}
  <${Done} done=${done?.all} said=${done?.said} clear=${() => setDone()} />
  ${found && html`<dl class="tiles">${tiles.map(([name, title, n]) => tile(title, number(n), bad[name] && n > 0))}</dl>`}
  <${Filter} name="subscriptions" query=${query} wrong=${query && wrong} example="Words of event, receiver, caller or id"><label class="by">State ${pick(["any", ...Object.values(STATES)], state, setState)}</label><//>${!query && wrong && fault(wrong)}
  ${one && html`<${Detail} key=${one.id} one=${one} close=${() => open()} put=${(all, said) => setDone({ all, said })} again=${again} time=${time} />`}
  <p class="note" role="status">${found || wrong ? count(all.length, "subscription") : "◌ Looking…"}. ${next && small("More", next)}</p>
  <${Rows} label="Subscriptions, by their events" columns=${columns(time)} rows=${all} keyOf=${({ id }) => id} open=${open} opened=${one?.id} />`);
}

export const open = () => addView("subscriptions", () => "Events", Subscriptions);
