"""Count over HTTP."""

import os
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

COUNT_FILE = os.environ["COUNT_FILE"]


def count() -> int:
    try:
        with open(COUNT_FILE) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


class Handler(BaseHTTPRequestHandler):
    def answer(self) -> None:
        body = str(count()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer() if self.path == "/count" else self.send_error(404)

    def do_POST(self) -> None:
        if self.path != "/add":
            self.send_error(404)
            return
        value = count() + 1
        with open(COUNT_FILE, "w") as file:
            file.write(str(value))
        self.answer()

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    time.sleep(0.5)
    HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
