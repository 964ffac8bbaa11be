"""The cluster's DNS: names of headless services and of their pods, asked of the API server for each query.

    cluster_names.py SERVER TOKEN_FILE AUTHORITY ADDRESS
"""

import json
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.error
import urllib.request

FRESH_S = 0.5
ADDRESS_RECORD, NO_SUCH_NAME = 1, 3


class Names:
    def __init__(self, server, token_file, authority):
        self.server, self.context = server, ssl.create_default_context(cafile=authority)
        with open(token_file) as file:
            self.token = file.read().strip()
        self.known = {}

    def get(self, path):
        now = time.monotonic()
        if path in self.known and now - self.known[path][0] < FRESH_S:
            return self.known[path][1]
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=5) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError:
            found = {}
        self.known[path] = (now, found)
        return found

    def look_up(self, name):
        """Addresses; empty where there is no such name."""
        labels = name.lower().rstrip(".").split(".")
        if labels[-3:] != ["svc", "cluster", "local"] or len(labels) not in (5, 6):
            return []
        *pod, service, space = labels[:-3]
        found = self.get(f"/api/v1/namespaces/{space}/services/{service}")
        address = found.get("spec", {}).get("clusterIP", "None")
        if not pod and address != "None":
            return [address]
        endpoints = self.get(f"/api/v1/namespaces/{space}/endpoints/{service}")
        return [address["ip"] for subset in endpoints.get("subsets") or [] for address in subset.get("addresses") or []
                if not pod or address.get("hostname") == pod[0]]


def answer(names, query):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    (kind,) = struct.unpack(">H", query[at + 1:at + 3])
    try:
        found = names.look_up(".".join(labels))
    except OSError as error:  # the API server is not there: so is no name
        print(error, flush=True)
        found = []
    told = found if kind == ADDRESS_RECORD else []
    head = struct.pack(">HHHHH", 0x8580 | (0 if found else NO_SUCH_NAME), 1, len(told), 0, 0)
    records = b"".join(struct.pack(">HHHIH", 0xC00C, ADDRESS_RECORD, 1, 1, 4) + socket.inet_aton(address) for address in told)
    return query[:2] + head + query[12:at + 5] + records


def main():
    server, token_file, authority, address = sys.argv[1:]
    names = Names(server, token_file, authority)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((address, 53))
        while True:
            query, asker = port.recvfrom(1500)
            threading.Thread(target=lambda query=query, asker=asker: port.sendto(answer(names, query), asker), daemon=True).start()


if __name__ == "__main__":
    main()
