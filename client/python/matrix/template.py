"""A process that has imported what ranks need, and forks a rank at each request.

The imports take seconds, a fork takes milliseconds. The process makes no call of Cohort itself, so
its children may. It reports their exit statuses, with the time.
"""

import atexit
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
import time

# A rank writes the stacks of its threads when it gets this signal, even if it holds the GIL.
TRACE_SIGNAL = signal.SIGRTMIN + 7


# A rank calls it when all handlers of atexit have run.
at_last = []


@atexit.register  # The first one runs last.
def _run_at_last():
    for function in at_last:
        function()


def _imports(with_torch):
    # pylint: disable=import-outside-toplevel,unused-import
    import asyncio
    import numpy
    import cohort
    import cohort.aio
    import matrix.rank
    if with_torch:
        import torch
        import testing.torch_preload
        import cohort.vllm
        import cohort.regions
        torch.set_num_threads(1)
        # PyTorch loads its meta kernels for seconds, with the first call that uses one. Wrong arguments
        # of the matrix do.
        torch.cat([torch.ones(1, device='meta')] * 2)


def _report(control, children):
    """Reports the children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(json.dumps({'ended': children.pop(pid), 'status': os.waitstatus_to_exitcode(status),
                                 'at': time.monotonic()}).encode())


def _become_rank(fds, spec):
    """The first steps of a child, before it runs the program of a rank."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(spec['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(file=2)
    faulthandler.register(TRACE_SIGNAL, file=2, all_threads=True, chain=False)
    return [socket.socket(fileno=fd) for fd in fds]


def serve(control):
    """Forks ranks until the runner closes its end. Returns in each child, with the sockets of the
    rank and its description; in this process it returns None."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = {}  # by pid, the identity that the runner gave
    while True:
        ready = select.select([control, reader], [], [])[0]
        if reader in ready:
            os.read(reader, 4096)
            _report(control, children)
        if control not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not request:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            control.close()
            os.close(reader)
            os.close(writer)
            spec = json.loads(request)
            return _become_rank(fds, spec), spec
        children[pid] = json.loads(request)['identity']
        for descriptor in fds:
            os.close(descriptor)
        control.send(json.dumps({'forked': pid, 'at': time.monotonic()}).encode())


if __name__ == '__main__':
    _imports(sys.argv[2] == 'torch')
    gc.freeze()
    _control = socket.socket(fileno=int(sys.argv[1]))
    _control.send(b'{"ready": true}')
    forked = serve(_control)
    if forked is not None:
        # A rank ends as any program does: the interpreter closes open objects.
        from matrix import rank
        _rank = rank.Rank(*forked)
        at_last.append(_rank.say_closed)
        _rank.serve()
