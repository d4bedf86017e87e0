from msgspec import Struct

from dragoman.mcp import Server

app = Server("weather", version="1.0.0")


class Forecast(Struct):
    sky: str
    celsius: float


@app.tool
def forecast(city: str, country: str = "CN") -> Forecast:
    "Tomorrow's weather in a city."
    return Forecast(f"sunny in {city}, {country}", 21.5)
