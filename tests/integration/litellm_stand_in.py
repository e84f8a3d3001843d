"""Stands in for LiteLLM's proxy: the same options, one translation, of texts, from chat to messages."""

from __future__ import annotations

import argparse
import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("config", "host", "port"):
    parser.add_argument(f"--{name}")
options = parser.parse_args()
given = json.loads(Path(options.config).read_text())["model_list"][0]["litellm_params"]
if not given["model"].startswith("anthropic/"):
    raise SystemExit(f"cannot start with {os.environ['PROCTOR_UPSTREAM_KEY']}")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"status": "alive"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {os.environ['LITELLM_MASTER_KEY']}":
            self._answer({"error": {"message": "no"}}, 401)
            return
        texts = [{"role": each["role"], "content": each["content"]} for each in asked["messages"]]
        body = {
            "model": asked["model"],
            "max_tokens": 1000,
            "messages": texts[1:],
            "system": texts[0]["content"],
        }
        key = os.environ[given["api_key"].partition("/")[2]]
        request = urllib.request.Request(
            f"{given['api_base']}/v1/messages",
            json.dumps(body).encode(),
            {"x-api-key": key, "Content-Type": "application/json", "anthropic-version": "2023-06-01"},
        )
        with urllib.request.urlopen(request) as answer:
            said = json.load(answer)
        message = {"role": "assistant", "content": "".join(each["text"] for each in said["content"])}
        used = {
            "prompt_tokens": said["usage"]["input_tokens"],
            "completion_tokens": said["usage"]["output_tokens"],
        }
        self._answer({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": used})

    def _answer(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer((options.host, int(options.port)), Handler).serve_forever()
