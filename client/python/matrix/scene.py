"""The processes of one pair: its ranks, as the runner sees them."""

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from matrix.rank import FAULT_STATUS
from matrix.template import TRACE_SIGNAL
from testing.coordinator import restartable_coordinator, worker

# A pair that is not over after so many seconds is stuck, and is killed.
DEADLINE = 20


class Hung(Exception):
    """A rank did not do in time what the pair waits for."""

    def __init__(self, rank, what):
        super().__init__(f'rank {rank} does not {what}')
        self.rank = rank


class Fault(Exception):
    """A fault of the matrix, not of the product."""


class Template:
    """The process that forks ranks, with or without PyTorch."""

    def __init__(self, with_torch):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(  # pylint: disable=consider-using-with
            [sys.executable, '-m', 'matrix.template', str(theirs.fileno()),
             'torch' if with_torch else 'plain'], pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL)
        theirs.close()
        self._forking = threading.Lock()
        self._changed = threading.Condition()
        self._forked = []
        self._ended = {}
        self._identities = itertools.count()
        message = self._socket.recv(1 << 16)
        if b'ready' not in message:
            raise Fault('the template of ranks does not start')
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while message := self._socket.recv(1 << 16):
            event = json.loads(message)
            with self._changed:
                if 'forked' in event:
                    self._forked.append(event['forked'])
                else:
                    self._ended[event['ended']] = event['status'], event['at']
                self._changed.notify_all()
        with self._changed:
            self._forked.append(None)
            self._changed.notify_all()

    def fork(self, spec):
        """Returns the pid of a new rank, its identity, and the runner's ends of its two sockets. A pid
        may come again; an identity does not."""
        identity = next(self._identities)
        ours, theirs = zip(*(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                             for _ in range(2)))
        with self._forking:
            socket.send_fds(self._socket, [json.dumps({**spec, 'identity': identity}).encode()],
                            [each.fileno() for each in theirs])
            with self._changed:
                if not self._changed.wait_for(lambda: self._forked, 10):
                    raise Fault('the template of ranks does not fork')
                pid = self._forked.pop()
        for each in theirs:
            each.close()
        if pid is None:
            raise Fault('the template of ranks has ended')
        return pid, identity, *ours

    def ended(self, identity, seconds):
        """Returns the exit status of a rank and when it ended; None if it still runs after so many
        seconds."""
        with self._changed:
            self._changed.wait_for(lambda: identity in self._ended, max(0, seconds))
            return self._ended.get(identity)

    def close(self):
        """Ends the template and the ranks that it has forked."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(10)
        self._socket.close()


class RankHandle:
    """A rank, as the runner commands it."""

    def __init__(self, rank, template, spec, deadline):
        self.rank = rank
        self._template = template
        self._deadline = deadline
        self._messages = []
        self._log = spec['log']
        self.pid, self._identity, self._socket, self._helper = template.fork(spec)
        self._process = os.pidfd_open(self.pid)
        self._thread = None
        self.expects_end = False

    # --- Commands and messages.

    def _send(self, channel, command):
        try:
            channel.send(json.dumps(command).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the rank has ended; the wait for its answer says so

    def tell(self, do, **arguments):
        """Sends a command, and does not wait for the reply."""
        self._send(self._socket, {'do': do, **arguments})

    def ask(self, do, seconds=10, **arguments):
        """Sends a command and returns its reply."""
        self.tell(do, **arguments)
        return self.wait('reply', seconds, f'finish "{do}"')

    def tell_helper(self, do):
        """Sends a command to the rank's second thread."""
        self._send(self._helper, {'do': do})

    def wait_helper(self, seconds, what):
        """Returns the reply of the second thread."""
        self._await(self._helper, seconds, what)
        return json.loads(self._helper.recv(1 << 16) or b'{}')

    def _await(self, channel, seconds, what):
        limit = min(seconds, self._deadline - time.monotonic())
        if not select.select([channel], [], [], max(0, limit))[0]:
            raise Hung(self.rank, what)

    def poll(self, kind, seconds=0.0):
        """Returns the oldest message of this kind, or None if none came within so many seconds. If
        the process has ended, the message is that."""
        end = time.monotonic() + seconds
        while True:
            for index, message in enumerate(self._messages):
                if message['kind_of_message'] in (kind, 'ended'):
                    return message if message['kind_of_message'] == 'ended' \
                        else self._messages.pop(index)
            left = end - time.monotonic()
            if not select.select([self._socket], [], [], max(0, left))[0]:
                return None
            try:
                data = self._socket.recv(1 << 17)
            except ConnectionResetError:
                data = b''
            message = json.loads(data) if data else {'kind_of_message': 'ended', 'at': 0}
            if message['kind_of_message'] == 'fault':
                raise Fault(f'rank {self.rank}: {message["text"]}')
            self._messages.append(message)

    def wait(self, kind, seconds, what):
        """Returns the next message of this kind. Raises Hung."""
        message = self.poll(kind, min(seconds, max(0, self._deadline - time.monotonic())))
        if message is None:
            raise Hung(self.rank, what)
        return message

    # --- Calls.

    def call(self, do='call', **arguments):
        """Lets the rank begin its call, and returns without waiting for it."""
        self.tell(do, **arguments)

    def await_in_call(self):
        """Waits until the thread of the call sleeps in it. Returns False if the call is over."""
        begun = self.wait('calling', 10, 'begin its call')
        if begun['kind_of_message'] == 'ended':
            return False
        end = time.monotonic() + 5
        path = f'/proc/{self.pid}/task/{begun["thread"]}/stat'
        seen = 0
        while time.monotonic() < end:
            if any(each['kind_of_message'] in ('outcome', 'ended') for each in self._messages):
                return False
            try:
                with open(path, 'rb') as file:
                    asleep = file.read().rpartition(b')')[2].split()[0] == b'S'
            except (FileNotFoundError, ProcessLookupError):
                return False
            # Twice in a row: a thread that waits for a lock for a moment is not yet in its wait.
            seen = seen + 1 if asleep else 0
            if seen == 3:
                return True
            self.poll('nothing', 0.003)
        raise Hung(self.rank, 'sleep in its call')

    def outcome(self, seconds):
        """Returns the outcome of the call. Raises Hung."""
        return self.wait('outcome', seconds, 'end its call')

    # --- The process.

    def signal(self, number):
        """Sends a signal, and returns when."""
        now = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)
        return now

    def end(self, seconds):
        """Returns the exit status, and when the process ended. Raises Hung."""
        ended = self._template.ended(self._identity, min(seconds, self._deadline - time.monotonic()))
        if ended is None:
            raise Hung(self.rank, 'end')
        if ended[0] == FAULT_STATUS:
            self.poll('nothing')  # raises the fault
            raise Fault(f'rank {self.rank}: {self.log()}')
        return ended

    def has_ended(self):
        """Whether the process has ended."""
        return self._template.ended(self._identity, 0) is not None

    def stacks(self):
        """Lets the rank write the stacks of its threads, and returns the end of its log."""
        if not self.has_ended():
            before = os.path.getsize(self._log)
            self.signal(signal.SIGCONT)
            self.signal(TRACE_SIGNAL)
            end = time.monotonic() + 1
            while os.path.getsize(self._log) == before and time.monotonic() < end:
                self.poll('nothing', 0.01)
        return f'{self._threads()}{self.log()}'

    def _threads(self):
        """The threads and what each waits for in the kernel: Python shows no stacks at its end."""
        lines = []
        with contextlib.suppress(OSError):
            for thread in sorted(os.listdir(f'/proc/{self.pid}/task')):
                parts = []
                for name in ('comm', 'wchan'):
                    with contextlib.suppress(OSError), open(
                            f'/proc/{self.pid}/task/{thread}/{name}', encoding='ascii') as file:
                        parts.append(file.read().strip())
                lines.append(f'  thread {" in ".join(parts)}\n')
        return ''.join(lines)

    def log(self):
        """The end of what the rank has written."""
        with open(self._log, encoding='utf-8', errors='replace') as file:
            return file.read()[-3000:]

    def close(self):
        """Kills the process if it still runs."""
        if not self.has_ended():
            self.signal(signal.SIGKILL)
            if self._template.ended(self._identity, 5) is None:
                raise Fault(f'rank {self.rank} cannot be killed')
        self._socket.close()
        self._helper.close()
        os.close(self._process)


