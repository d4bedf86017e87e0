// A form for any JSON Schema. `plan` says which control a schema gets; what none fits gets a box for JSON. Nothing is
// validated here: the server says what is wrong, and its words are shown beside the fields. References are followed
// when a field is drawn, and optional parts are drawn when their reader adds them: schemas may be recursive.
import { html, useState, useEffect, useId, clean, short, prose, small, note, fault, pick, decode, isObject, isRaw, own, list, same, label, number, integer, parse, pretty } from "./kit.js";

const MOST = { work: 30_000, references: 32, parts: 200, choices: 500, fields: 40, items: 100, deep: 8, drawn: 24 };

// What one wake-up of the page may look up: schemas of strangers may refer to themselves in every one of their parts.
let work = 0;

// The schema with its reference followed; null for one that leads nowhere.
export function resolve(schema, root) {
  if (!work++) setTimeout(() => (work = 0));
  if (work > MOST.work) return null;
  for (let n = 0; schema !== null && own(schema, "$ref") !== undefined; n++) {
    const { $ref, ...rest } = schema;
    if (n > MOST.references || !/^#(\/|$)/.test($ref)) return null;
    let target = root;
    for (const part of $ref.split("/").slice(1)) {
      const name = decode(part).replaceAll("~1", "/").replaceAll("~0", "~");
      target = Array.isArray(target) ? target[name] : own(target, name);
    }
    schema = isObject(target) ? { title: $ref.split("/").pop(), ...target, ...rest } : target === true ? rest : null;
  }
  return schema === true ? {} : isObject(schema) ? schema : null;
}

const merge = (a, b) => ({
  ...a,
  ...b,
  ...((a.properties || b.properties) && { properties: { ...a.properties, ...b.properties } }),
  ...((a.required || b.required) && { required: [...list(a.required), ...list(b.required)] }),
});

// The same with what `allOf` demands; null where that cannot be said in one.
function flatten(given, root, deep = 0) {
  const schema = resolve(given, root);
  if (!schema || schema.allOf === undefined) return schema;
  const { allOf, ...rest } = schema;
  const parts = list(allOf).slice(0, MOST.parts).map((part) => (deep < MOST.deep ? flatten(part, root, deep + 1) : null));
  return parts.includes(null) || parts.filter((one) => one.anyOf || one.oneOf).length > 1 ? null : [...parts, rest].reduce(merge, {});
}

const JSON_BOX = { kind: "json", schema: {} };
const KINDS = ["string", "integer", "number", "boolean", "null", "object"];
const MARKS = { object: ["properties", "required", "additionalProperties", "patternProperties"], array: ["items", "prefixItems"], string: ["pattern", "format", "minLength", "maxLength"], number: ["minimum", "maximum", "multipleOf"] };
const constant = (schema) => ("const" in schema ? [schema.const] : list(schema.enum).length === 1 ? schema.enum : null);
const isNull = (schema) => schema.type === "null" || constant(schema)?.[0] === null;

// Which control a schema gets: its kind, the schema without references, and what the control needs.
export function plan(given, root, deep = 0) {
  const schema = flatten(given, root);
  if (!schema || deep > MOST.deep) return JSON_BOX;
  const fixed = constant(schema);
  if (fixed) return { kind: "const", schema, value: fixed[0] };
  if (list(schema.enum).length > 0) return schema.enum.length > MOST.choices ? JSON_BOX : { kind: "enum", schema, values: schema.enum, words: schema.enum.map(label) };
  const { oneOf, anyOf = oneOf, discriminator, ...rest } = schema;
  if (list(anyOf).length > 0) return choice(rest, anyOf, own(discriminator, "propertyName"), root, deep);
  if (Array.isArray(schema.type)) return choice({ ...rest, type: undefined }, schema.type.map((type) => ({ type })), undefined, root, deep);
  const kind = schema.type ?? Object.keys(MARKS).find((one) => MARKS[one].some((name) => name in schema));
  if (kind !== "array") return KINDS.includes(kind) ? { kind, schema } : JSON_BOX;
  const first = list(schema.prefixItems ?? schema.items);
  const others = Array.isArray(schema.items) ? schema.additionalItems : schema.items;
  return { kind, schema, first, rest: others ?? (first.length > 0 && first.length === schema.maxItems ? false : {}) };
}

function choice(rest, branches, mark, root, deep) {
  const all = branches.slice(0, MOST.choices).map((one) => flatten(one, root));
  if (all.includes(null)) return JSON_BOX;
  const schema = all.find((one) => !isNull(one));
  const { title: _, ...base } = rest;
  const options = all.filter((one) => !isNull(one)).map((one) => merge(base, one));
  if (options.length === 0) return { kind: "null", schema: rest };
  const whole = options.length > 1 ? { ...rest, anyOf: options } : options[0];
  if (options.length === 1 || options.length < all.length) {
    const inner = plan(whole, root, deep + 1);
    return options.length === all.length || inner.kind === "nullable" ? inner : { kind: "nullable", schema: { ...schema, ...rest }, inner: whole };
  }
  if (options.every(constant)) return { kind: "enum", schema: rest, values: options.map((one) => constant(one)[0]), words: options.map((one) => one.title ?? label(constant(one)[0])) };
  return { kind: "choice", schema: rest, options, words: options.map((one) => nameOf(one, mark, root)) };
}

// What a form of a choice is called: the value of its mark, its title, its type.
function nameOf(schema, mark, root) {
  for (const name of mark ? [mark] : Object.keys(schema.properties ?? {}).slice(0, 20)) {
    const value = constant(resolve(own(schema.properties, name), root) ?? {});
    if (value) return `${name}: ${label(value[0])}`;
  }
  const inner = resolve(schema.items ?? null, root);
  return schema.title ?? (inner ? `array of ${inner.title ?? inner.type}` : `${schema.type ?? "any JSON"} ${schema.format ?? ""}`);
}

const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : isRaw(value) ? "number" : typeof value);

