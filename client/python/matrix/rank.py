"""The program of a rank: it obeys the runner, one command at a time, on its main thread.

The runner sends a command as a JSON object and gets a reply. A call on the subject of the pair is
announced by the message "calling" and ends with the message "outcome". Errors of calls are outcomes;
any other error here is a fault of the matrix, and the message "fault" has its traceback.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback

from matrix import calls


# The exit status of a rank after a fault of the matrix.
FAULT_STATUS = 97


class Stop(Exception):
    """The exception of a signal handler that raises."""


class Planned(ValueError):
    """The exception with which a rank ends that raises."""


def waited_for_processor():
    """For how many seconds this thread could have run, and did not get a processor."""
    with open('/proc/thread-self/schedstat', encoding='ascii') as file:
        return int(file.read().split()[1]) * 1e-9


def is_own(error):
    """Whether an exception comes from the text of the matrix itself, and not from the package."""
    # PyTorch's C++ raises a RuntimeError, whose last frame of Python is here.
    if isinstance(error, (RuntimeError, Stop, KeyboardInterrupt)):
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    folder = os.path.dirname(__file__)
    return os.path.dirname(frame.filename) == folder and not frame.filename.endswith('planted.py')


def describe(error):
    """The facts of an exception, as a JSON object."""
    return {'kind': 'error', 'class': type(error).__name__,
            'classes': [each.__name__ for each in type(error).__mro__],
            'text': str(error)[:2000], 'culprit': getattr(error, 'culprit', None),
            'missing': list(getattr(error, 'missing', None) or ())}


class Rank:
    """A rank of one pair."""

    def __init__(self, sockets, spec):
        self._socket, self._helper_socket = sockets
        self._spec = spec
        self._call = calls.BY_NAME[spec['call']]
        self._context = calls.Context(spec)
        self._runner = asyncio.Runner()
        self._in_call = False
        self._started = None
        self._pid = os.getpid()
        self._status = None  # with which the program ends; None: not by sys.exit
        self._waited = 0.0  # for a processor, before this command

    # --- Messages.

    def _send(self, message, **facts):
        self._socket.send(json.dumps({'kind_of_message': message, 'at': time.monotonic(), **facts},
                                     default=repr).encode())

    def serve(self):
        """Obeys commands until one of them ends the process, or the runner is gone."""
        while True:
            request = self._socket.recv(1 << 16)
            if not request:
                os._exit(0)
            command = json.loads(request)
            name = command.pop('do')
            self._waited = waited_for_processor()
            try:
                reply = getattr(self, f'_do_{name}')(**command) or {}
            except (SystemExit, KeyboardInterrupt, Planned):
                raise
            except BaseException:  # pylint: disable=broad-exception-caught
                self._send('fault', text=f'{name}: {traceback.format_exc()}')
                os._exit(FAULT_STATUS)
            self._send('reply', **reply)

    # --- Calls.

    def _run(self, body):
        """Runs a function, or a coroutine on the event loop of this rank."""
        if not self._call.is_async:
            return body()

        async def run():
            return await body()
        try:
            return self._runner.run(run())
        except BaseException:
            # A signal handler may have left the task behind.
            self._runner.close()
            self._runner = asyncio.Runner()
            raise

    def _finish(self, started):
        """Waits for what the call has started, in the manner of its mode."""
        mode = self._call.mode
        if mode == 'pending':
            return started.wait()
        if mode == 'await':
            async def wait():
                return await started
            return asyncio.run(wait())
        return started

    def _outcome_of(self, body, expected):
        try:
            self._in_call = True
            value = body()
            self._in_call = False
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self._in_call = False
            if is_own(error):
                raise
            return describe(error), error
        try:
            wanted = expected()
            right = calls.same(value, wanted)
            return {'kind': 'value', 'right': right,
                    'value': '' if right else f'{value!r:.300}, expected {wanted!r:.300}'}, None
        finally:
            del value

    def _do_prepare(self):
        """Joins the group, and makes a first call if there is one."""
        self._run(lambda: self._call.prepare(self._context))

    def _arguments(self, variant, timeout, step):
        self._context.variant, self._context.timeout, self._context.step = variant, timeout, step

    def _make(self, variant, timeout, step):
        """Makes the call, and returns its outcome."""
        self._arguments(variant, timeout, step)
        begin, waited = time.monotonic(), waited_for_processor()
        self._send('calling', thread=threading.get_native_id())
        outcome, error = self._outcome_of(
            lambda: self._finish(self._run(lambda: self._call.run(self._context))),
            lambda: self._call.expect(self._context) if variant == 'right' else calls.ANY)
        self._context.variant = 'right'
        self._send('outcome', began=begin, waited=waited_for_processor() - waited, **outcome)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _do_call(self, variant='right', timeout=None, step=0):
        self._make(variant, timeout, step)

    def _do_call_on_thread(self):
        """Makes the call on a daemon thread."""
        threading.Thread(target=self._make, args=('right', None, 0), daemon=True).start()

    def _do_start(self):
        """Starts the call, and does not wait for it."""
        self._arguments('right', None, 0)
        self._context.started = True
        self._send('calling', thread=threading.get_native_id())
        if self._call.is_async:
            async def start():
                self._started = asyncio.ensure_future(self._call.run(self._context))
                await asyncio.sleep(0)
            self._runner.run(start())
        else:
            self._started = self._call.run(self._context)

    def _do_follow(self, step, rejoin):
        """Makes a later call, after a rejoin if that is so; the outcome says how it ended."""
        self._arguments('right', None, step)

        def follow():
            if rejoin:
                self._run(lambda: self._call.rejoin(self._context))
            return self._run(lambda: self._call.follow(self._context))
        outcome, _ = self._outcome_of(follow, lambda: self._call.follow_expected(self._context))
        self._send('outcome', began=0, **outcome)

    # --- What a rank may do in place of a call.

    def _do_leave(self):
        self._run(lambda: self._call.leave(self._context))

    def _do_raise(self):
        self._send('reply')
        raise Planned('planned')

    def _do_exit(self, status):
        self._status = status
        self._send('reply')
        sys.exit(status)

    def say_closed(self):
        """Tells the runner that the handlers of atexit have run: only Python's own end is left. That
        takes long with PyTorch, so most ranks that have nothing else to show skip it."""
        if os.getpid() != self._pid:
            return
        self._send('closed', waited=waited_for_processor() - self._waited)
        if self._status == 0 and self._call.needs_torch and not self._spec['whole_end']:
            os._exit(0)

    def _do_handle(self, number, raises):
        """Sets a handler of a signal, which tells the runner that it has run."""
        def handler(*_):
            self._send('handled', in_call=self._in_call)
            # After the call it is too late to end it.
            if raises and self._in_call:
                raise Stop('the handler raised')
        signal.signal(number, handler)

    # --- Forked children.

    def _fork(self, stays):
        """Forks. The child makes a call, says how it ended and exits with 6; or it stays until it is
        killed. Returns its pid."""
        on_main = threading.current_thread() is threading.main_thread()
        child = os.fork()
        if child != 0:
            return child
        status = 8
        try:
            if stays:
                signal.pause()
            self._arguments('right', 2, 5)
            self._runner = asyncio.Runner()  # the parent's has a loop that the parent still uses
            begin = time.monotonic()
            outcome, _ = self._outcome_of(
                lambda: self._finish(self._run(lambda: self._call.run(self._context))),
                lambda: calls.ANY)
            gc.collect()
            self._send('child', began=begin, **outcome)
            status = 6
            if on_main and self._context.ends_interpreter:
                sys.exit(status)
        except SystemExit:
            raise
        except BaseException:  # pylint: disable=broad-exception-caught
            self._send('fault', text=f'in the child: {traceback.format_exc()}')
        os._exit(status)

    def _do_fork(self, stays=False):
        child = self._fork(stays)
        if stays:
            return {'child': child}
        return self._await_child(child)

    def _await_child(self, child):
        began = time.monotonic()
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return {'child_status': os.waitstatus_to_exitcode(status),
                        'seconds': time.monotonic() - began}
            if time.monotonic() - began > 8:
                os.kill(child, calls.TRACE_SIGNAL)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {'child_status': 'hung', 'seconds': 8}
            os.sched_yield()
            threading.Event().wait(0.002)

    # --- A second thread, which the runner commands while the main thread is in the call.

    def _do_helper(self):
        threading.Thread(target=self._help, daemon=True).start()

    def _help(self):
        while request := self._helper_socket.recv(1 << 16):
            name = json.loads(request)['do']
            begin = time.monotonic()
            facts = {}
            try:
                if name == 'close':
                    self._call.close(self._context, self._runner)
                elif name == 'fork':
                    facts = self._await_child(self._fork(False))
            except BaseException as error:  # pylint: disable=broad-exception-caught
                facts = {'error': describe(error)}
            self._helper_socket.send(json.dumps({
                'kind_of_message': 'reply', 'at': time.monotonic(), 'began': begin,
                **facts}).encode())
