"""A small stand-in for Kubernetes' API server: HTTPS with certificates and tokens, objects that are created, read, patched and deleted
as the real one does it (404, 409, 422, ownership), pods and logs that a test makes up. It runs nothing: what clusters do with a
job is tests/cluster/kubernetes.py's to see."""

import http.server
import json
import pathlib
import ssl
import subprocess
import threading
import uuid

TOKEN = "a-token-that-nobody-else-has"


def run(*words):
    subprocess.run([*map(str, words)], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def certificates(folder):
    """An authority, a server of this machine's, and a client."""
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "ca.key", "-out", folder / "ca.crt",
        "-days", "30", "-subj", "/CN=test-authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr",
            "-subj", f"/CN={name}")
        run("openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", "30", "-extfile", folder / "names", "-out", folder / f"{name}.crt")


class ApiServer:
    def __init__(self, folder):
        """The folder has its certificates."""
        self.folder = pathlib.Path(folder)
        self.objects, self.logs, self.refused, self.requests = {}, {}, {}, []
        self.lock = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            do_GET = do_POST = do_PATCH = do_DELETE = lambda self: outer.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        context.load_verify_locations(self.folder / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server.server_port}"

    def kubeconfig(self, name="config", user=None, authority="ca.crt"):
        """A file with one context, in the namespace `team`."""
        path = self.folder / name
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": authority}}],
            "users": [{"name": "u", "user": user or {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}]}))
        return path

    def kinds(self):
        return sorted(path.split("/")[-2] for path in self.objects)

    def add_pod(self, job, index, phase, log=b"", name=None, reason=None):
        """A pod of a job as the job's controller would make it."""
        name = name or f"{job}-{index}-{len(self.objects)}"
        status = {"phase": phase}
        if reason:
            status["containerStatuses"] = [{"state": {"waiting": {"reason": reason}}}]
        with self.lock:
            self.objects[f"/api/v1/namespaces/team/pods/{name}"] = {
                "metadata": {"name": name, "uid": str(uuid.uuid4()), "labels": {"app.kubernetes.io/instance": job},
                             "creationTimestamp": f"2026-01-01T00:00:{len(self.objects):02}Z",
                             "annotations": {"batch.kubernetes.io/job-completion-index": str(index)}},
                "spec": {"nodeName": f"node-{index}"}, "status": status}
            self.logs[name] = [log]
            self.lock.notify_all()
        return name

    def set_phase(self, name, phase):
        with self.lock:
            self.objects[f"/api/v1/namespaces/team/pods/{name}"]["status"] = {"phase": phase}
            self.lock.notify_all()

    def finish(self, job, condition="Complete"):
        with self.lock:
            self.objects[f"/apis/batch/v1/namespaces/team/jobs/{job}"]["status"] = {
                "succeeded": 1, "conditions": [{"type": condition, "status": "True", "reason": "Why", "message": "because"}]}
            self.lock.notify_all()

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path, _, query = request.path.partition("?")
        with self.lock:
            self.requests.append((request.command, path, query))
        known = request.headers.get("Authorization") == f"Bearer {TOKEN}" or request.connection.getpeercert()
        if not known:
            return self.reply(request, 401, {"kind": "Status", "message": "Unauthorized"})
        if path.endswith("/log"):
            return self.stream(request, path.split("/")[-2], "follow=true" in query)
        with self.lock:
            code, answer = self.decide(request.command, path, query, json.loads(body) if body else None)
        return self.reply(request, code, answer)

    def decide(self, method, path, query, body):
        missing = 404, {"kind": "Status", "message": f'"{path}" not found'}
        if method == "POST":
            kind = path.split("/")[-1]
            if kind in self.refused:
                return self.refused[kind]
            place = f"{path}/{body['metadata']['name']}"
            if place in self.objects:
                return 409, {"kind": "Status", "message": f"{place} already exists"}
            body["metadata"]["uid"] = str(uuid.uuid4())
            self.objects[place] = body
            return 201, body
        if path.endswith("/pods"):
            label = query.partition("%3D")[2]
            return 200, {"items": [item for key, item in self.objects.items() if key.startswith(path + "/")
                                   and item["metadata"]["labels"]["app.kubernetes.io/instance"] == label]}
        if path not in self.objects:
            return missing
        if method == "PATCH":
            self.objects[path]["metadata"].update(body["metadata"])
        if method == "DELETE":
            gone = self.objects.pop(path)
            owned = [key for key, item in self.objects.items() for owner in item["metadata"].get("ownerReferences", [])
                     if owner["uid"] == gone["metadata"]["uid"]]
            for key in owned:
                del self.objects[key]
            return 200, {"kind": "Status"}
        return 200, self.objects[path]

    def reply(self, request, code, answer):
        body = json.dumps(answer).encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def stream(self, request, pod, follow):
        """What a pod has printed; with `follow` until it no longer runs."""
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        sent = 0
        while True:
            with self.lock:
                running = self.objects.get(f"/api/v1/namespaces/team/pods/{pod}", {}).get("status", {}).get("phase") == "Running"
                text = b"".join(self.logs[pod])[sent:]
                if not text and follow and running:
                    self.lock.wait(0.1)
                    continue
            if not text:
                break
            request.wfile.write(text)
            request.wfile.flush()
            sent += len(text)
        request.close_connection = True
