"""One hostile peer: it sends, keeps or withholds what no honest client does, until it is killed.

    hostile_peers.py KIND ADDRESSES

KIND is a function below without its "attack_", and ADDRESSES is a JSON object: coordinator, tcpstore, metrics and
worker have ports of this machine; ca, stranger and member have paths of PEM files without ".crt" and ".key". A
stranger has a certificate of the right CA and no role; the member is one of the tenant "m". `--list` prints all kinds.
One file, though long: a kind is a function, and all write their frames with the same ones.
"""

import gzip
import json
import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = b"COHORT/1"
TCPSTORE = b"\0" + struct.pack("<I", 0x3C85F7CE)
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


class Peer:
    def __init__(self, host, facts):
        self.host = host
        self.facts = facts
        self.contexts = {}

    def plain(self, server):
        connection = socket.create_connection(("127.0.0.1", self.facts[server]), 5, (self.host, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def context(self, who):
        if who not in self.contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(self.facts["ca"] + ".crt")
            if who is not None:
                context.load_cert_chain(self.facts[who] + ".crt", self.facts[who] + ".key")
            self.contexts[who] = context
        return self.contexts[who]

    def tls(self, server, who="stranger"):
        return self.context(who).wrap_socket(self.plain(server), server_hostname="localhost")


def http2_frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def header(name, value):
    # A literal without an index; lengths below 127.
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_headers(path):
    return b"".join(
        header(*pair)
        for pair in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )


def grpc_message(body, compressed=0):
    return bytes([compressed]) + struct.pack(">I", len(body)) + body


def frame(kind, call, body=b"", method=0, extra=0xFFFFFFFF):
    return struct.pack("<IIBBHI", len(body), call, kind, 0, method, extra) + body


def text(value):
    return struct.pack("<Q", len(value)) + value


def field(number, value):
    """A field of a protobuf message with bytes in it."""
    size, encoded = len(value), b""
    while size > 127:
        encoded += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + encoded + bytes([size]) + value


def open_http2(peer, server, who="stranger"):
    connection = peer.tls(server, who)
    connection.sendall(HTTP2 + http2_frame(SETTINGS, 0, 0))
    return connection


def methods(connection):
    """Greets by framed RPC; returns the numbers of the methods by name."""
    connection.sendall(FRAMES)
    seen = b""
    while len(seen) < 24 or len(seen) < 24 + struct.unpack("<I", seen[8:12])[0]:
        part = connection.recv(1 << 16)
        if not part:
            raise OSError("closed")
        seen += part
    names = seen[24:].decode().splitlines()
    return {name.split("/")[1]: number for number, name in enumerate(names)}


def keep(connections, most=500):
    while len(connections) > most:
        connections.pop(0).close()


# Without rights, at the coordinator.


def attack_silent_connections(peer, kept=[]):
    kept.append(peer.plain("coordinator"))
    keep(kept)


def attack_half_of_a_handshake(peer, kept=[]):
    connection = peer.plain("coordinator")
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(random.randrange(200)))
    kept.append(connection)
    keep(kept)


def attack_large_hellos(peer, kept=[]):
    connection = peer.plain("coordinator")
    connection.sendall(b"\x16\x03\x01\x3a\x98\x01\x00\x3a\x94\x03\x03" + os.urandom(14000))
    kept.append(connection)
    keep(kept)


def attack_idle_connections(peer, kept=[]):
    connection = open_http2(peer, "coordinator")
    headers = request_headers(b"/grpc.health.v1.Health/Check")
    connection.sendall(
        http2_frame(HEADERS, END_HEADERS, 1, headers) + http2_frame(DATA, END_STREAM, 1, grpc_message(b""))
    )
    kept.append(connection)
    keep(kept, 2000)


def attack_large_headers(peer, kept=[]):
    connection = open_http2(peer, "coordinator")
    more = header(b"x" * 100, b"y" * 100) * 75
    for stream in range(1, 1001, 2):
        connection.sendall(http2_frame(HEADERS, 0, stream, request_headers(b"/cohort.v1.StoreService/Put")))
        connection.sendall(http2_frame(CONTINUATION, 0, stream, more) + http2_frame(CONTINUATION, 4, stream, more))
    kept.append(connection)
    keep(kept, 20)


def attack_handshakes(peer):
    peer.tls("coordinator").close()


def attack_handshakes_without_a_certificate(peer):
    connection = peer.tls("coordinator", None)
    connection.recv(1)
    connection.close()


def attack_key_updates(peer):
    command = ["openssl", "s_client", "-quiet", "-connect", "127.0.0.1:%d" % peer.facts["coordinator"]]
    command += ["-cert", peer.facts["stranger"] + ".crt", "-key", peer.facts["stranger"] + ".key"]
    client = subprocess.Popen([c for c in command if c != "-quiet"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            client.stdin.write(b"K\n" * 50)
            client.stdin.flush()
            if client.poll() is not None:
                return
    finally:
        client.kill()
        client.wait()


def attack_rapid_resets(peer):
    connection = open_http2(peer, "coordinator")
    headers = request_headers(b"/cohort.v1.GroupService/KeepAlive")
    for stream in range(1, 1 << 20, 2):
        connection.sendall(
            http2_frame(HEADERS, END_HEADERS, stream, headers) + http2_frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
        )


def attack_continuations(peer):
    connection = open_http2(peer, "coordinator")
    connection.sendall(http2_frame(HEADERS, 0, 1, request_headers(b"/x")))
    while True:
        connection.sendall(http2_frame(CONTINUATION, 0, 1, header(b"x" * 100, b"y" * 100) * 60))


def attack_streams_without_a_body(peer, kept=[]):
    connection = open_http2(peer, "coordinator")
    headers = request_headers(b"/cohort.v1.StoreService/Put")
    for stream in range(1, 4001, 2):
        connection.sendall(http2_frame(HEADERS, END_HEADERS, stream, headers))
    kept.append(connection)
    keep(kept, 20)


def attack_health_watches(peer, kept=[]):
    connection = open_http2(peer, "coordinator")
    headers = request_headers(b"/grpc.health.v1.Health/Watch")
    for stream in range(1, 4001, 2):
        connection.sendall(
            http2_frame(HEADERS, END_HEADERS, stream, headers) + http2_frame(DATA, 0, stream, grpc_message(b""))
        )
        connection.sendall(http2_frame(DATA, 0, stream, grpc_message(bytes(12000))))
    kept.append(connection)
    keep(kept, 20)


def attack_compressed_messages(peer):
    connection = open_http2(peer, "coordinator")
    headers = request_headers(b"/cohort.v1.StoreService/Put")
    body = grpc_message(gzip.compress(bytes(64 << 20)), compressed=1)
    connection.sendall(http2_frame(HEADERS, END_HEADERS, 1, headers))
    for at in range(0, len(body), 16000):
        connection.sendall(http2_frame(DATA, 0, 1, body[at : at + 16000]))
    connection.recv(1 << 16)


def attack_pings(peer):
    connection = open_http2(peer, "coordinator")
    while True:
        connection.sendall(http2_frame(PING, 0, 0, bytes(8)) * 100 + http2_frame(SETTINGS, 0, 0) * 100)


def attack_partial_frames(peer, kept=[]):
    connection = peer.tls("coordinator")
    numbers = methods(connection)
    connection.sendall(frame(2, 1, bytes(4 << 20), numbers["Put"])[: 3 << 20])
    kept.append(connection)
    keep(kept, 100)


def attack_refused_calls(peer):
    connection = peer.tls("coordinator")
    numbers = list(methods(connection).values())
    for call in range(1 << 20):
        connection.sendall(frame(2, call, os.urandom(50), random.choice(numbers)))
        if call % 100 == 99:
            connection.recv(1 << 20)


def attack_wrong_tokens(peer):
    connection = peer.tls("coordinator")
    methods(connection)
    while True:
        connection.sendall(frame(5, 0, os.urandom(30).hex().encode()))


def attack_scrapes(peer, kept=[]):
    connection = peer.plain("metrics")
    connection.sendall(b"GET /metrics HTTP/1.1\r\n")
    kept.append(connection)
    keep(kept, 300)


# Without rights, at the worker.


def attack_worker_requests(peer):
    connection = open_http2(peer, "worker")
    connection.sendall(http2_frame(HEADERS, END_HEADERS, 1, request_headers(b"/cohort.v1.WorkerService/OpenSession")))
    while True:
        connection.sendall(http2_frame(DATA, 0, 1, bytes(16000)))


# Clients of TCPStore, which prove nothing, and have the role member in the tenant of their port.


def attack_partial_multi_set(peer, kept=[]):
    connection = peer.plain("tcpstore")
    keys = text("é".encode() * 4000) * 400
    connection.sendall(TCPSTORE + b"\x0b" + struct.pack("<Q", 800) + keys)
    for byte in text(b"x" * 8000):
        connection.sendall(bytes([byte]))
        time.sleep(0.01)
    kept.append(connection)
    keep(kept, 50)


def attack_repeated_keys(peer):
    connection = peer.plain("tcpstore")
    connection.sendall(TCPSTORE + b"\x01" + text(b"k") + text(bytes(1 << 20)))
    connection.sendall(b"\x0a" + struct.pack("<Q", 100000) + text(b"k") * 100000)
    connection.recv(1)
    time.sleep(1)


def attack_unread_lists(peer, kept=[]):
    connection = peer.plain("tcpstore")
    pairs = b"".join(text(b"%06d" % n + b"k" * 1000) + text(b"v") for n in range(500))
    connection.sendall(TCPSTORE + b"\x0b" + struct.pack("<Q", 500) + pairs)
    connection.sendall(b"\x11" * 200)
    kept.append(connection)
    keep(kept, 50)


# A member of one tenant, against the others.


def attack_values(peer):
    connection = peer.tls("coordinator", "member")
    numbers = methods(connection)
    scope = field(1, field(1, b"m"))
    for call in range(1 << 20):
        value = field(2, b"key%d" % (call % 1000)) + field(3, bytes(1 << 20))
        connection.sendall(frame(2, call, scope + value, numbers["Put"]))


def attack_unread_answers(peer, kept=[]):
    connection = peer.tls("coordinator", "member")
    numbers = methods(connection)
    request = field(1, field(1, b"m")) + b"".join(field(2, b"key%d" % n) for n in range(100))
    for call in range(2000):
        connection.sendall(frame(2, call, request, numbers["Get"]))
    kept.append(connection)
    keep(kept, 20)


def attack_unread_grpc_answers(peer, kept=[]):
    connection = open_http2(peer, "coordinator", "member")
    request = grpc_message(field(1, field(1, b"m")) + b"\x18\xe8\x07")  # a page of 1000 keys
    headers = request_headers(b"/cohort.v1.StoreService/Range")
    for stream in range(1, 2001, 2):
        connection.sendall(
            http2_frame(HEADERS, END_HEADERS, stream, headers) + http2_frame(DATA, END_STREAM, stream, request)
        )
    kept.append(connection)
    keep(kept, 20)


def attack_many_fields(peer):
    connection = peer.tls("coordinator", "member")
    numbers = methods(connection)
    body = field(1, field(1, b"m")) + b"\x12\x00" * (1 << 20)
    for call in range(1 << 20):
        connection.sendall(frame(2, call, body, numbers["Get"]))
        connection.recv(1 << 20)


def attack_wakes(peer, rounds=[0]):
    connection = peer.tls("coordinator", "member")
    numbers = methods(connection)
    scope = field(1, field(1, b"m"))
    rounds[0] += 1
    last = field(2, b"last%d" % rounds[0])
    keys = b"".join(field(2, b"wake%d" % n) for n in range(500)) + last
    for call in range(200):
        connection.sendall(frame(2, call, scope + keys + field(3, b"\x08\x0a"), numbers["Get"]))
    for n in range(500):
        connection.sendall(frame(2, 1000 + n, scope + field(2, b"wake%d" % n) + field(3, b"v"), numbers["Put"]))
    connection.sendall(frame(2, 2000, scope + last + field(3, b"v"), numbers["Put"]))
    time.sleep(1)
    while connection.recv(1 << 20):
        pass


def attack_groups(peer):
    connection = peer.tls("coordinator", "member")
    numbers = methods(connection)
    for call in range(1 << 20):
        spec = b"\x08\x02\x10\x02"  # min_members and max_members 2
        scope = field(1, field(1, b"m") + field(2, b"g%d-%d" % (os.getpid(), call)))
        connection.sendall(frame(2, call, scope + field(2, b"m") + b"\x18\x01" + field(8, spec), numbers["Join"]))


def attack_tensors(peer):
    connection = open_http2(peer, "worker", "member")
    for stream in range(1, 2001, 2):
        headers = request_headers(b"/cohort.v1.WorkerService/OpenSession")
        connection.sendall(
            http2_frame(HEADERS, END_HEADERS, stream, headers)
            + http2_frame(DATA, END_STREAM, stream, grpc_message(b""))
        )
    time.sleep(1)


KINDS = {name[len("attack_") :]: value for name, value in list(globals().items()) if name.startswith("attack_")}


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(KINDS))
        return
    # A peer has processors of its own: here it has what the servers and honest clients leave.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
    attack = KINDS[sys.argv[1]]
    # Limits count addresses, and a peer has one of its own.
    peer = Peer("127.0.1.%d" % (1 + list(KINDS).index(sys.argv[1])), json.loads(sys.argv[2]))
    while True:
        try:
            attack(peer)
        except OSError:  # refused, closed, or timed out: again
            time.sleep(0.001)


if __name__ == "__main__":
    main()
