# mypy: ignore-errors
# [program]
from jsonrpc.exceptions import JSONRPCDispatchException
from werkzeug.serving import run_simple
from werkzeug.wrappers import Request, Response

from jsonrpc import Dispatcher, JSONRPCResponseManager

stock = {"tea": 3, "rice": 0}
rpc = Dispatcher()


@rpc.add_method
def count(item):
    return stock[item]


@rpc.add_method(context_arg="context")
def take(item, amount=1, context=None):
    if stock[item] < amount:
        raise JSONRPCDispatchException(code=1001, message="Out of stock", data={"left": stock[item]})
    stock[item] -= amount
    return f"{amount} {item} for {context['user']}"


class Reports:
    def low(self, below):
        return [item for item, left in stock.items() if left < below]


rpc.add_object(Reports())


@Request.application
def application(request):
    context = {"user": request.headers.get("X-User", "no one")}
    answer = JSONRPCResponseManager.handle(request.get_data(), rpc, context)
    return Response(answer.json if answer else "", mimetype="application/json")


if __name__ == "__main__":
    run_simple("127.0.0.1", 5000, application)
# [/program]