// Whether a value looks like one of a schema, as far as a choice between forms needs to know.
function fits(value, given, root, deep = 0) {
  const { kind, schema, values, options, inner, ...found } = plan(given, root);
  if (kind === "json" || deep > 3) return true;
  if (kind === "const") return same(value, found.value);
  if (kind === "enum") return values.some((one) => same(one, value));
  if (kind === "nullable") return value === null || fits(value, inner, root, deep + 1);
  if (kind === "choice") return options.some((one) => fits(value, one, root, deep + 1));
  if (kind === "array" && Array.isArray(value)) return value.length === 0 || fits(value[0], found.first[0] ?? found.rest, root, deep + 1);
  if (kind !== "object" || !isObject(value)) return kind === typeOf(value) || (kind === "integer" && Number.isInteger(Number(value)));
  const { properties = {}, additionalProperties } = schema;
  return (
    list(schema.required).every((name) => own(value, name) !== undefined || plan(own(properties, name) ?? {}, root).kind !== "const") &&
    Object.keys(value).slice(0, MOST.parts).every((name) => (own(properties, name) !== undefined ? fits(value[name], properties[name], root, deep + 1) : additionalProperties !== false))
  );
}

// What a part holds when it is added: its default, constants, and what is required of it. `whole`: constants, too, that
// are not required, because they say which form of a choice it is.
export function initial(given, root, whole, deep = 0) {
  const found = plan(given, root);
  const { kind, schema } = found;
  if (kind === "const") return found.value;
  if (kind === "null") return null;
  if (deep > 0 && schema.default !== undefined) return schema.default;
  if (deep > MOST.deep) return undefined;
  const part = (one) => initial(one, root, false, deep + 1);
  if (kind === "choice") return initial(found.options[0], root, true, deep + 1);
  if (kind === "nullable") return deep ? null : part(found.inner);
  if (kind === "array") return found.first.map((one) => part(one) ?? null);
  if (kind !== "object") return undefined;
  const required = list(schema.required);
  const pairs = Object.entries(schema.properties ?? {}).slice(0, MOST.parts).filter(([name, one]) => required.includes(name) || (whole && plan(one, root).kind === "const"));
  return Object.fromEntries(pairs.map(([name, one]) => [name, part(one)]).filter(([, value]) => value !== undefined));
}

