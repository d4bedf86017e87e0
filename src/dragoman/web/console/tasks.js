// The tasks of what is served: how far each is, what it asks, what came of it; and how it is cancelled.
import { html, addView, useState, useEffect, useRef, button, small, pick, box, note, fault, short, count, list, Long } from "../kit.js";
import { ask, may, now, useAsked } from "./door.js";
import { order, Done } from "./now.js";
import { view, words, hasAll, Panel, Rows, facts, seconds, clock, exact, usePages, range, within, Range } from "./parts.js";

const STATES = { working: "◌ working", input_required: "? asks", completed: "✔ completed", failed: "✖ failed", cancelled: "◼ cancelled" };
const KINDS = { input_required: "warn", failed: "fault" };
const ENDED = ["completed", "failed", "cancelled"];

const nameOf = (one) => one.target || one.method;
const hasEnded = (one) => ENDED.includes(one.status);
const stateOf = (one) => html`<span class=${KINDS[one.tool_error ? "failed" : one.status]}>${one.cancelling ? "◌ cancelling" : one.tool_error ? "✖ tool error" : STATES[one.status]}</span>`;
const runnerOf = (one) => one.worker || (one.here ? "this process" : one.runner ? `another: ${one.runner.slice(0, 8)}` : "–");
const textsOf = (one) => [one.task, one.target, one.method, one.service, one.principal, one.message, one.worker].map((text) => text ?? "");

const progressOf = ({ progress, total, status }) => progress !== undefined && !ENDED.includes(status) && html`${total > 0 && html`<progress value=${progress} max=${total} aria-label="Progress" /> `}${short(progress, 12)}${total === undefined ? "" : ` of ${short(total, 12)}`}`;

// The form of a question is that of the documentation's views, which are there for whoever may call.
function Questions({ questions, answer }) {
  const [Question, set] = useState();
  useEffect(() => void import("../docs.js").then((docs) => set(() => docs.Question)), []);
  return Question && Object.entries(questions).map(([key, { method, params = {} }]) => html`<${Question} key=${key} method=${method} params=${params} answer=${(said) => answer(key, said)} />`);
}

function Detail({ row, close, put, again }) {
  const [found, wrong, look] = useAsked(`tasks?id=${encodeURIComponent(row.id)}`, 1);
  const allowed = may.use();
  const one = found?.task ?? row;
  const questions = one.questions ?? {};
  const done = (said) => (all) => (put(all.map(({ error }) => ({ id: `${nameOf(row)} ${row.task}`, error })), said), look(), again());
  const cancel = () => order("tasks/cancel", html`<h2>Cancel this task?</h2><p><code>${short(nameOf(one))}</code> of ${short(one.service, 60)}${one.principal && ` for ${short(one.principal, 60)}`}, ${seconds(now.get().time - one.created)} old</p><p>Its result will not be there. What runs in a thread goes on until it returns.</p>`, "Cancel it", [row.id], done("is to be cancelled"));
  const answer = (key, said) => (said === null ? close() : ask("tasks/answer", { id: row.id, answers: { [key]: said } }).then((answered) => done("answered")(answered.done), ({ message }) => done("")([{ error: message }])));
  const text = (title, value) => value && html`<h2>${title}</h2>${box(value)}`;
  const open = one.questions_open ?? 0;
  const asks = Object.keys(questions).length;
  const asked = useRef(0);
  useEffect(() => {
    if (asks < asked.current) document.querySelector(".detail h2").focus(); // the form that had it is gone
    asked.current = asks;
  }, [asks]);
  return html`<${Panel} label="One task" close=${close} head=${html`${short(nameOf(one))} ${stateOf(one)}`} tools=${allowed.includes("console:stop") && !hasEnded(one) && button("Cancel the task…", cancel, { class: "small stop", disabled: one.cancelling })}>
  ${wrong && fault(wrong)}${one.message && !asks && html`<p class=${KINDS[one.status]}><${Long} text=${one.message} most=${600} /></p>`}<p>${progressOf(one)}</p>
  ${asks > 0 && html`<${Questions} questions=${questions} answer=${answer} />`}${open > asks && found && note(`It waits for ${count(open, "answer")}, of which ${asks || "none"} can be given here.`)}
  ${facts([["Service", short(one.service, 100)], ["Caller", short(one.principal, 100)], ["Began", exact(one.created)], ["Changed", exact(one.updated)], [hasEnded(one) ? "Took" : "Age", seconds((hasEnded(one) ? one.updated : now.get().time) - one.created)], ["Kept until", one.until !== undefined && clock(one.until)], ["Runs", one.runs > 1 && short(one.runs, 10)], ["Runner", !hasEnded(one) && runnerOf(one)], ["In logs", `task ${short(one.task, 12)}`]])}
  ${text("Arguments", one.arguments)}${text("Result", one.result)}${text("Error", one.error)}<//>`;
}

const columns = (time) => [
  ["State", stateOf, "narrow-cell"],
  ["Task", (one) => html`<b>${short(nameOf(one), 80)}</b> <span class="note">${short(one.service, 60)}</span>`],
  ["Progress", progressOf, "narrow-cell"],
  ["Message", (one) => short(one.message, 300), "broad"],
  ["Age", (one) => seconds(Math.max(0, time - one.created)), "number narrow-cell"],
  ["Caller", (one) => short(one.principal, 60) || "–"],
  ["Runner", (one) => (hasEnded(one) ? "–" : short(runnerOf(one), 60))],
];

function Tasks() {
  const [state, setState] = useState(0);
  const path = `tasks?limit=100&status=${["", ...Object.keys(STATES)][state]}`;
  const { found, wrong, again, all, next } = usePages(path, "tasks", "before");
  const [opened, open] = useState();
  const [value, setValue] = useState("");
  const [done, setDone] = useState();
  const at = range.use();
  const time = now.use().time || Date.now() / 1000;
  const shown = all.sort((a, b) => b.created - a.created).filter((one) => within(at, one.created, hasEnded(one) ? one.updated : time) && hasAll(value, textsOf(one)));
  return view(html`<h1>Tasks</h1><${Range} words="Tasks that were there then are shown." />${wrong && fault(wrong)}${list(found?.away).map((name) => html`<p class="warn">The tasks of ${short(name, 100)} cannot be read now.</p>`)}
  <${Done} done=${done?.all} said=${done?.said} clear=${() => setDone()} />
  <div class="bar">${words(value, setValue)}<label class="by">State ${pick(["any", ...Object.values(STATES)], state, setState)}</label></div>
  ${opened && html`<${Detail} key=${opened.id} row=${opened} close=${() => open()} put=${(all, said) => setDone({ all, said })} again=${again} />`}
  <p class="note" role="status">${found || wrong ? count(shown.length, "task") : "◌ Looking…"}. ${next && small("Older ones", next)}</p>
  <${Rows} label="Tasks, the newest first" columns=${columns(time)} rows=${shown} keyOf=${(one) => one.id} open=${open} opened=${opened?.id} />`);
}

export const open = () => addView("tasks", () => "Tasks", Tasks);
