// The documentation's views, which call through the console's door: one message a request, with the console's secret.
import { views } from "../kit.js";
import { place, token, REVISIONS } from "../wire.js";
import { secretOf, urlOf } from "./door.js";

place.alone = true;
place.services = urlOf("services");
place.urlOf = (path) => urlOf(`try?at=${encodeURIComponent(path)}`);
token.get = secretOf;
REVISIONS.splice(1); // the door has no sessions

export async function open() {
  const { begin } = await import("../docs.js");
  for (const name of ["batch", "token"]) views.delete(name);
  views.get("docs").title = () => "Try";
  await begin();
}