// The schema of a member that has none of its own. A pattern of a stranger is never run: it could take for ever.
const extra = (schema) => Object.values(schema.patternProperties ?? {})[0] ?? schema.additionalProperties ?? {};

// An object with another value at a name, or without the name.
const change = (object, name, value) => {
  const pairs = Object.entries(object ?? {}).filter(([one]) => value !== undefined || one !== name);
  const at = pairs.findIndex(([one]) => one === name);
  if (value !== undefined) pairs.splice(at < 0 ? pairs.length : at, at < 0 ? 0 : 1, [name, value]);
  return Object.fromEntries(pairs);
};

// The path of a member, as the server writes it in its faults.
const below = (path, name) => {
  name = name.length > 64 ? `${name.slice(0, 61)}...` : name;
  return !/^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(name) ? `${path}[${JSON.stringify(name)}]` : path ? `${path}.${name}` : name;
};

// -- what is drawn

const SAID = { minimum: "≥", exclusiveMinimum: ">", maximum: "≤", exclusiveMaximum: "<", multipleOf: "in steps of", minLength: "length ≥", maxLength: "length ≤", minItems: "items ≥", maxItems: "items ≤", pattern: "like", default: "default" };

// What a value may be, in a few words.
function describe({ kind, schema, options, inner, value }, root) {
  if (kind === "nullable") return `${describe(plan(inner, root), root)} or null`;
  if (kind === "choice") return `one of ${options.length} forms`;
  if (kind === "const") return `always ${short(label(value), 60)}`;
  const bounds = Object.entries(SAID).filter(([name]) => (schema[name] ?? null) !== null).map(([name, words]) => `${words} ${short(label(schema[name]), 60)}`);
  return [{ json: "JSON", enum: "a choice" }[kind] ?? kind, schema.format && short(schema.format, 40), ...bounds].filter(Boolean).join(", ");
}

const GROUPS = ["object", "array", "choice"];
const isGroup = (found, root) => GROUPS.includes(found.kind) || (found.kind === "nullable" && isGroup(plan(found.inner, root), root));

// One field. `value`: undefined where it is left out; `set`: gets the next one; `faults`: what is wrong, by path.
function Field(given) {
  const { schema: raw, root, value, set, path, name, required, faults, remove } = given;
  const found = plan(raw, root);
  const { schema } = found;
  const id = useId();
  const wrong = faults.get(path) ?? [];
  const title = html`<span class="name">${short(name, 200)}</span>${required && html` <span class="tag">required</span>`} <span class="about">${describe(found, root)}</span>${schema.deprecated && html` <span class="tag warn">deprecated</span>`}`;
  const notes = [prose(schema.description, 1200), wrong.map((one) => fault(one, { id: `${id}!` }))];
  const control = html`<${Control} ...${given} found=${found} id=${id} invalid=${{ "aria-invalid": wrong.length > 0, ...(wrong.length && { "aria-describedby": `${id}!` }) }} />`;
  const drop = remove && small("Remove", remove, { "aria-label": `Remove ${name}` });
  const css = `field ${wrong.length ? "wrong" : ""}`;
  if (!isGroup(found, root)) return html`<div class=${css}><div class="label"><label for=${id}>${title}</label>${drop}</div>${control}${notes}</div>`;
  const add = () => set(initial(raw, root, true) ?? (found.kind === "array" ? [] : {}));
  return html`<fieldset class=${css}><legend>${title} ${value === undefined ? small("Add", add, { "aria-label": `Add ${name}` }) : !required && small("Leave out", () => set(undefined))}${drop}</legend>${notes}${value !== undefined && control}</fieldset>`;
}

