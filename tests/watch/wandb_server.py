"""A server that answers as W&B's does to a client that logs a run: GraphQL (RunResumeStatus, UpsertBucket) and the file stream.

Written from the public sources of W&B's client (core/api/graphql, core/internal/filestream, core/internal/runbranch, and the server
that its own tests put in the middle, tests/fixtures/wandb_backend_spy) of August 2026. It is strict where a server would be: the key, the
documents' grammar, their fields, arguments and types of variables, and the lines of files.
"""

import base64
import gzip
import http.server
import json
import re
import threading
import urllib.parse

# Of the server's schema, what these documents name: field -> (type of its arguments, fields it has; None for a value).
RUN = {name: ({}, None) for name in ("id", "name", "displayName", "description", "config", "sweepName", "historyLineCount", "eventsLineCount", "logLineCount",
                                     "historyTail", "eventsTail", "summaryMetrics", "tags", "notes", "state", "group", "host")}
ENTITY = {"id": ({}, None), "name": ({}, None)}
PROJECT = {"id": ({}, None), "name": ({}, None), "entity": ({}, ENTITY),
           "bucket": ({"name": "String!", "missingOk": "Boolean"}, {**RUN, "wandbConfig": ({"keys": "[String!]"}, None)})}
RUN["project"] = ({}, PROJECT)
UPSERT_INPUT = {"id": "String", "name": "String", "groupName": "String", "modelName": "String", "entityName": "String", "description": "String",
                "displayName": "String", "notes": "String", "config": "JSONString", "commit": "String", "host": "String", "debug": "Boolean",
                "jobProgram": "String", "jobRepo": "String", "jobType": "String", "state": "String", "sweep": "String", "tags": "[String!]",
                "summaryMetrics": "JSONString"}
SCHEMA = {"query": {"model": ({"name": "String", "entityName": "String"}, PROJECT)},
          "mutation": {"upsertBucket": ({"input": UPSERT_INPUT}, {"bucket": ({}, RUN), "inserted": ({}, None)})}}


class Document:
    """One operation, checked against the schema: its kind, its name, its first field. Raises ValueError."""

    def __init__(self, text):
        self.tokens = re.findall(r'[A-Za-z_]\w*|\$|[{}():!\[\],]|"[^"]*"|\d+|#[^\n]*', text)
        self.tokens = [token for token in self.tokens if token != "," and not token.startswith("#")]
        self.kind, self.name = self.take(), self.take()
        if self.kind not in SCHEMA:
            raise ValueError(f"operation {self.kind}")
        self.variables, self.used = {}, set()
        if self.peek() == "(":
            self.take("(")
            while self.peek() != ")":
                self.take("$")
                name = self.take()
                self.take(":")
                self.variables[name] = self.type()
            self.take(")")
        self.field = None
        self.selection(SCHEMA[self.kind])
        if self.tokens or self.used != set(self.variables):
            raise ValueError(f"left over: {self.tokens or set(self.variables) - self.used}")

    def peek(self):
        return self.tokens[0] if self.tokens else None

    def take(self, expected=None):
        if not self.tokens or expected not in (None, self.tokens[0]):
            raise ValueError(f"{expected} expected, found {self.peek()}")
        return self.tokens.pop(0)

    def type(self):
        if self.peek() == "[":
            self.take("[")
            inner = self.type()
            self.take("]")
            text = f"[{inner}]"
        else:
            text = self.take()
        return text + (self.take("!") if self.peek() == "!" else "")

    def selection(self, fields):
        self.take("{")
        while self.peek() != "}":
            name = self.take()
            if name not in fields:
                raise ValueError(f"no field {name}")
            self.field = self.field or name
            arguments, inner = fields[name]
            if self.peek() == "(":
                self.take("(")
                self.arguments(arguments, ")")
            if inner is not None:
                self.selection(inner)
        self.take("}")

    def arguments(self, types, end):
        while self.peek() != end:
            name = self.take()
            if name not in types:
                raise ValueError(f"no argument {name}")
            self.take(":")
            self.value(types[name])
        self.take(end)

    def value(self, kind):
        if self.peek() == "{":
            self.take("{")
            return self.arguments(kind, "}")
        if self.peek() == "$":
            self.take("$")
            name = self.take()
            if self.variables.get(name, "").rstrip("!") != kind.rstrip("!"):
                raise ValueError(f"${name} is not declared as {kind}")
            return self.used.add(name)
        if self.peek() == "[":
            while self.take() != "]":
                pass
            return None
        return self.take()


