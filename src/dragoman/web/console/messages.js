// The messages themselves, where the server keeps them: masked and cut, with those that its reader pins.
import { html, store, addView, useState, useEffect, Copy, Long, button, small, short, count, list } from "../kit.js";
import { useAsked, ask } from "./door.js";
import { view, Filter, Panel, Rows, about, millis, bytes, exact, stateOf, nameOf, range, within, Range } from "./parts.js";

const MOST = { page: 200, pins: 50 };
const pins = store([]); // of this tab
const keyOf = (one) => `${one.worker ?? ""} ${one.seq} ${one.time}`;
const quote = (word) => `'${word.replaceAll("'", `'\\''`)}'`;
const isCut = (one) => /\*\*\*|…$/.test(one.text) || new TextEncoder().encode(one.text).length < one.size;

const curl = (one) => `curl "$URL" -H 'Content-Type: application/json' -H 'Accept: application/json' \\\n  --data-raw ${quote(one.text)}\n`;
function test(one, answer) {
  const name = nameOf(one).replace(/\W+/g, "_").toLowerCase().slice(0, 60);
  const said = answer ? [`expected = ${JSON.stringify(answer.text)}`, "answer = service.answer(sent.encode())", "assert answer is not None", "assert answer.decode() == expected"] : ["assert service.answer(sent.encode()) is None"];
  return [`from my_module import service\n\n\ndef test_${name}() -> None:`, `sent = ${JSON.stringify(one.text)}`, ...said].join("\n    ") + "\n";
}

// The answer to a message that came in.
const answerTo = (one, all) => all.find((other) => other.direction === "out" && other.id === one.id && other.service === one.service && other.remote === one.remote && (other.session ?? "") === (one.session ?? "") && other.time >= one.time);

function Detail({ one, all, close }) {
  const pinned = pins.use().some((other) => keyOf(other) === keyOf(one));
  const toggle = () => pins.set((before) => (pinned ? before.filter((other) => keyOf(other) !== keyOf(one)) : [one, ...before].slice(0, MOST.pins)));
  const owed = one.id !== undefined && one.id !== null && one.id !== "";
  const answer = owed && answerTo(one, all);
  const whole = !isCut(one);
  return html`<${Panel} label="One message" close=${close} head=${`${one.direction === "in" ? "→" : "←"} ${short(nameOf(one))}`} tools=${html`${small(pinned ? "Unpin" : "Pin", toggle, { "aria-pressed": pinned })}${one.direction === "in" && html`<${Copy} words="Copy as curl" text=${() => curl(one)} />${(answer || !owed) && html`<${Copy} words="Copy as a test" text=${() => test(one, answer)} />`}`}`}>
  ${!whole && html`<p class="notice">⚠ What is secret is masked, and long messages are cut: this is not all of it.</p>`}
  <pre tabindex="0"><${Long} text=${one.text} most=${20_000} /></pre>${about(one, ["When", exact(one.time)], ["Outcome", one.outcome && stateOf(one)], ["Took", one.ms !== undefined && millis(one.ms)], ["Size", bytes(one.size)])}<//>`;
}

const COLUMNS = [
  ["When", (one) => exact(one.time), "narrow-cell"],
  ["Message", (one) => html`${one.direction === "in" ? "→" : "←"} <b>${short(nameOf(one), 80)}</b>`],
  ["Text", (one) => short(one.text, 300), "broad"],
  ["Outcome", (one) => (one.outcome ? stateOf(one) : ""), "narrow-cell"],
  ["Took", (one) => (one.ms === undefined ? "" : millis(one.ms)), "number narrow-cell"],
  ["Size", (one) => bytes(one.size), "number narrow-cell"],
  ["Remote", (one) => html`${short(one.remote, 60)} <span class="note">${one.wire}</span>`],
];

function Messages({ query = "" }) {
  const path = `messages?limit=${MOST.page}&q=${encodeURIComponent(query)}`;
  const [found, wrong] = useAsked(path, 2);
  const [opened, open] = useState();
  const [older, setOlder] = useState([]);
  const [failed, fail] = useState("");
  const pinned = pins.use();
  const at = range.use();
  useEffect(() => setOlder([]), [query]);
  const newest = list(found?.messages);
  const known = new Set(newest.map(keyOf));
  const all = [...newest, ...older.filter((one) => !known.has(keyOf(one)))];
  const shown = all.filter((one) => within(at, one.time));
  const more = () => ask(`${path}&before=${all.at(-1).time}`).then(({ messages }) => (setOlder([...all, ...messages]), fail("")), ({ message }) => fail(message));
  return view(html`<h1>Messages</h1><${Range} words="" />
  <${Filter} name="messages" query=${query} wrong=${wrong || failed} example="method:orders direction:in status:error" />
  ${opened && html`<${Detail} key=${keyOf(opened)} one=${opened} all=${[...all, ...pinned]} close=${() => open()} />`}
  ${pinned.length > 0 && html`<h2>Pinned in this tab</h2><ul>${pinned.map((one) => html`<li>${button(`${exact(one.time)} ${one.direction === "in" ? "→" : "←"} ${short(nameOf(one), 80)}`, () => open(one), { class: "plain" })} <code>${short(one.text, 120)}</code></li>`)}</ul>`}
  <p class="note" role="status">${count(shown.length, "message")}${found?.kept === undefined ? "" : ` of ${count(found.kept, "kept one")}`}. ${all.length >= MOST.page && small("Older ones", more)}</p>
  <${Rows} label="Messages, the newest first" columns=${COLUMNS} rows=${shown} keyOf=${keyOf} open=${open} opened=${opened && keyOf(opened)} />`);
}

export const open = () => addView("messages", () => "Messages", Messages);
