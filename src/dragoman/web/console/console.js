// The console: its views in the frame, behind the secret.
import { html, draw, route, views, small, clean, number, useState, useEffect } from "../kit.js";
import { ask, begin, link, locked, may, missed, unlock } from "./door.js";
import "./now.js";
import "./timeline.js";
import "./methods.js";
import "./server.js";
import * as messages from "./messages.js";
import * as subscriptions from "./subscriptions.js";
import * as tasks from "./tasks.js";
import { Sure, view, typed } from "./parts.js";

const TRY = "console:try";

function Lock() {
  const [text, setText] = useState("");
  const words = locked.use();
  const use = (event) => (event.preventDefault(), setText(""), unlock(text));
  return view(html`<h1>The console is locked</h1><form class="token" onSubmit=${use}><p class="notice" role="alert">⚠ ${clean(words)}</p><label>Secret, or a token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(typed(event))} /></label><div class="bar"><button class="main">Use it</button></div><p class="note">The secret is behind the <code>#</code> of the URL that was printed when the server started. Only this tab keeps it.</p></form>`);
}

const behind = (Main) => (given) => (locked.use() ? html`<${Lock} />` : html`<${Main} ...${given} />`);
const lockable = new Set();
function show() {
  for (const one of views.values()) if (!lockable.has(one)) lockable.add(one), (one.Main = behind(one.Main));
  route.set({ ...route.get() });
}

// The views that not every server and not every reader has.
async function look(tries) {
  if (tries) await (await import("./try.js")).open();
  else for (const name of ["docs", "history"]) views.delete(name);
  for (const [name, { open }] of Object.entries({ tasks, subscriptions, messages })) if (await ask(`${name}?limit=1`).catch(() => null)) open();
  show();
}

function Above() {
  const words = link.use();
  const rows = missed.use();
  const allowed = may.use();
  const tries = allowed.includes(TRY);
  useEffect(() => allowed.length > 0 && void look(tries), [allowed.length > 0, tries]);
  return html`<${Sure} />${!locked.use() && html`${words && html`<p class="link fault" role="status">◌ ${clean(words)}</p>`}${rows > 0 && html`<p class="link warn" role="status">This page was too slow, or too much happened: you missed ${number(rows)} rows. ${small("Dismiss", () => missed.set(0))}</p>`}`}`;
}

draw({ home: "now", Above });
show();
begin();
