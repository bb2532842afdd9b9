"""The stateless process group of vLLM, as an algorithm, over PyTorch's TCPStore.

Written from a description of its keys:
  broadcast   the source writes a key made of its rank and a counter; the others read it, blocking.
  all_gather  one broadcast from each rank, in order of rank.
  barrier     rank 0 makes a random id and broadcasts it; every rank writes an arrival key; every rank
              reads the arrival keys of all ranks one after the other; every rank writes a departure
              key; rank 0 reads the departure keys of all and deletes arrivals and departures.
  send        the sender writes a key made of the pair and a counter; the receiver reads it.
Rank 0's process hosts the store, as there. Values are bytes, without the pickling of the original:
that is in its favour.

Each member is a process of its own with a store client of its own. They are forked after torch was
imported, so 256 members need little more memory than one. All members of a round are told to start
at one moment of the monotonic clock; a round's time is from the first start to the last end.

Reads commands on standard input and writes one line for each: `ok`, or the time in microseconds.
    setup MEMBERS | barrier | barriers | all_gather BYTES | handoff BYTES | ping_pong BYTES | teardown

  printf 'setup 8\nbarrier\nbarrier\nteardown\n' | /usr/bin/python3 tcpstore_stateless.py
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import time
import uuid
from datetime import timedelta

from torch.distributed import TCPStore

TIMEOUT = timedelta(seconds=300)
# Sent to a member: what to do, with how many bytes, from which moment on.
COMMAND = struct.Struct("<iqd")
# Got back: when it began and ended.
TIMES = struct.Struct("<dd")
BARRIER, ALL_GATHER, HANDOFF, BARRIERS, PING_PONG = range(5)
# How many follow each other without a pause. The time is that of one barrier, and half of a round trip.
BARRIERS_IN_A_ROW = 20
ROUND_TRIPS = 100
OPERATIONS = {"barrier": BARRIER, "barriers": BARRIERS, "all_gather": ALL_GATHER, "handoff": HANDOFF,
              "ping_pong": PING_PONG}
PR_SET_PDEATHSIG = 1


class StatelessGroup:
    """One member's side."""

    def __init__(self, rank, world_size, store):
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self.broadcasts = [0] * world_size
        self.sent = {}
        self.received = {}

    def send(self, value, destination):
        number = self.sent.get(destination, 0)
        self.sent[destination] = number + 1
        self.store.set(f"send/{self.rank}/{destination}/{number}", value)

    def receive(self, source):
        number = self.received.get(source, 0)
        self.received[source] = number + 1
        return self.store.get(f"send/{source}/{self.rank}/{number}")

    def broadcast(self, value, source):
        key = f"broadcast/{source}/{self.broadcasts[source]}"
        self.broadcasts[source] += 1
        if self.rank == source:
            self.store.set(key, value)
            return value
        return self.store.get(key)

    def all_gather(self, value):
        return [
            self.broadcast(value if rank == self.rank else None, rank)
            for rank in range(self.world_size)
        ]

    def barrier(self):
        barrier_id = self.broadcast(uuid.uuid4().hex if self.rank == 0 else None, 0)
        if isinstance(barrier_id, bytes):
            barrier_id = barrier_id.decode()
        ranks = range(self.world_size)
        self.store.set(f"arrival/{barrier_id}/{self.rank}", b"1")
        for rank in ranks:
            self.store.get(f"arrival/{barrier_id}/{rank}")
        self.store.set(f"departure/{barrier_id}/{self.rank}", b"1")
        if self.rank != 0:
            return
        for rank in ranks:
            self.store.get(f"departure/{barrier_id}/{rank}")
        for rank in ranks:
            self.store.delete_key(f"arrival/{barrier_id}/{rank}")
            self.store.delete_key(f"departure/{barrier_id}/{rank}")


