"""Queues of values from one process to many."""

from typing import Any, List, NamedTuple, Optional

from cohort import _core
from cohort import _lifetime
from cohort._objects import pack, pack_or_refuse, unpack_of_queue
from cohort.group import Group
from cohort.process_group import BytesLike
from cohort.timeouts import Timeout


def queue_options(writer_rank: int = 0, *, external_writer: bytes = b'', block_bytes: int = 4 << 20,
                  blocks: int = 6, max_value_bytes: int = 1 << 30, join_timeout: Timeout = 60,
                  timeout: Timeout = 60, listen: str = '', advertise: str = '',
                  linger: Timeout = 5) -> dict:
    """The options of `MessageQueue` as the extension module reads them."""
    return {'writer_rank': writer_rank, 'external_writer': external_writer,
            'block_bytes': block_bytes, 'blocks': blocks, 'max_value_bytes': max_value_bytes,
            'join_timeout': join_timeout, 'timeout': timeout, 'listen': listen,
            'advertise': advertise, 'linger': linger}


class QueueReader(NamedTuple):
    """A reader of a queue, as its writer sees it."""
    name: str
    path: str
    bytes_behind: int
    values_behind: int  # for a reader on another host an upper bound


class QueueDeparture(NamedTuple):
    """A reader that left a queue."""
    name: str
    reason: str


class QueueView:
    """The next value of a queue, in place: what MessageQueue.dequeue_view returns."""

    def __init__(self, queue, timeout: Timeout):
        self._queue = queue
        self._timeout = timeout
        self._value = None
        self._memory = None

    def __enter__(self) -> memoryview:
        self._value = self._queue.acquire_view(self._timeout)
        self._memory = memoryview(self._value)
        return self._memory

    def __exit__(self, kind, error, trace) -> None:
        value, memory = self._value, self._memory
        self._value = self._memory = None
        try:
            memory.release()
            value.release()
        except BufferError:
            if kind is not None:
                return  # the traceback of the error may hold an array on the value
            raise BufferError(
                'a slice or an array of the value is still in use after the with statement; drop it '
                'within the statement, or copy it') from None


