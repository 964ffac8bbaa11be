"""Strangers for tests: processes that visit ports and do not know the secret. They run as nobody where they can.

As a program: `crowd.py KIND` reads the secret (for the kinds that once overheard somebody who knows it) and then places,
`ADDRESS PORT` a line, from stdin, and visits them until stdin ends; it prints how many visits it has made.
`crowd.py imposter FILE` listens, prints its port, and plays the store of a rank 0.

The handshake is written here a second time, from its description in tandem/comm/handshake.h.
"""

import hashlib
import hmac
import os
import pathlib
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time

DEADLINE_S = 120
NOBODY = 65534
HELD = 1100  # silent connections, at each place
MAGIC, PURPOSE = b"tandem 1", b"store 1"


def secret_of(file):
    """What a launch makes of the content of its secret file."""
    return hashlib.sha256(file.read_bytes().rstrip(b"\r\n")).digest()


def proof(secret, side, server_nonce, client_nonce, purpose=PURPOSE):
    return hmac.new(secret, side + server_nonce + client_nonce + purpose, hashlib.sha256).digest()


def frame(*fields):
    body = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return struct.pack("<I", len(body)) + body


def read_exactly(connection, count):
    received = b""
    while len(received) < count:
        more = connection.recv(count - len(received))
        if not more:
            raise ConnectionError("closed")
        received += more
    return received


def read_frame(connection):
    body = read_exactly(connection, struct.unpack("<I", read_exactly(connection, 4))[0])
    fields = []
    while body:
        length = struct.unpack("<I", body[:4])[0]
        fields.append(body[4:4 + length])
        body = body[4 + length:]
    return fields


# What would end a run: a rank that is said to be gone, a launch that is said to be interrupted.
ENDINGS = (frame(b"set", b"none/0/ended", b"a stranger says so") +
           frame(b"set", b"tandem-launch/none/0/interrupt", b"15"))


