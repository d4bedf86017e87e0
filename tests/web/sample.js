// What a reader fills in: a value for each control that the form's `plan` gives a schema. For the tests of the form.
export const sampler = (plan, fits) => {
  const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
  const FORMATS = { date: "2026-01-31", time: "12:30:00Z", "date-time": "2026-01-31T12:30:00Z", duration: "PT1H", email: "ada@example.org", "idn-email": "ada@example.org", hostname: "example.org", ipv4: "192.0.2.1", ipv6: "2001:db8::1", uri: "https://example.org/", "uri-reference": "/a", uuid: "123e4567-e89b-42d3-a456-426614174000", uuid4: "123e4567-e89b-42d3-a456-426614174000", byte: "AAAA", base64: "AAAA", "json-string": "{}", decimal: "1", ipvanyaddress: "192.0.2.1", ipvanynetwork: "192.0.2.0/24", ipv4network: "192.0.2.0/24", "uri-template": "/{a}" };
  const WORDS = ["text", "a", "1", "A", "abc", "a1", "1.5", "2026-01-31", "12:30:00", "https://example.org/", "AAAA", "#ffffff", "EUR", "P1D", "[1]", "{}", "0x0", "0x1", `0x${"0".repeat(40)}`, `0x${"0".repeat(64)}`, `0x${"0".repeat(16)}`, "latest", "io.example/name", "192.0.2.1"];
  const matches = (pattern, word) => new RegExp(pattern, "u").test(word);

  function text(schema) {
    let found = FORMATS[schema.format] ?? (schema.contentEncoding ? "AAAA" : schema.contentMediaType ? "{}" : "text");
    const fit = (word) => word.length >= (schema.minLength ?? 0) && word.length <= (schema.maxLength ?? Infinity) && matches(schema.pattern ?? "", word);
    if (!fit(found)) found = [...WORDS, "x".repeat(schema.minLength ?? 0), "x".repeat(schema.maxLength ?? 0)].find(fit) ?? found;
    return found;
  }

  function number(schema, kind) {
    const step = schema.multipleOf ?? (kind === "integer" ? 1 : 0.5);
    const low = Math.max(schema.minimum ?? -Infinity, (schema.exclusiveMinimum ?? -Infinity) + step / 2);
    const high = Math.min(schema.maximum ?? Infinity, (schema.exclusiveMaximum ?? Infinity) - step / 2);
    const start = low > 1 ? low : high < 1 ? Math.max(high - step, low) : 1;
    return Math.min(Math.ceil(start / step) * step, Math.max(high, low));
  }

  const extra = (schema) => Object.values(schema.patternProperties ?? {})[0] ?? (schema.additionalProperties === true ? {} : (schema.additionalProperties ?? {}));
  const key = (schema, n) => {
    const pattern = Object.keys(schema.patternProperties ?? {})[0] ?? own(schema.propertyNames, "pattern");
    return (pattern && WORDS.find((word) => matches(pattern, word))) ?? (FORMATS[own(schema.propertyNames, "format")] || (own(schema.propertyNames, "enum") ?? [])[n] || `name${n || ""}`);
  };

  return function sample(given, root, deep = 0) {
    const found = plan(given, root);
    const { kind, schema } = found;
    if (kind === "const") return found.value;
    if (kind === "null") return null;
    if (kind === "enum") return found.values[0];
    if (kind === "boolean") return true;
    if (kind === "string") return text(schema);
    if (kind === "integer" || kind === "number") return number(schema, kind);
    if (kind === "nullable") return deep > 6 ? null : sample(found.inner, root, deep + 1);
    if (kind === "choice") {
      const plain = found.options.find((one) => ["string", "integer", "number", "boolean", "const", "enum"].includes(plan(one, root).kind));
      return sample((deep > 4 && plain) || found.options[0], root, deep + 1);
    }
    if (kind === "array") {
      const least = Math.max(schema.minItems ?? 0, found.first.length, deep > 4 || found.rest === false ? 0 : Math.min(1, schema.maxItems ?? 1));
      const parts = [...found.first, ...Array(Math.max(0, least - found.first.length)).fill(found.rest)];
      return parts.map((one, n) => {
        const value = sample(one, root, deep + 1);
        return schema.uniqueItems && typeof value === "number" ? value + n : value;
      });
    }
    if (kind !== "object") return own(schema, "const") ?? "text";
    const required = schema.required ?? [];
    const names = [...new Set([...required, ...(deep > 3 ? [] : Object.keys(schema.properties ?? {}))])].filter((name) => own(schema.properties, name) !== false);
    const pairs = names.map((name) => [name, sample(own(schema.properties, name) ?? extra(schema), root, deep + (required.includes(name) ? 1 : 2))]);
    for (let n = pairs.length; n < (schema.minProperties ?? 0); n++) pairs.push([key(schema, n), sample(extra(schema), root, deep + 1)]);
    if (names.length === 0 && schema.additionalProperties !== false && deep < 3 && pairs.length === 0 && (schema.patternProperties || schema.additionalProperties)) pairs.push([key(schema, 0), sample(extra(schema), root, deep + 1)]);
    return Object.fromEntries(pairs);
  };
};