const CONTROLS = { string: Line, integer: Typed, number: Typed, boolean: Choose, enum: Choose, const: Fixed, null: Fixed, json: Typed, nullable: Nullable, choice: Forms, array: Items, object: Members };
const Control = ({ deep = 0, ...given }) => html`<${deep > MOST.drawn ? Typed : CONTROLS[given.found.kind]} ...${given} ...${deep > MOST.drawn && { found: JSON_BOX }} deep=${deep + 1} />`;
const typed = (event) => event.currentTarget.value;

function Line({ found: { schema }, value, set, id, required, invalid }) {
  const { format, default: usual, examples, maxLength } = schema;
  const hint = usual ?? list(examples)[0];
  const props = { id, ...invalid, value: value === undefined ? "" : typeof value === "string" ? value : label(value), onInput: (event) => set(typed(event) || (required ? "" : undefined)), placeholder: hint === undefined ? "" : short(label(hint), 60), spellcheck: false, autocomplete: "off" };
  if (!format && !(maxLength <= 80)) return html`<textarea ...${props} rows="1" />`;
  const type = { date: "date", password: "password" }[format] ?? "text";
  return html`<input ...${props} type=${type} />`;
}

// A number, or JSON, as it is typed. What is no number goes to the server as the text that it is, and the server says what it wants.
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const numeric = (text) => (!NUMBER.test(text) ? text : /[.eE]/.test(text) ? Number(text) : integer(text));

function Typed({ found: { kind, schema }, value, set, id, invalid }) {
  const box = kind === "json";
  const read = (text) => (!text.trim() ? undefined : box ? parse(text) : numeric(text.trim()));
  const write = () => (value === undefined ? "" : box ? pretty(value) : isRaw(value) ? value.rawJSON : String(value ?? ""));
  const [text, setText] = useState(write);
  let now, wrong;
  try {
    now = read(text);
  } catch (fault) {
    wrong = fault.message;
  }
  useEffect(() => {
    if (!wrong && !same(now, value)) setText(write());
  }, [value]);
  const change = (event) => {
    setText(typed(event));
    try {
      set(read(typed(event)));
    } catch {}
  };
  const props = { id, ...invalid, value: text, onInput: change, autocomplete: "off", spellcheck: false };
  if (!box) return html`<input ...${props} class="narrow" inputmode="decimal" placeholder=${schema.default ?? list(schema.examples)[0] ?? ""} />`;
  return html`<textarea ...${props} rows="2" placeholder="JSON" />${wrong && fault(`This is not JSON, and is not sent: ${wrong}`)}`;
}

function Choose({ found: { values = [true, false], words = values }, value, set, id, required, invalid }) {
  const at = values.findIndex((one) => same(one, value));
  return pick([required ? "choose…" : "left out", ...words], at + 1, (n) => set(values[n - 1]), { id, ...invalid });
}

function Fixed({ found: { value: fixed = null }, value, set, id, required }) {
  useEffect(() => {
    if (required && value === undefined) set(fixed);
  }, []);
  return html`<label class="check">${!required && html`<input id=${id} type="checkbox" checked=${value !== undefined} onChange=${(event) => set(event.currentTarget.checked ? fixed : undefined)} />`} <code>${short(label(fixed), 200)}</code></label>`;
}

function Nullable(given) {
  const { found: { inner }, root, value, set } = given;
  const found = plan(inner, root);
  const add = () => set(initial(inner, root, true) ?? (found.kind === "array" ? [] : undefined));
  return html`<div class="nullable">${value !== null && (value === undefined && isGroup(found, root) ? small("Add", add) : html`<${Control} ...${given} found=${found} />`)}<label class="check"><input type="checkbox" checked=${value === null} onChange=${(event) => (event.currentTarget.checked ? set(null) : add())} /> null</label></div>`;
}

