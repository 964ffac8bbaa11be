"""The metadata servers of three clouds, as far as notices go: what they answer, and what they refuse, before and after a
machine is to be taken back. Protocols as AWS (IMDSv2), Google and Azure document them."""

import http.server
import json
import secrets
import threading
import time

OWN_NAME, OTHER_NAME = "vm_0", "vm_1"


class Server:
    """Serves one cloud on a port of its own until close(). give_notice(s) announces the end in `s` seconds."""

    def __init__(self, handler):
        self.ends, self.questions, self.refused, self.silent = None, 0, 0, False
        self.tokens = set()
        owner = self

        class Handler(handler):
            server_owner = owner
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def give_notice(self, seconds):
        self.ends = time.time() + seconds

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Cloud(http.server.BaseHTTPRequestHandler):
    def answer(self, code, body="", kind="text/plain"):
        owner = self.server_owner
        if code in (200, 404):
            owner.questions += 1
        else:
            owner.refused += 1
        data = body.encode()
        self.send_response(503 if owner.silent else code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def utc(self, form):
        return time.strftime(form, time.gmtime(self.server_owner.ends))


class Aws(Cloud):
    def do_PUT(self):
        life = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token" or not life.isdigit() or not 1 <= int(life) <= 21600:
            return self.answer(400)
        token = secrets.token_urlsafe(32)
        self.server_owner.tokens.add(token)
        return self.answer(200, token)

    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") not in self.server_owner.tokens:
            return self.answer(401)
        if self.path != "/latest/meta-data/spot/instance-action" or self.server_owner.ends is None:
            return self.answer(404)
        return self.answer(200, json.dumps({"action": "terminate", "time": self.utc("%Y-%m-%dT%H:%M:%SZ")}), "application/json")


class Gcp(Cloud):
    def do_GET(self):
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.answer(403)
        if self.path != "/computeMetadata/v1/instance/preempted":
            return self.answer(404)
        return self.answer(200, "FALSE" if self.server_owner.ends is None else "TRUE")


class Azure(Cloud):
    def do_GET(self):
        if self.headers.get("Metadata") != "true":
            return self.answer(400)
        if self.path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return self.answer(200, OWN_NAME)
        if self.path != "/metadata/scheduledevents?api-version=2020-07-01":
            return self.answer(404)
        # Another machine of the scale set goes in any case: that is nobody's business here.
        events = [{"EventId": "other", "EventStatus": "Scheduled", "EventType": "Preempt", "ResourceType": "VirtualMachine",
                   "Resources": [OTHER_NAME], "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT"}]
        if self.server_owner.ends is not None:
            events.append({**events[0], "EventId": "own", "Resources": [OWN_NAME], "NotBefore": self.utc("%a, %d %b %Y %H:%M:%S GMT")})
        return self.answer(200, json.dumps({"DocumentIncarnation": len(events), "Events": events}), "application/json")


CLOUDS = {"aws": Aws, "gcp": Gcp, "azure": Azure}
