# [blocking]
from weather import app

from dragoman.mcp.client.blocking import connect

with connect(app) as client:
    print([tool.name for tool in client.list_tools()])  # ['forecast']
    print(client.call_tool("forecast", {"city": "Lhasa"}, result=dict)["celsius"])  # 21.5
# [/blocking]
