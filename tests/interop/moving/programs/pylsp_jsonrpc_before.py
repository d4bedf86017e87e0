# mypy: ignore-errors
# [program]
import sys

from pylsp_jsonrpc.dispatchers import MethodDispatcher
from pylsp_jsonrpc.endpoint import Endpoint
from pylsp_jsonrpc.exceptions import JsonRpcException
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter


class LanguageServer(MethodDispatcher):
    def __init__(self, stdin, stdout):
        self.reader = JsonRpcStreamReader(stdin)
        self.endpoint = Endpoint(self, JsonRpcStreamWriter(stdout).write)
        self.texts = {}

    def m_initialize(self, **params):
        return {"capabilities": {"hoverProvider": True, "textDocumentSync": 1}}

    def m_text_document__did_open(self, textDocument):
        self.texts[textDocument["uri"]] = textDocument["text"]
        self.endpoint.notify("textDocument/publishDiagnostics", {"uri": textDocument["uri"], "diagnostics": []})

    def m_words__count(self, uri):
        if uri not in self.texts:
            raise JsonRpcException(f"{uri} is not open", code=1001)
        return len(self.texts[uri].split())

    def m_text_document__hover(self, textDocument, position):
        def hover():  # called in a thread of the pool, which may wait for the client
            asked = self.endpoint.request("workspace/configuration", {"items": [{"section": "words.unit"}]})
            return {"contents": f"{self.m_words__count(textDocument['uri'])} {asked.result(5)[0]}"}

        return hover

    def m_shutdown(self):
        return None

    def m_exit(self):
        self.endpoint.shutdown()
        self.reader.close()


if __name__ == "__main__":
    server = LanguageServer(sys.stdin.buffer, sys.stdout.buffer)
    server.reader.listen(server.endpoint.consume)
# [/program]
