# mypy: ignore-errors
# [program]
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

server = LanguageServer("words", "1.0")


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: LanguageServer, params: types.DidOpenTextDocumentParams):
    found = types.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[])
    ls.text_document_publish_diagnostics(found)


@server.feature("words/count")
def count(ls: LanguageServer, params):
    if params.uri not in ls.workspace.text_documents:
        raise JsonRpcException(f"{params.uri} is not open", code=1001)
    return len(ls.workspace.get_text_document(params.uri).source.split())


@server.feature(types.TEXT_DOCUMENT_HOVER)
async def hover(ls: LanguageServer, params: types.HoverParams):
    wanted = types.ConfigurationParams(items=[types.ConfigurationItem(section="words.unit")])
    [unit] = await ls.workspace_configuration_async(wanted)
    text = ls.workspace.get_text_document(params.text_document.uri).source
    return types.Hover(contents=f"{len(text.split())} {unit}")


if __name__ == "__main__":
    server.start_io()
# [/program]