def connect(place):
    connection = socket.create_connection(place, timeout=2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def hear_out(connection):
    """Until the other side closes or says nothing more for a while."""
    connection.settimeout(0.5)
    while connection.recv(4096):
        pass


class Silent:
    """So many connections that say nothing."""

    def __init__(self, _):
        self.held = []

    def visit(self, place):
        self.held.append(connect(place))
        if len(self.held) > HELD:
            self.held.pop(0).close()


class Garbage:
    def __init__(self, _):
        self.rng = random.Random(1)

    def visit(self, place):
        with connect(place) as connection:
            connection.sendall(self.rng.randbytes(self.rng.choice((1, 64, 65, 4096, 100000))))
            hear_out(connection)


class HugeFrame:
    """The beginning of a message that would be 16 MB, and 4 GB, long."""

    def __init__(self, _):
        self.held = []

    def visit(self, place):
        connection = connect(place)
        self.held.append(connection)
        connection.sendall(struct.pack("<I", random.choice((16 << 20, 0xffffffff))) + bytes(20000))
        if len(self.held) > 60:
            self.held.pop(0).close()


class HalfMessage:
    """Stops in the middle of what is a good beginning."""

    def __init__(self, _):
        self.held = []

    def visit(self, place):
        connection = connect(place)
        self.held.append(connection)
        connection.sendall(os.urandom(random.randrange(1, 64)))
        if len(self.held) > 60:
            self.held.pop(0).close()


class FormerLanguage:
    """That of a store which asked nobody who they are."""

    def __init__(self, _):
        pass

    def visit(self, place):
        with connect(place) as connection:
            connection.sendall(frame(b"hello", b"tandem store 1") + ENDINGS)
            hear_out(connection)


class WrongSecret:
    def __init__(self, _):
        pass

    def visit(self, place):
        with connect(place) as connection:
            nonce = os.urandom(32)
            server_nonce = read_exactly(connection, len(MAGIC) + 32)[len(MAGIC):]
            wrong = random.choice((b"", b"wrong", os.urandom(32)))
            connection.sendall(nonce + proof(wrong, b"client", server_nonce, nonce) + ENDINGS)
            hear_out(connection)


class Replay:
    """Says again what a client of the launch has said."""

    def __init__(self, secret):
        self.secret, self.recorded = secret, {}

    def overhear(self, place):
        with connect(place) as connection:
            greeting = read_exactly(connection, len(MAGIC) + 32)
            nonce, server_nonce = os.urandom(32), greeting[len(MAGIC):]
            said = nonce + proof(self.secret, b"client", server_nonce, nonce)
            connection.sendall(said)
            if read_exactly(connection, 32) != proof(self.secret, b"server", server_nonce, nonce):
                raise ConnectionError("it has another secret")
            return said

    def visit(self, place):
        if place not in self.recorded:
            self.recorded[place] = self.overhear(place)
        with connect(place) as connection:
            connection.sendall(self.recorded[place] + ENDINGS)
            hear_out(connection)


KINDS = {"silent": Silent, "garbage": Garbage, "huge frame": HugeFrame, "half message": HalfMessage,
         "former language": FormerLanguage, "wrong secret": WrongSecret, "replay": Replay}


class Told:
    """A process of strangers, and the numbers it prints."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.last = 0
        self.reader = threading.Thread(target=self.read)
        self.first = int(self.process.stdout.readline())
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.last = int(line)

    def say(self, line):
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def disperse(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Crowd(Told):
    def __init__(self, kind, secret):
        super().__init__(kind)
        self.kind = kind
        self.say(secret.hex())

    @property
    def num_visits(self):
        return self.last

    def go_to(self, address, port):
        self.say(f"{address} {port}")

    def wait_for_some(self, process_ended):
        """Until as many have come as shall be there, or there is nobody left to come to."""
        enough = HELD if self.kind == "silent" else 1
        deadline = time.monotonic() + DEADLINE_S
        while self.num_visits < enough and not process_ended():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.num_visits} strangers of kind '{self.kind}' came, of {enough}")
            time.sleep(0.01)


class Imposter(Told):
    """At a port of its own, it tells ranks to share a file."""

    def __init__(self, file):
        super().__init__("imposter", file)
        self.port = self.first

    def visits(self):
        return self.last


class Count:
    def __init__(self):
        self.lock, self.value = threading.Lock(), 0

    def add(self):
        with self.lock:
            self.value += 1
            print(self.value, flush=True)


def keep_visiting(visitor, place, count):
    while True:
        try:
            visitor.visit(place)
            count.add()
        except ConnectionRefusedError:  # nobody there yet
            time.sleep(0.005)
        except (TimeoutError, ConnectionError):  # it was heard out, or shown the door
            count.add()
        time.sleep(0.001)


def run_crowd(kind):
    print(0, flush=True)
    secret = bytes.fromhex(sys.stdin.readline())
    count = Count()
    for line in sys.stdin:
        address, port = line.split()
        threading.Thread(target=keep_visiting, args=(KINDS[kind](secret), (address, int(port)), count),
                         daemon=True).start()


def play_store(connection, victim):
    """To one client: first as a store that asks nobody anything; to one that waits to be greeted, as a server that hopes
    not to be asked for a proof."""
    if not select.select([connection], [], [], 0.3)[0]:
        connection.sendall(MAGIC + os.urandom(32))
        said = read_exactly(connection, 64)
        connection.sendall(said[32:])
        connection.recv(1)
        return
    member = b""
    while True:
        name, *arguments = read_frame(connection)
        if name == b"set_if_missing":
            if b"/member/" in arguments[0]:
                member = arguments[1]
            connection.sendall(frame(b"ok", arguments[1]))
        elif name == b"add":
            connection.sendall(frame(b"ok", b"1"))
        elif name == b"get" and arguments[0].endswith(b"/ready"):
            # Rank 0 is what rank 1 said of itself, with another number.
            first = member.replace(struct.pack("<I", 1) + b"1", struct.pack("<I", 1) + b"0", 1)
            connection.sendall(frame(b"ok", b"R" + frame(first, member)))
        elif name == b"get" and arguments[0].endswith(b"/shm"):
            connection.sendall(frame(b"ok", os.fsencode(victim)))
        elif name not in (b"get", b"alive", b"farewell"):
            connection.sendall(frame(b"ok"))


def run_imposter(victim):
    count = Count()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            count.add()
            threading.Thread(target=serve_one, args=(connection, victim), daemon=True).start()


def serve_one(connection, victim):
    with connection:
        try:
            play_store(connection, victim)
        except OSError:
            pass


def main():
    if os.geteuid() == 0:
        "".encode("idna")  # sockets load it when they need it, from where nobody may not read
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if sys.argv[1] == "imposter":
        run_imposter(pathlib.Path(sys.argv[2]))
    else:
        run_crowd(sys.argv[1])


if __name__ == "__main__":
    main()
