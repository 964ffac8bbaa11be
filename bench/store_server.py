#!/usr/bin/env python3
"""A server that speaks the part of S3 that Tandem uses, with its objects in memory, for measurements: it checks nothing and copies
each byte once, so that whoever is measured against it waits for itself. Not for tests: those ask a server of another make.

    python3 bench/store_server.py --port 9000
"""
import argparse
import http.server
import itertools
import re
import socketserver
import threading
import urllib.parse
import xml.sax.saxutils

objects = {}  # key: [memoryview of a part, ...]
uploads = {}  # id: (key, {number: memoryview})
lock = threading.Lock()
ids = itertools.count(1)


def size_of(parts):
    return sum(len(part) for part in parts)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle_one(self):
        split = urllib.parse.urlsplit(self.path)
        self.key = urllib.parse.unquote(split.path).lstrip("/")
        self.query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        body = memoryview(bytearray(int(self.headers.get("Content-Length", 0))))
        at = 0
        while at < len(body):
            got = self.rfile.readinto(body[at:])
            if not got:
                raise ConnectionError
            at += got
        getattr(self, "on_" + self.command.lower())(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def answer(self, status, parts=(), **headers):
        self.send_response_only(status)
        length = headers.pop("length", size_of(parts))
        for name, value in {"ETag": '"1"', **headers, "Content-Length": str(length)}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def on_put(self, body):
        with lock:
            if "uploadId" in self.query:
                uploads[self.query["uploadId"]][1][int(self.query["partNumber"])] = body
            elif self.headers.get("If-None-Match") == "*" and self.key in objects:
                return self.answer(412)
            else:
                objects[self.key] = [body]
        return self.answer(200)

    def on_post(self, _body):
        with lock:
            if "uploads" in self.query:
                upload = str(next(ids))
                uploads[upload] = (self.key, {})
                text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            else:
                key, parts = uploads.pop(self.query["uploadId"])
                objects[key] = [parts[number] for number in sorted(parts)]
                text = "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"
        self.answer(200, [text.encode()])

    def on_delete(self, _body):
        with lock:
            if "below" in self.query:  # not of S3: all of a prefix
                for key in [key for key in objects if key.startswith(self.key)]:
                    del objects[key]
            elif "uploadId" in self.query:
                uploads.pop(self.query["uploadId"], None)
            else:
                objects.pop(self.key, None)
        self.answer(204)

    def on_head(self, _body):
        parts = objects.get(self.key)
        self.answer(404 if parts is None else 200, length=0 if parts is None else size_of(parts))

    def on_get(self, _body):
        if "list-type" in self.query:
            return self.list(self.key.split("/")[0])
        if "uploads" in self.query:
            return self.answer(200, [b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"])
        parts = objects.get(self.key)
        if parts is None:
            return self.answer(404)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.answer(200, parts)
        first, last, total = int(wanted[1]), int(wanted[2]), size_of(parts)
        cut, at = [], 0
        for part in parts:
            cut.append(part[max(0, first - at):max(0, last + 1 - at)])
            at += len(part)
        return self.answer(206, cut, Content_Range=f"bytes {first}-{last}/{total}")

    def list(self, bucket):
        prefix = self.query.get("prefix", "")
        with lock:
            found = sorted((key.removeprefix(bucket + "/"), size_of(parts)) for key, parts in objects.items()
                           if key.startswith(f"{bucket}/{prefix}"))
        entries = "".join(f"<Contents><Key>{xml.sax.saxutils.escape(urllib.parse.quote(key))}</Key><Size>{size}</Size>"
                          "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>" for key, size in found)
        return self.answer(200, [f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()])


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    server = Server(("127.0.0.1", parser.parse_args().port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
