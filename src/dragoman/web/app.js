// The page: the documentation's views in the frame.
import { draw } from "./kit.js";
import { begin } from "./docs.js";

draw({ home: "docs" });
begin();
