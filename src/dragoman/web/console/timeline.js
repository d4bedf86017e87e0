// A quarter of an hour: what has ended, and what goes on, in lanes on a canvas; a range of it, which every view keeps
// to; and the same as a table.
import { html, addView, useState, useEffect, useLayoutEffect, useRef, useMemo, button, small, pick, note, short, count, number, Long } from "../kit.js";
import { breaks, now, filter, missed } from "./door.js";
import { rows, state, load, keyOf, SPAN } from "./rows.js";
import { view, typed, Filter, Panel, narrow, Rows, about, millis, bytes, clock, exact, seconds, nameOf, callerOf, stateOf, FAILED, range, within, Range } from "./parts.js";

const LANES = { most: 12, tall: 22, axis: 18 };
const BY = [["caller", (one) => one.principal || one.remote.replace(/:\d+$/, "") || "–"], ["connection", (one) => one.session || one.remote || "–"], ["method", nameOf]];
const KINDS = { good: "result", failed: "error", asked: "question to a client", open: "stream, or in flight" };
const kindOf = (one) => (one.outcome === undefined || one.kind === "stream" ? "open" : FAILED.has(one.outcome) ? "failed" : one.direction === "out" ? "asked" : "good");

// The lanes with most in them, the rest in one.
function lanesOf(all, nameIn) {
  const found = new Map();
  for (const one of all) {
    const name = nameIn(one);
    found.has(name) ? found.get(name).push(one) : found.set(name, [one]);
  }
  const lanes = [...found].sort((a, b) => b[1].length - a[1].length);
  const rest = lanes.splice(LANES.most);
  if (rest.length) lanes.push([`${number(rest.length)} others`, rest.flatMap(([, those]) => those)]);
  return lanes;
}

function paint(canvas, lanes, colors, end, at) {
  const [wide, tall] = [canvas.clientWidth, canvas.clientHeight];
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(tall * scale)) [canvas.width, canvas.height] = [Math.round(wide * scale), Math.round(tall * scale)];
  const brush = canvas.getContext("2d");
  brush.setTransform(scale, 0, 0, scale, 0, 0);
  brush.clearRect(0, 0, wide, tall);
  const x = (time) => ((time - end + SPAN) / SPAN) * wide;
  brush.fillStyle = brush.strokeStyle = colors.soft;
  brush.font = "11px system-ui, sans-serif";
  const step = wide < 500 ? 300 : wide < 900 ? 180 : 60;
  for (let time = Math.ceil((end - SPAN) / step) * step; time < end; time += step) {
    brush.globalAlpha = 0.25;
    brush.fillRect(Math.round(x(time)), 0, 1, tall - LANES.axis);
    brush.globalAlpha = 1;
    if (x(time) + 34 < wide) brush.fillText(clock(time).slice(0, 5), x(time) + 2, tall - 5);
  }
  for (const kind of ["open", "good", "asked", "failed"]) {
    brush.fillStyle = colors[kind];
    brush.globalAlpha = kind === "open" ? 0.4 : 1; // it may last for all of the time, over all others
    lanes.forEach(([, those], n) => {
      let drawn = -1; // up to there, of those that are narrow: many are at one place
      for (const one of those) {
        if (kindOf(one) !== kind) continue;
        const left = Math.floor(x(one.time));
        const right = Math.max(left + 2, x(one.ended ?? end));
        if (right < 0 || right <= drawn) continue;
        if (right <= left + 2) drawn = right;
        brush.fillRect(left, n * LANES.tall + 3, right - left, LANES.tall - 6);
      }
    });
  }
  if (!at) return;
  brush.fillStyle = colors.soft;
  brush.globalAlpha = 0.35;
  brush.fillRect(0, 0, x(at.from), tall - LANES.axis);
  brush.fillRect(x(at.to), 0, wide - x(at.to), tall - LANES.axis);
  brush.globalAlpha = 1;
}

