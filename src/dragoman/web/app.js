// The page: its head, and the view that the fragment names. Parts that are imported here add their views.
import { html, render, route, views, hrefOf, small, clean, useErrorBoundary } from "./kit.js";
import { begin } from "./docs.js";

const Tab = ({ name, title, current }) => html`<a href=${hrefOf(name, [])} aria-current=${current ? "page" : undefined}>${title()}</a>`;

// What cannot be drawn takes no other view along.
function Shown({ Main, ...given }) {
  const [fault] = useErrorBoundary();
  return fault ? html`<main class="alone"><p class="fault" role="alert">✖ This cannot be shown: ${clean(fault.message)}</p></main>` : html`<${Main} ...${given} />`;
}

function App() {
  const { view, parts, query } = route.use();
  const shown = views.get(view) ?? views.get("docs");
  return html`${small("Skip to the content", () => document.getElementById("main").focus(), { class: "skip" })}<header><b>dragoman</b><nav aria-label="Views">${[...views.values()].map((one) => html`<${Tab} key=${one.name} ...${one} current=${one === shown} />`)}</nav></header><${Shown} key=${[view, ...parts].join()} Main=${shown.Main} parts=${parts} query=${query} />`;
}

const page = document.getElementById("page");
page.replaceChildren();
render(html`<${App} />`, page);
begin();