def read_exactly(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def run(group, operation, size):
    """When this member's part began and ended."""
    value = b"x" * size
    begin = time.monotonic()
    if operation == BARRIER:
        group.barrier()
    elif operation == BARRIERS:
        for _ in range(BARRIERS_IN_A_ROW):
            group.barrier()
    elif operation == ALL_GATHER:
        assert len(group.all_gather(value)) == group.world_size
    elif operation == PING_PONG and group.rank < 2:
        for _ in range(ROUND_TRIPS):
            if group.rank == 0:
                group.send(value, 1)
            assert len(group.receive(1 - group.rank)) == size
            if group.rank == 1:
                group.send(value, 0)
    elif group.rank == 0:
        time.sleep(0.005)  # the receiver is blocked by then
        begin = time.monotonic()
        group.send(value, 1)
    elif group.rank == 1:
        assert len(group.receive(0)) == size
    return begin, time.monotonic()


def make_group(rank, world_size, port, announce):
    if rank == 0:
        store = TCPStore("127.0.0.1", 0, None, True, TIMEOUT, wait_for_workers=False)
        port = store.port
    else:
        store = TCPStore("127.0.0.1", port, None, False, TIMEOUT, wait_for_workers=False)
    announce(port)
    return StatelessGroup(rank, world_size, store)


def member_main(make, rank, world_size, port, control):
    # A member that is blocked in the store must not outlive the benchmark.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    group = make(rank, world_size, port, lambda port: control.sendall(struct.pack("<i", port)))
    while True:
        try:
            operation, size, start = COMMAND.unpack(read_exactly(control, COMMAND.size))
        except EOFError:
            return
        time.sleep(max(0.0, start - time.monotonic()))
        control.sendall(TIMES.pack(*run(group, operation, size)))


class Members:
    """The processes of one group, seen from their parent.

    Each calls make(rank, world_size, port, announce) for its group. Rank 0 gets port 0, and announces
    the port that the others get; they announce it, too, before they wait for each other.
    """

    # The parent's ends of all groups. A member must not hold them open: it ends when its own is closed.
    all_controls = set()

    def __init__(self, world_size, make=make_group):
        self.controls = []
        self.pids = []
        port = 0
        for rank in range(world_size):
            mine, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                for control in [mine, *self.all_controls]:
                    control.close()
                status = 1
                try:
                    member_main(make, rank, world_size, port, theirs)
                    status = 0
                finally:
                    os._exit(status)
            theirs.close()
            self.controls.append(mine)
            self.all_controls.add(mine)
            self.pids.append(pid)
            (port,) = struct.unpack("<i", read_exactly(mine, 4))

    def measure(self, operation, size):
        """Microseconds of one round."""
        # Long enough for every member to have been told and to be asleep again.
        start = time.monotonic() + 0.01 + 0.0005 * len(self.controls)
        for control in self.controls:
            control.sendall(COMMAND.pack(operation, size, start))
        times = [TIMES.unpack(read_exactly(control, TIMES.size)) for control in self.controls]
        if operation == HANDOFF:
            return (times[1][1] - times[0][0]) * 1e6
        if operation == PING_PONG:
            return (times[0][1] - times[0][0]) / (2 * ROUND_TRIPS) * 1e6
        time_us = (max(end for _, end in times) - min(begin for begin, _ in times)) * 1e6
        return time_us / BARRIERS_IN_A_ROW if operation == BARRIERS else time_us

    def stop(self):
        # Rank 0, which hosts the store, goes last.
        for control, pid in reversed(list(zip(self.controls, self.pids))):
            control.close()
            self.all_controls.discard(control)
            os.waitpid(pid, 0)


def main():
    members = None
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "setup":
            members = Members(int(arguments[0]))
            answer = "ok"
        elif command == "teardown":
            members.stop()
            members = None
            answer = "ok"
        else:
            size = int(arguments[0]) if arguments else 0
            answer = f"{members.measure(OPERATIONS[command], size):.1f}"
        print(answer, flush=True)
    if members is not None:
        members.stop()


if __name__ == "__main__":
    main()