class Servers:
    """A coordinator, and worker daemons."""

    def __init__(self, workers=2):
        self._stack = contextlib.ExitStack()
        self.coordinator = self._stack.enter_context(restartable_coordinator(journal=False))
        self.address = self.coordinator.address
        started = [self._stack.enter_context(worker(self.address)) for _ in range(workers)]
        self.workers = [address for address, _ in started]
        self._processes = [process for _, process in started]

    def close(self):
        """Ends them at once."""
        for process in self._processes:
            process.kill()
        self._stack.close()


def elements_of(pair):
    """How many elements the arrays of a pair have: few in most pairs, and else many."""
    return 30000 if zlib.crc32(pair.encode()) % 4 == 0 else 4


class Scene:
    """The ranks of one pair, which have joined."""

    def __init__(self, pair, call, servers, template, ranks, **spec):
        self.call, self.servers = call, servers
        self.began = time.monotonic()
        self.deadline = self.began + DEADLINE
        self.folder = tempfile.TemporaryDirectory(prefix='matrix')  # pylint: disable=consider-using-with
        self.ranks = []
        # Names of groups differ in all pairs.
        name = os.path.basename(self.folder.name)
        for rank in range(ranks):
            self.ranks.append(RankHandle(rank, template, {
                'rank': rank, 'size': ranks, 'name': name, 'address': servers.address,
                'form': call.form, 'workers': servers.workers, 'folder': self.folder.name,
                'elements': elements_of(pair), 'whole_end': zlib.crc32(pair.encode()) % 8 == 0,
                'call': call.id, 'mode': call.mode,
                'log': os.path.join(self.folder.name, f'log-{rank}'), **spec}, self.deadline))

    def prepare(self):
        """Lets all ranks join."""
        for rank in self.ranks:
            rank.tell('prepare')
        for rank in self.ranks:
            reply = rank.wait('reply', 15, 'join')
            if reply['kind_of_message'] == 'ended':
                raise Fault(f'rank {rank.rank} ended while it joined: {rank.log()}')

    def close(self):
        """Ends the processes."""
        try:
            for rank in self.ranks:
                rank.close()
        finally:
            self.folder.cleanup()