function Forms(given) {
  const { found: { options, words }, root, value, set, id, invalid } = given;
  const fitting = value === undefined ? 0 : Math.max(0, options.findIndex((one) => fits(value, one, root)));
  const [at, setAt] = useState(fitting);
  useEffect(() => {
    if (value !== undefined && !fits(value, options[at], root)) setAt(fitting);
  }, [value]);
  return html`${pick(words, at, (n) => (setAt(n), set(initial(options[n], root, true))), { id, ...invalid, "aria-label": "Form" })}<${Control} key=${at} ...${given} found=${plan(options[at], root)} id=${`${id}of`} />`;
}

function Items(given) {
  const { found: { first, rest }, root, value, set, path } = given;
  const items = list(value);
  return html`${items.slice(0, MOST.items).map((one, n) => {
    const schema = first[n] ?? rest;
    const absent = one === null && plan(schema, root).kind !== "nullable";
    return html`<${Field} ...${given} key=${n} schema=${schema} value=${absent ? undefined : one} set=${(next) => set(items.toSpliced(n, 1, next ?? null))} path=${`${path}[${n}]`} name=${`[${n}]`} required=${true} remove=${n >= first.length && (() => set(items.toSpliced(n, 1)))} />`;
  })}${items.length > MOST.items && note(`${number(items.length - MOST.items)} more: see them as JSON.`)}${rest !== false && small("Add an item", () => set([...items, initial(rest, root, true) ?? null]))}`;
}

function Members(given) {
  const { found: { schema }, root, value, set, path } = given;
  const [query, setQuery] = useState("");
  const [name, setName] = useState("");
  const { properties = {}, additionalProperties: more } = schema;
  const required = new Set(list(schema.required));
  const has = (one) => own(value, one) !== undefined;
  const names = Object.keys(properties);
  const found = names.filter((one) => one.toLowerCase().includes(query.toLowerCase()));
  if (names.length > MOST.fields) found.sort((a, b) => required.has(b) + has(b) - required.has(a) - has(a));
  const others = Object.keys(value ?? {}).filter((one) => own(properties, one) === undefined);
  const field = (one, part, remove) => html`<${Field} ...${given} key=${one} schema=${part} value=${own(value, one)} set=${(next) => set(change(value, one, next))} path=${below(path, one)} name=${one} required=${required.has(one) || !!remove} remove=${remove} />`;
  const add = () => name && !has(name) && (set(change(value, name, initial(extra(schema), root, true, 1) ?? (plan(extra(schema), root).kind === "string" ? "" : null))), setName(""));
  const free = more !== false && (more !== undefined || schema.patternProperties || names.length === 0);
  return html`${names.length > MOST.fields && html`<input type="search" aria-label="Find a field" placeholder=${`Find one of ${number(names.length)} fields`} value=${query} onInput=${(event) => setQuery(typed(event))} />`}
  ${found.slice(0, MOST.fields).map((one) => field(one, properties[one]))}${found.length > MOST.fields && note(`${number(found.length - MOST.fields)} more: find them by name.`)}
  ${others.slice(0, MOST.items).map((one) => field(one, extra(schema), () => set(change(value, one, undefined))))}
  ${free && html`<div class="row"><input type="text" class="narrow" aria-label="Name of a further member" placeholder="name" value=${name} onInput=${(event) => setName(typed(event))} />${small("Add a member", add)}</div>`}`;
}

// The form of a whole schema, which may be edited as JSON instead.
export function Form({ schema, root, value, set, faults = new Map(), asJson }) {
  const found = asJson ? JSON_BOX : plan(schema, root);
  const id = useId();
  return html`<div class="form">${(faults.get("") ?? []).map(fault)}<${Control} key=${String(asJson)} found=${found} root=${root} value=${value} set=${set} path="" faults=${faults} id=${id} required=${true} invalid=${{ "aria-label": "Arguments" }} /></div>`;
}