// The canvas. It is drawn, so that it says nothing to who does not see it: the table below is the same in words.
function Picture({ all, by, end, open }) {
  const canvas = useRef();
  const legend = useRef();
  const [drawn, redraw] = useState(0);
  const [drag, setDrag] = useState();
  const at = range.use();
  const lanes = useMemo(() => lanesOf(all, BY[by][1]), [all, by]);
  useLayoutEffect(() => {
    const colors = Object.fromEntries([...legend.current.querySelectorAll("i")].map((one) => [one.className, getComputedStyle(one).color]));
    paint(canvas.current, lanes, colors, end, drag ?? at);
  }, [lanes, end, at, drag, drawn]);
  useEffect(() => {
    const again = () => redraw((n) => n + 1);
    const watch = new ResizeObserver(again);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    watch.observe(canvas.current);
    dark.addEventListener("change", again);
    return () => (watch.disconnect(), dark.removeEventListener("change", again));
  }, []);
  const timeOf = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return end - SPAN + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * SPAN;
  };
  const spanOf = (from, event) => ({ start: from, from: Math.min(from, timeOf(event)), to: Math.max(from, timeOf(event)) });
  const down = (event) => (event.currentTarget.setPointerCapture(event.pointerId), setDrag(spanOf(timeOf(event), event)));
  const up = (event) => {
    const { start, from, to } = spanOf(drag.start, event);
    setDrag();
    const near = SPAN / canvas.current.clientWidth;
    if (to - from > 4 * near) return range.set({ from, to });
    const lane = lanes[Math.floor((event.clientY - canvas.current.getBoundingClientRect().top) / LANES.tall)]?.[1] ?? [];
    const hit = lane.findLast((one) => one.ended && one.time - 2 * near <= start && one.ended + 3 * near >= start);
    if (hit) open(hit);
  };
  const slide = (name) => (event) => {
    const time = end + Number(typed(event));
    const next = { from: end - SPAN, to: end, ...at, [name]: time };
    range.set(next.from <= next.to ? next : { from: time, to: time });
  };
  const slider = (name, words, usual) => {
    const value = Math.round(Math.max(-SPAN, Math.min(0, at ? at[name] - end : usual)));
    return html`<label>${words} <input type="range" min=${-SPAN} max="0" step="5" value=${value} aria-valuetext=${`${seconds(-value)} ago`} onInput=${slide(name)} /></label>`;
  };
  const words = `${count(all.length, "span")} in ${count(lanes.length, "lane")} by ${BY[by][0]}. The table below has them.`;
  return html`<div class="picture"><ul class="lanes" aria-hidden="true">${lanes.map(([name]) => html`<li>${short(name, 60)}</li>`)}</ul><canvas ref=${canvas} role="img" aria-label=${words} style=${{ height: `${Math.max(1, lanes.length) * LANES.tall + LANES.axis}px` }} onPointerDown=${down} onPointerMove=${drag && ((event) => setDrag(spanOf(drag.start, event)))} onPointerUp=${drag && up} onPointerCancel=${() => setDrag()} /></div>
  <div class="sliders">${slider("from", "From", -SPAN)}${slider("to", "To", 0)}<p class="legend" ref=${legend}>${Object.entries(KINDS).map(([kind, said]) => html`<span><i class=${kind}>■</i> ${said}</span> `)}<i class="soft" /></p></div>`;
}

// All of one row, and what it belongs to.
function Detail({ one, all, open, close }) {
  const parent = one.parent && all.find(({ id }) => id === one.parent);
  const children = all.filter((other) => other.parent === one.id);
  const to = (other) => button(`${short(nameOf(other), 60)} ${short(other.id, 30)}`, () => open(other), { class: "plain" });
  const only = (words, term) => term && small(words, () => narrow("timeline", term));
  const word = (name, value) => value && !/\s/.test(value) && `${name}:${value}`;
  return html`<${Panel} label="One call" close=${close} head=${html`${short(nameOf(one))} ${stateOf(one)}`}>
  ${one.text && html`<p class=${FAILED.has(one.outcome) ? "fault" : ""}><${Long} text=${one.text} most=${600} /></p>`}
  ${about(one, ["Began", exact(one.time)], ["Ended", exact(one.ended)], ["Took", millis(one.ms)], ["Waited", one.wait == null ? "never started" : millis(one.wait)], ["Kind", `${one.kind}${one.direction === "out" ? ", sent by this server" : ""}`], ["Bytes", `${bytes(one.received ?? 0)} in, ${bytes(one.sent ?? 0)} out`], ["Belongs to", one.parent && (parent ? to(parent) : `${short(one.parent, 60)}, which is in flight or not kept`)], ["Has", children.length > 0 && html`${children.slice(0, 20).map((other) => html`${to(other)} `)}${children.length > 20 && count(children.length - 20, "other")}`])}
  <div class="bar">${only("Only this method", word("method", one.method))}${only("Only this principal", word("principal", one.principal))}${only("Only this session", word("session", one.session))}</div><//>`;
}

