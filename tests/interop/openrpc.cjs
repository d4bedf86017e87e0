// Reads an OpenRPC document from a file as its own tools do: the checks and the parser of the playground
// (@open-rpc/schema-utils-js), and the types that open-rpc-typings makes of it.
const { readFileSync } = require("fs")
const { parseOpenRPCDocument, validateOpenRPCDocument } = require("@open-rpc/schema-utils-js")
const Typings = require("@open-rpc/typings").default

async function main() {
  const read = () => JSON.parse(readFileSync(process.argv[2], "utf-8"))
  console.warn = () => {}
  const valid = validateOpenRPCDocument(read())
  const document = await parseOpenRPCDocument(read())
  const typings = new Typings(document)
  console.log(JSON.stringify({ valid, methods: document.methods, types: typings.toString("typescript") }))
}

main()
