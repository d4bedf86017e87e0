# [blocking]
from dragoman.mcp import TasksClient
from dragoman.mcp.client.blocking import connect

tasks = TasksClient()
with connect("dragoman serve mcp_lab.py stdio: --quiet", extensions=[tasks]) as client:
    handle = client.run(tasks.start, "train", {"rows": 3})
    seen = [status.status for status in client.each(handle.follow())]
    print(seen[-1])  # completed
    print(client.run(handle.result).text)  # a model of 3 rows
# [/blocking]
