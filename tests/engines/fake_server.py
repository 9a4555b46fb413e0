#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small server of OpenAI's chat wire that does what no real engine does on demand.

  fake_server.py [BYTES]      prints `ready pid=... port=...`, serves until SIGTERM; BYTES per read, default 4096

POST /v1/chat/completions takes model, max_tokens, stream, and of its own:
  line_bytes    one event of the stream is a tool call on a single line of so many bytes
  pause_ms      between two tokens; default 1
Requests on one connection may be pipelined: they are answered in order.
"""
import json
import os
import signal
import socket
import sys
import threading
import time


READ_BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 4096


def read_request(sock, buf):
	"""(path, body) of the next request and what follows it; (None, None, b"") at the end."""
	def more():
		data = sock.recv(READ_BYTES)
		if not data:
			raise EOFError
		return data
	try:
		while b"\r\n\r\n" not in buf:
			buf += more()
		head, _, buf = buf.partition(b"\r\n\r\n")
		lines = head.split(b"\r\n")
		length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
		while len(buf) < length:
			buf += more()
		return lines[0].split()[1].decode(), buf[:length], buf[length:]
	except (EOFError, OSError, IndexError, ValueError):
		return None, None, b""


def send_json(sock, status, o):
	body = json.dumps(o).encode()
	sock.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


def usage(n_prompt, n):
	return {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n}


def stream(sock, ident, ask, n_prompt, n):
	def event(data):
		line = b"data: " + data + b"\n\n"
		sock.sendall(b"%x\r\n" % len(line) + line + b"\r\n")

	def chunk(delta, finish=None, **more):
		event(json.dumps(dict({"id": ident, "object": "chat.completion.chunk", "model": ask.get("model"), "choices": [
			{"index": 0, "delta": delta, "finish_reason": finish}]}, **more)).encode())

	sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk({"role": "assistant", "content": None})
	for i in range(n):
		time.sleep(ask.get("pause_ms", 1) / 1000)
		if i == 0 and ask.get("line_bytes"):
			chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * ask["line_bytes"]}}]})
		else:
			chunk({"content": "word "})
	chunk({}, "length", usage=usage(n_prompt, n))
	event(b"[DONE]")
	sock.sendall(b"0\r\n\r\n")


def answer(sock, path, body, ident):
	if path == "/health":
		return send_json(sock, 200, {"status": "ok"})
	if path != "/v1/chat/completions":
		return send_json(sock, 404, {"error": {"message": "no such path"}})
	try:
		ask = json.loads(body)
		n = int(ask["max_tokens"])
	except (ValueError, KeyError, TypeError):
		return send_json(sock, 400, {"error": {"message": "bad body"}})
	n_prompt = len(str(ask.get("messages")).split())
	if ask.get("stream"):
		return stream(sock, ident, ask, n_prompt, n)
	send_json(sock, 200, {"id": ident, "object": "chat.completion", "model": ask.get("model"), "choices": [
		{"index": 0, "message": {"role": "assistant", "content": "word " * n}, "finish_reason": "length"}],
		"usage": usage(n_prompt, n)})


def serve(sock, number):
	buf, count = b"", 0
	with sock:
		sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
		while True:
			path, body, buf = read_request(sock, buf)
			if path is None:
				return
			count += 1
			try:
				answer(sock, path, body, "fake-%d-%d" % (number, count))
			except OSError:
				return


def main():
	signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
	listener = socket.create_server(("127.0.0.1", 0), backlog=512)
	print("ready pid=%d port=%d" % (os.getpid(), listener.getsockname()[1]), flush=True)
	number = 0
	while True:
		sock, _ = listener.accept()
		number += 1
		threading.Thread(target=serve, args=(sock, number), daemon=True).start()


main()