class MessageQueue:
    """A queue that one process writes and many read: every reader gets every value, in order.

        with cohort.MessageQueue(group) as queue:          # on all ranks
            if queue.is_writer:
                queue.enqueue(b"step 1")
            else:
                value = queue.dequeue()

    Readers on the writer's host read from memory that they share with it; others read a stream of
    the writer's process. The writer waits for the slowest reader, and drops no value. A value is
    bytes, or with the methods `..._object` what `cohort.Group.send_object` takes.

    Each process has one end, which one thread at a time uses to enqueue or dequeue; any thread calls
    the other methods. Timeouts are in seconds, or datetime.timedelta; None is the queue's, and
    float("inf") no limit. Calls release the GIL while they wait. A failed call leaves the queue as
    it was.

    Errors of all calls: DeadlineExceeded (a writer's names the readers that lag, and by how much),
    Cancelled (one end shut the queue down; the text has its reason), Aborted (on a reader: the writer
    is gone, and its values are read, or the writer let this reader go; on the writer: all readers are
    gone), FailedPrecondition (the other end's method, another thread is in a call, a view is open, or
    the queue is closed).

    Attributes:
      name: the queue's name, which its errors begin with.
      is_writer: whether this end writes.
      handle: on the writer, bytes with which any process can read the queue, so they are a secret;
        on a reader empty.
      path: on a reader "shared memory", "stream HOST:PORT" or, with TLS, "tls stream HOST:PORT"; on
        the writer "self".
    """

    def __init__(self, group: Group, writer_rank: int = 0, *, external_writer: bytes = b'',
                 block_bytes: int = 4 << 20, blocks: int = 6, max_value_bytes: int = 1 << 30,
                 join_timeout: Timeout = 60, timeout: Timeout = 60, listen: str = '',
                 advertise: str = '', linger: Timeout = 5):
        """All ranks of the group call it. It blocks until every reader is connected. Later the queue
        does not use the group.

        Args:
          writer_rank: the rank that writes; the others read.
          external_writer: the handle of a queue whose writer is outside of the group. All ranks then
            read it.
          block_bytes, blocks: the ring has block_bytes * blocks bytes, which limits how far readers
            lag. A larger value than half of it travels in parts.
          max_value_bytes: the most bytes of one value.
          join_timeout: limits this call.
          timeout: limits each later call.
          listen: on the writer, "host:port" at which readers of other hosts reach it. Empty: any
            port, if there are such readers.
          advertise: on the writer, the host that it tells those readers. Empty: this host.
          linger: how long `close` of the writer waits until readers of other hosts have read all
            values.

        Raises:
          InvalidArgument: the options make no sense, or differ. On all ranks, as the errors below.
          ResourceExhausted: no memory for the ring.
          Unavailable: a reader cannot reach the writer.
          DeadlineExceeded: ranks did not come.
        """
        self._open(group._core.create_queue(queue_options(  # pylint: disable=protected-access
            writer_rank=writer_rank, external_writer=external_writer, block_bytes=block_bytes,
            blocks=blocks, max_value_bytes=max_value_bytes, join_timeout=join_timeout,
            timeout=timeout, listen=listen, advertise=advertise, linger=linger)))

    @classmethod
    def create_external(cls, name: str, *, block_bytes: int = 4 << 20, blocks: int = 6,
                        max_value_bytes: int = 1 << 30, timeout: Timeout = 60, listen: str = '',
                        advertise: str = '', linger: Timeout = 5) -> 'MessageQueue':
        """Makes the writer of a queue outside of any group. Readers come by `open` with its handle,
        or as a group by `external_writer`. Before the first has come, `enqueue` raises
        FailedPrecondition: call `await_readers`.

        The writer serves readers of other hosts only if `listen` is set, such as "0.0.0.0:0". The
        other arguments are as above. Never blocks.
        """
        return cls._of(_core.create_external_queue({
            'name': name, 'block_bytes': block_bytes, 'blocks': blocks,
            'max_value_bytes': max_value_bytes, 'timeout': timeout, 'listen': listen,
            'advertise': advertise, 'linger': linger}))

    @classmethod
    def open(cls, handle: bytes, reader: str, *, join_timeout: Timeout = 60,
             timeout: Timeout = 60) -> 'MessageQueue':
        """Adds a reader named `reader`, in any process. It reads the values that are written after
        `open` returns. Blocks until the writer has let it in, after the value that it writes.

        Raises:
          InvalidArgument: `handle` is not one.
          FailedPrecondition, PermissionDenied: the writer refuses; says why.
          Unavailable: the writer cannot be reached.
          DeadlineExceeded: it did not answer.
        """
        return cls._of(_core.open_queue({'handle': handle, 'reader': reader,
                                         'join_timeout': join_timeout, 'timeout': timeout}))

    @classmethod
    def _of(cls, core) -> 'MessageQueue':
        queue = cls.__new__(cls)
        queue._open(core)
        return queue

    def _open(self, core) -> None:
        self._core = core
        self.name, self.is_writer, self.handle, self.path = core.facts()
        self._closed = False
        _lifetime.close_at_exit(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called. The attributes stay readable."""
        return self._closed

    def __repr__(self) -> str:
        end = 'writer' if self.is_writer else f'reader by {self.path}'
        return f'<cohort.MessageQueue: {self.name}, {end}, {"closed" if self._closed else "open"}>'

    # --- Values.

    def enqueue(self, value: BytesLike, timeout: Timeout = None) -> None:
        """Appends the value. Returns once it is in the ring, however far the readers are. After an
        error no reader gets it. Source: MessageQueue.enqueue of vLLM.

        Raises:
          ResourceExhausted: the value is larger than max_value_bytes.
        """
        self._core.enqueue(value, timeout)

    def dequeue(self, timeout: Timeout = None) -> bytes:
        """Returns the next value. Source: MessageQueue.dequeue of vLLM."""
        return self._core.dequeue(timeout)

    def dequeue_view(self, timeout: Timeout = None) -> QueueView:
        """Shows the next value without a copy, as a read-only memoryview:

            with queue.dequeue_view() as view:
                array = numpy.frombuffer(view, "float32").copy()

        The writer keeps the value's place until the statement ends, and this end reads nothing else
        meanwhile. Then the view is released. The statement raises BufferError if a slice of the view
        or an array on it is still in use; the place is then given back when that is dropped. A value
        that travelled in parts is copied once.
        """
        return QueueView(self._core, timeout)

    def broadcast(self, value: Optional[BytesLike] = None,
                  timeout: Timeout = None) -> bytes:
        """The writer enqueues `value` and returns it; a reader dequeues, and ignores its own."""
        if not self.is_writer:
            return self.dequeue(timeout)
        self.enqueue(value, timeout)
        return bytes(value)

    # --- Objects: values of Python as Group.send_object takes them.

    def enqueue_object(self, obj: Any, *, pickle: bool = False, timeout: Timeout = None) -> None:
        """As `enqueue`, for an object; a reader calls `dequeue_object`. With pickle=True on both
        sides any object travels. Raises TypeError if it cannot be sent."""
        self._core.enqueue(pack(obj, pickle), timeout)

    def dequeue_object(self, *, pickle: bool = False, timeout: Timeout = None) -> Any:
        """Returns the next value, as the object that it was. Bytes remain bytes.

        Raises:
          InvalidArgument: the value is a pickle and `pickle` is false, or is damaged. It is read.
        """
        data = self._core.dequeue(timeout)
        return unpack_of_queue(self, 'dequeue_object', data, pickle)

    def broadcast_object(self, obj: Any = None, *, pickle: bool = False,
                         timeout: Timeout = None) -> Any:
        """The writer enqueues the object; every end returns it, and readers ignore their own. An
        object that cannot be sent is InvalidArgument on all of them. Source:
        MessageQueue.broadcast_object of vLLM."""
        if self.is_writer:
            data = pack_or_refuse(obj, pickle)
            self._core.enqueue(data, timeout)
            data = bytes(data)
        else:
            data = self._core.dequeue(timeout)
        return unpack_of_queue(self, 'broadcast_object', data, pickle)

    # --- Readers, as the writer sees them.

    def readers(self) -> List[QueueReader]:
        """Returns the current readers; on a reader nothing."""
        return [QueueReader(*reader) for reader in self._core.readers()]

    def departures(self) -> List[QueueDeparture]:
        """Returns the last thousand readers that left while the queue went on, and the reasons."""
        return [QueueDeparture(*departure) for departure in self._core.departures()]

    def await_readers(self, count: int, timeout: Timeout = None) -> None:
        """Blocks on the writer until `count` readers read."""
        self._core.await_readers(count, timeout)

    # --- The end.

    def shutdown(self, reason: str) -> None:
        """On the writer: ends the queue. Readers read the values that are there, and then get
        Cancelled with the reason. On a reader: it reads no more, and the writer no longer waits for
        it. Ends calls that wait."""
        self._core.shutdown(reason)

    def close(self) -> None:
        """Shuts this end down and frees it. It may be called twice."""
        self._closed = True
        self._core.release()

    def __enter__(self) -> 'MessageQueue':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