const COLUMNS = [
  ["Ended", (one) => exact(one.ended), "narrow-cell"],
  ["Call", (one) => html`<b>${short(nameOf(one), 80)}</b> <span class="note">${one.target ? short(one.method, 40) : ""}</span>`],
  ["Outcome", (one) => html`${stateOf(one)} <span class="note">${short(one.text, 100)}</span>`],
  ["Took", (one) => millis(one.ms), "number narrow-cell"],
  ["Waited", (one) => millis(one.wait), "number narrow-cell"],
  ["Caller", (one) => html`${short(callerOf(one), 60)} <span class="note">${one.wire}</span>`],
  ["Service", (one) => short(one.service, 60)],
  ["Bytes", (one) => `${bytes(one.received ?? 0)} → ${bytes(one.sent ?? 0)}`, "number"],
];

function Timeline({ query = "" }) {
  const all = rows.use();
  const line = now.use();
  const at = range.use();
  const wrong = state.use();
  const lost = missed.use();
  const [by, setBy] = useState(0);
  const [opened, open] = useState();
  const [kept, keep] = useState(); // what is shown while its reader is below the top
  useEffect(() => void load(query), [query, breaks.use()]);
  const end = Math.max(line.time, all.at(-1)?.ended ?? 0) || Date.now() / 1000;
  const spans = useMemo(() => {
    const fitting = query ? [] : line.calls.map((one) => ({ ...one, time: line.time - one.age }));
    return [...all.filter((one) => one.ended > end - SPAN), ...fitting];
  }, [all, line, query]);
  const live = useMemo(() => all.filter((one) => within(at, one.time, one.ended)).reverse(), [all, at]);
  const shown = kept?.at === at && kept?.query === query ? kept.live : live;
  const waiting = live.length - shown.length;
  const held = (away) => keep((before) => (away ? (before?.at === at && before?.query === query ? before : { live, at, query }) : undefined));
  return view(html`<h1>Timeline</h1><${Range} words="Every view keeps to it." />
  <${Filter} name="timeline" query=${query} wrong=${wrong.length > 1 && wrong} example="method:orders status:error ms:>500 principal:ada"><label class="by">Lanes by ${pick(BY.map(([name]) => name), by, setBy)}</label><//>
  ${lost > 0 && html`<p class="warn">Rows are missing here. ${small("Read them again", () => load())}</p>`}
  <${Picture} all=${spans} by=${by} end=${end} open=${open} />
  ${opened && html`<${Detail} key=${keyOf(opened)} one=${opened} all=${all} open=${open} close=${() => open()} />`}
  <p class="note" role="status">${wrong === "…" ? "◌ Looking…" : count(shown.length, "row")}${waiting > 0 ? `; ${count(waiting, "new one")} above: scroll to the top` : ""}${all.length && !query ? `; the oldest of ${clock(all[0].ended)}` : ""}</p>
  <${Rows} label="What has ended, the newest first" columns=${COLUMNS} rows=${shown} keyOf=${keyOf} open=${open} opened=${opened && keyOf(opened)} held=${held} />
  ${note("Arrow keys go through the rows, Enter opens one.")}`);
}

addView("timeline", () => (range.use() || filter.use() ? "Timeline ⏱" : "Timeline"), Timeline);
