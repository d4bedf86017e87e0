# served: calculator:api mqtt://127.0.0.1:1883/bare
# [raw]
import queue
from urllib.parse import urlsplit

from paho.mqtt.client import CallbackAPIVersion, Client
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

answers: queue.Queue[bytes] = queue.Queue()
ready: queue.Queue[None] = queue.Queue()
client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
client.on_message = lambda client, data, message: answers.put(message.payload)
client.on_subscribe = lambda *_: ready.put(None)
broker = urlsplit("mqtt://127.0.0.1:1883")
client.connect(broker.hostname, broker.port)
client.loop_start()
client.subscribe("bare/reply/me", qos=1)
ready.get(timeout=5)

about = Properties(PacketTypes.PUBLISH)
about.ResponseTopic = "bare/reply/me"
about.CorrelationData = b"call 1"  # comes back with the answer
request = '{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}'
client.publish("bare", request, qos=1, properties=about)
print(answers.get(timeout=5).decode())  # {"jsonrpc":"2.0","result":19,"id":1}

client.disconnect()
client.loop_stop()
# [/raw]
