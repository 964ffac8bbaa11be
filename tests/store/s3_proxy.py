"""Stands between a program and an S3 server: counts what passes, and makes trouble where a test asks for it.

Trouble is decided request by request (Proxy.trouble, called with a Request): a name of TROUBLES or None. The proxy also lends keys as a
container's role does; keys of an earlier generation are refused as expired.
"""

import http.client
import http.server
import json
import socket
import socketserver
import threading
import time
import urllib.parse

# What may happen to a request.
TROUBLES = ("cut_before",  # the connection breaks before the server sees it
            "cut_after",   # the server has done it, and the answer is lost
            "cut_answer",  # half of the answer arrives
            "error_500", "slow_down_503", "late", "expired")
REFUSALS = {"error_500": (500, "InternalError"), "slow_down_503": (503, "SlowDown"), "expired": (400, "ExpiredToken")}
LATE_S = 0.4


class Request:
    def __init__(self, number, method, path, headers, body):
        self.number, self.method, self.path, self.headers, self.body = number, method, path, headers, body
        self.key = urllib.parse.unquote(urllib.parse.urlsplit(path).path)


class Proxy:
    def __init__(self, server):
        """In front of an s3_server.S3Server."""
        self.host, self.port = urllib.parse.urlsplit(server.url).netloc.split(":")
        self.keys = server.variables
        self.trouble = lambda request: None
        self.mutex = threading.Lock()
        self.make_lent = lambda: server.lend(4)
        self.lent = []  # keys of a role; those of an earlier generation have run out
        self.generation = 0
        self.reset()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                proxy.handle(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):  # whoever asked is gone
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def variables(self):
        """What a program needs in its environment to go through here, with keys of its own."""
        return {**self.keys, "AWS_ENDPOINT_URL": self.url}

    def lend_keys(self):
        """The same with keys of a role, which run out."""
        self.lent = self.make_lent()
        mine = {name: value for name, value in self.variables.items() if "ACCESS_KEY" not in name}
        return {**mine, "AWS_CONTAINER_CREDENTIALS_FULL_URI": self.url + "/lent-keys"}

    def reset(self):
        with self.mutex:
            self.num_requests = 0
            self.read = {}  # bytes of objects that were sent out, by key
            self.written = {}
            self.made = {}  # trouble, by name

    def handle(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if handler.path == "/lent-keys":
            return self.lend(handler)
        with self.mutex:
            self.num_requests += 1
            request = Request(self.num_requests, handler.command, handler.path, handler.headers, body)
        what = self.trouble(request)
        token = handler.headers.get("x-amz-security-token")
        if token is not None and token != self.lent_now()[2]:
            what = "expired"
        if what is not None:
            with self.mutex:
                self.made[what] = self.made.get(what, 0) + 1
        if what == "cut_before":
            return self.cut(handler)
        if what in REFUSALS:
            return self.refuse(handler, *REFUSALS[what])
        if what == "late":
            time.sleep(LATE_S)
        status, reason, headers, answer = self.forward(request)
        if what == "cut_after":
            return self.cut(handler)
        self.count(request, status, answer)
        handler.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "keep-alive"):
                handler.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        if handler.command == "HEAD":
            return None
        if what == "cut_answer":
            handler.wfile.write(answer[:len(answer) // 2])
            return self.cut(handler)
        handler.wfile.write(answer)
        return None

    def forward(self, request):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=120)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
            connection.request(request.method, request.path, body=request.body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.reason, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def count(self, request, status, answer):
        if "?" in request.path and request.method == "GET" or not 200 <= status < 300:
            return
        with self.mutex:
            if request.method == "GET":
                self.read[request.key] = self.read.get(request.key, 0) + len(answer)
            if request.method == "PUT":
                self.written[request.key] = self.written.get(request.key, 0) + len(request.body)

    def refuse(self, handler, status, code):
        answer = f"<Error><Code>{code}</Code><Message>as a test asked</Message></Error>".encode()
        handler.send_response_only(status)
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(answer)

    def cut(self, handler):
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    def lent_now(self):
        return self.lent[self.generation % len(self.lent)]

    def lend(self, handler):
        key, secret, token = self.lent_now()
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        answer = json.dumps({"AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "Expiration": ends}).encode()
        handler.send_response_only(200)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