class Run:
    def __init__(self):
        self.history, self.summary, self.config, self.display_name = {}, None, None, None
        self.complete, self.exit_code, self.beats, self.written = False, None, 0, 0


class Wandb:
    """runs: {(entity, project, id): Run}. `fail` may be set to a status that every request is answered with."""

    KEY = "0123456789abcdef-not-a-real-key-of-anybody"

    def __init__(self, test=None):
        self.runs, self.fail, self.refused, self.requests = {}, None, [], 0
        self.lock = threading.Lock()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                with server.lock:
                    server.requests += 1
                    status, answer = server.answer(self.path, self.headers, body)
                    if status >= 400 and server.fail is None:
                        server.refused.append((status, self.path, answer))
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        listening.daemon_threads = True
        listening.handle_error = lambda *_: None  # a client that was killed
        self.thread = threading.Thread(target=listening.serve_forever, daemon=True)
        self.thread.start()
        if test is not None:
            test.addCleanup(listening.server_close)
            test.addCleanup(listening.shutdown)
        self.url = f"http://127.0.0.1:{listening.server_address[1]}"
        self.env = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.KEY}

    def answer(self, path, headers, body):
        if self.fail is not None:
            return self.fail, {}
        expected = "Basic " + base64.b64encode(f"api:{self.KEY}".encode()).decode()
        if headers.get("Authorization") != expected:
            return 401, {"error": "unauthenticated"}
        if headers.get("Content-Type") != "application/json":
            return 415, {"error": "not JSON"}
        request = json.loads(body)
        if path == "/graphql":
            try:
                return 200, {"data": self.query(Document(request["query"]), request.get("variables", {}))}
            except ValueError as error:
                return 400, {"errors": [{"message": str(error)}]}
        parts = [urllib.parse.unquote(part) for part in path.split("/")]
        if len(parts) != 6 or parts[1] != "files" or parts[5] != "file_stream":
            return 404, {"error": "no such place"}
        run = self.runs.get(tuple(parts[2:5]))
        return self.stream(run, request) if run else (404, {"error": "no such run"})

    def query(self, document, variables):
        for name, kind in document.variables.items():
            if variables.get(name) is None and kind.endswith("!"):
                raise ValueError(f"${name} is missing")
        if unknown := set(variables) - set(document.variables):
            raise ValueError(f"unknown variables {unknown}")
        place = (variables.get("entity") or "owner-of-the-key", variables["project"], variables["name"])
        run = self.runs.get(place)
        if document.field == "upsertBucket":
            inserted = run is None
            run = self.runs.setdefault(place, Run())
            run.display_name = variables.get("displayName") or run.display_name
            if variables.get("config") is not None:
                run.config = json.loads(variables["config"])
            bucket = {"id": "storage-" + place[2], "name": place[2], "project": {"id": "p", "name": place[1], "entity": {"id": "e", "name": place[0]}}}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if run is None:
            return {"model": {"id": "p", "name": place[1], "bucket": None}}
        tail = [run.history[max(run.history)]] if run.history else []
        bucket = {"id": "storage-" + place[2], "name": place[2], "historyLineCount": len(run.history), "historyTail": json.dumps(tail),
                  "summaryMetrics": run.summary or "{}"}
        return {"model": {"id": "p", "name": place[1], "bucket": bucket}}

    @staticmethod
    def stream(run, request):
        if unknown := set(request) - {"files", "uploaded", "preempting", "complete", "exitcode"}:
            return 400, {"error": f"unknown {unknown}"}
        for name, chunk in request.get("files", {}).items():
            if set(chunk) != {"offset", "content"} or not all(isinstance(line, str) for line in chunk["content"]):
                return 400, {"error": "no chunk"}
            if name == "wandb-history.jsonl":
                if chunk["offset"] > len(run.history):
                    return 400, {"error": f"line {chunk['offset']} of {len(run.history)}"}
                for at, line in enumerate(chunk["content"], chunk["offset"]):
                    row = json.loads(line)  # NaN and Infinity are taken, as W&B's server does
                    if not isinstance(row.get("_step"), int):
                        return 400, {"error": "a row without a step"}
                    run.history[at] = line
                    run.written += 1
            elif name == "wandb-summary.json":
                run.summary = chunk["content"][-1]
                json.loads(run.summary)
            else:
                return 400, {"error": f"file {name}"}
        run.beats += not request
        run.complete = bool(request.get("complete"))
        run.exit_code = request.get("exitcode")
        return 200, {"limits": {}}


if __name__ == "__main__":  # for measurements: prints its address and its key
    alone = Wandb()
    print(alone.url, alone.KEY, flush=True)
    alone.thread.join()
