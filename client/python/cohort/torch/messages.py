"""Messages between the ranks of a process group: send and recv of torch.distributed.

One file, though long: both ends of a message share the lock and the lists by which they match.
"""

import collections
import contextlib
import datetime
import queue
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set

import torch

import cohort
from cohort.torch.call_arguments import refusal_text
from cohort.torch.channel import Channel, Header, text_bytes, text_of
from cohort.torch.flat import FlatOutput, flat_input
from cohort.torch.health import Health
from cohort.torch.work import PendingWork

_LEAST_CLOSE_SECONDS = 0.1
# For a sender to hear that its message has arrived, whatever the patience of a close is.
_LEAST_RECEIPT_SECONDS = 1


class _Receive(NamedTuple):
    """A recv for which no message has come yet.

    Attributes:
      source: None: any rank.
      tensor: None in a refused recv.
      refusal: the error of this rank, whose argument is wrong. The recv still takes its message.
      end: a refused recv takes no message after this time.
    """
    source: Optional[int]
    tag: int
    tensor: Optional[torch.Tensor]
    work: PendingWork
    refusal: str = ''
    end: float = float('inf')

    def takes(self, source: int, tag: int) -> bool:
        """Whether the recv may serve a message."""
        return (self.source in (source, None) and self.tag == tag
                and time.monotonic() < self.end)


class _Message(NamedTuple):
    """A message of another rank that came before its recv. If `is_refusal`, the array is the text
    of the sender's error."""
    tag: int
    array: torch.Tensor
    is_refusal: bool


class _OwnSend(NamedTuple):
    """A send to this rank itself. With a refusal it has no tensor."""
    tag: int
    tensor: Optional[torch.Tensor]
    work: PendingWork
    refusal: str


class Context(NamedTuple):
    """The facts and methods of a process group that its messages use."""
    rank: int
    size: int
    name: str  # of the group of Cohort
    join: Callable[..., cohort.Group]  # another group, with the options of this one
    store: Callable[[], cohort.Store]  # a connection to the coordinator's store
    health: Health
    seconds: Callable[[], float]  # the timeout
    describe: Callable[[str], str]


class Messages:
    """Matches messages with receives, by source, tag and order.

    There is one Channel from each rank to each other that it sends to; it is made with the first
    message. A thread of the sender writes to a channel, in the order of the calls, and a thread of
    the receiver reads it while there is a receive that it may serve. So no message waits for one of
    another pair of ranks, and a send lasts until the receiver has the message, as with gloo. A
    message whose tag the receiver does not wait for is kept, so that later ones with other tags
    arrive.

    A wrong argument of one rank fails the message on both, in its turn: the refusal of a sender
    travels as a message, and that of a receiver with its receipt. So later messages arrive right. A
    receiver whose tensor has another size gets an error alone: the send is right.

    How a channel begins: the receiver, with its first receive, opens its mailbox, a key of the
    coordinator's store. The sender waits for that key, announces itself with a key of its own, for
    which the receiver watches, and both join the channel's group.
    """

    def __init__(self, context: Context):
        self._context = context
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._posted: List[_Receive] = []
        # Messages that came before their receives, by source.
        self._kept: Dict[int, Deque[_Message]] = collections.defaultdict(collections.deque)
        # Sends to this rank itself, which are not complete.
        self._own: Deque[_OwnSend] = collections.deque()
        self._works: 'weakref.WeakSet[PendingWork]' = weakref.WeakSet()
        self._in_flight: Dict[PendingWork, Channel] = {}  # sends
        self._errors: Dict[int, BaseException] = {}  # of the channels that have failed, by source
        self._sources: Set[int] = set()  # those that have channels to this rank
        self._outgoing: Dict[int, 'queue.SimpleQueue[Any]'] = {}
        self._channels: List[Channel] = []
        self._store: Optional[cohort.Store] = None
        self._mailbox_is_open = False
        self._closed: Optional[str] = None
        self._threads: List[threading.Thread] = []

    # --- The calls.

    def send(self, tensor: torch.Tensor, destination: int, tag: int) -> PendingWork:
        """Starts to send to a rank, which may be this one. A wrong tensor fails the message on both
        ranks; the work has the error."""
        work = self._work(f'send to rank {destination} with tag {tag}', [tensor],
                          lambda: self._check(destination))
        try:
            array = _bytes_of(flat_input(tensor))
        except Exception as error:  # pylint: disable=broad-exception-caught
            work.finish(self._own_error(f'send to rank {destination} with tag {tag}', error))
            self.refuse_send(destination, tag, refusal_text('send', error))
            return work
        with self._lock:
            self._raise_if_closed('send')
            if destination == self._context.rank:
                self._own.append(_OwnSend(tag, tensor, work, ''))
                self._match_own()
                return work
            outgoing = self._outgoing_to(destination)
        outgoing.put((array, tag, work, False))
        return work

    def refuse_send(self, destination: int, tag: int, text: str) -> None:
        """The send of this rank has a wrong argument: its receiver gets the error, in its turn.
        Does not wait for it."""
        work = self._work(f'the refusal of a send to rank {destination} with tag {tag}', [],
                          lambda: self._check(destination))
        with self._lock:
            self._raise_if_closed('send')
            if destination == self._context.rank:
                self._own.append(_OwnSend(tag, None, work, text))
                self._match_own()
                return
            outgoing = self._outgoing_to(destination)
        outgoing.put((text_bytes(text), tag, work, True))

    def receive(self, tensor: torch.Tensor, source: Optional[int], tag: int) -> PendingWork:
        """Starts to receive from a rank, or from any. `source_rank` of the result is the source. A
        wrong tensor fails the message on both ranks; the work has the error."""
        work = self._work(_receive_from(source, tag), [tensor], lambda: self._check_source(source))
        try:
            _bytes_of(FlatOutput(tensor).flat)
        except Exception as error:  # pylint: disable=broad-exception-caught
            work.finish(self._own_error(_receive_from(source, tag), error))
            self.refuse_receive(source, tag, refusal_text('recv', error))
            return work
        self._post(_Receive(source, tag, tensor, work))
        return work

    def refuse_receive(self, source: Optional[int], tag: int, text: str) -> None:
        """The recv of this rank has a wrong argument: it takes its message, whose sender gets the
        error. Does not wait for it."""
        work = self._work(_receive_from(source, tag), [], lambda: self._check_source(source))
        work.finish()
        self._post(_Receive(source, tag, None, work, text,
                            time.monotonic() + self._context.seconds()))

    def _post(self, receive: _Receive) -> None:
        now = time.monotonic()
        with self._lock:
            self._raise_if_closed('recv')
            self._posted = [each for each in self._posted if now < each.end]
            if self._take_kept(receive):
                return
            if not self._may_come(receive.source):
                receive.work.finish(self._errors[min(self._errors) if receive.source is None
                                                 else receive.source])
                return
            self._posted.append(receive)
            if receive.source != self._context.rank and not self._mailbox_is_open:
                self._mailbox_is_open = True
                self._start(self._accept)
            self._match_own()
            self._changed.notify_all()

    def await_calls(self, end: float) -> bool:
        """Waits for the calls in flight until a time. Returns whether they are over."""
        with self._lock:
            works = [work for work in self._works if not work.is_over]
        for work in works:
            left = end - time.monotonic()
            if left > 0:
                with contextlib.suppress(Exception):  # of the call, which its own waiter gets
                    work.wait(datetime.timedelta(seconds=left))
        return all(work.is_over for work in works)

    def close(self, reason: str, patience: float, asks: bool = True) -> bool:
        """Ends all calls with Cancelled, and the channels. Waits at most `patience` seconds, or
        a second for senders that have not yet heard that their messages have arrived. Returns
        whether the coordinator answers, as far as it was asked."""
        with self._lock:
            if self._closed is not None:
                return True
            self._closed = reason
            works = [receive.work for receive in self._posted] + [own.work for own in self._own]
            self._posted.clear()
            self._own.clear()
            channels, self._channels = self._channels, []
            store, self._store = self._store, None
            outgoing = list(self._outgoing.values())
            self._changed.notify_all()
        for work in works:
            work.finish(cohort.Cancelled(f'{self._context.describe("a message")}: {reason}'))
        for each in outgoing:
            each.put(None)
        now = time.monotonic()  # the ends are those of all of them
        end = now + patience
        end_of_receipts = now + max(patience, _LEAST_RECEIPT_SECONDS)
        for channel in channels:
            channel.close(reason, end_of_receipts - time.monotonic())
        if store is None:
            return True
        try:
            if asks:  # senders that come later hear at once that this rank has left
                store.delete(self._key('open', self._context.rank),
                             timeout=max(_LEAST_CLOSE_SECONDS, end - time.monotonic()))
            return True
        except cohort.Error as error:
            return not isinstance(error, (cohort.Unavailable, cohort.DeadlineExceeded))
        finally:
            store.close()

    def join(self, end: float) -> None:
        """Waits for the threads until a time, after `close`."""
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))

    # --- Facts.

    def _work(self, what: str, tensors: List[torch.Tensor],
              check: Callable[[], None]) -> PendingWork:
        work = PendingWork(tensors, lambda: self._context.describe(what), self._context.seconds(),
                           self._forget, check)
        with self._lock:
            self._works.add(work)
        return work

    def _outgoing_to(self, destination: int) -> 'queue.SimpleQueue[Any]':
        outgoing = self._outgoing.get(destination)
        if outgoing is None:
            outgoing = self._outgoing[destination] = queue.SimpleQueue()
            self._start(self._write, destination, outgoing)
        return outgoing

    def _check(self, peer: Optional[int] = None) -> None:
        """Raises the error of the group if it is broken, or if `peer` has left."""
        error = self._context.health.error_of(peer)
        if error is not None:
            raise error

    def _check_source(self, source: Optional[int]) -> None:
        """As _check. A channel from the source tells itself that it has ended, after its last
        message."""
        with self._lock:
            has_channel = source in self._sources
        self._check(None if has_channel else source)

    def _may_come(self, source: Optional[int]) -> bool:
        """Whether a message may come from a rank, or from any. With the lock."""
        if source is not None:
            return source not in self._errors
        return len(self._errors) < self._context.size - 1 or self._context.size == 1

    def _forget(self, work: PendingWork) -> None:
        """A receive or a send has timed out. A message on its way must not arrive later, in the
        place of another one, so its channel ends."""
        with self._lock:
            self._posted = [receive for receive in self._posted if receive.work is not work]
            channel = self._in_flight.pop(work, None)
        if channel is not None:
            channel.close(f'rank {self._context.rank}: {work.exception()}', 0)

    def _raise_if_closed(self, call: str) -> None:
        if self._closed is not None:
            raise cohort.FailedPrecondition(f'{self._context.describe(call)}: {self._closed}')

    def _start(self, body: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=body, args=arguments, daemon=True,
                                  name=f'cohort messages {self._context.name}')
        self._threads.append(thread)
        thread.start()

    def _connect(self) -> cohort.Store:
        with self._lock:
            self._raise_if_closed('message')
            if self._store is None:
                self._store = self._context.store()
            return self._store

    def _key(self, *parts: Any) -> str:
        return '/'.join(['torch-messages', self._context.name, *map(str, parts)])

    def _open_channel(self, source: int, destination: int) -> Channel:
        context = self._context
        channel = Channel(f'{context.name}-{source}-to-{destination}', source == context.rank,
                          context.join, min(context.seconds(), 60))
        with self._lock:
            if self._closed is None:
                self._channels.append(channel)
                return channel
        channel.close(self._closed)
        raise cohort.Cancelled(self._closed)

    # --- The sender's thread, one for each destination.

    def _write(self, destination: int, outgoing: 'queue.SimpleQueue[Any]') -> None:
        channel, error = None, None
        while True:
            item = outgoing.get()
            if item is None:
                return
            array, tag, work, is_refusal = item
            refused = None
            if error is None and not work.is_completed():
                try:
                    channel = channel or self._reach(destination, work)
                    text = '' if channel is None else self._send(
                        channel, array, tag, work, is_refusal)
                    if text:
                        refused = self._refused(f'send to rank {destination} with tag {tag}',
                                                destination, text)
                except Exception as caught:  # pylint: disable=broad-exception-caught
                    error = self._explain(caught, f'send to rank {destination}', destination)
            work.finish(error or refused)
            del item, array, work

    def _send(self, channel: Channel, array: torch.Tensor, tag: int, work: PendingWork,
              is_refusal: bool) -> str:
        with self._lock:
            self._in_flight[work] = channel
        try:
            return '' if work.is_over else channel.send(array, tag, is_refusal)
        finally:
            with self._lock:
                self._in_flight.pop(work, None)

    def _reach(self, destination: int, work: PendingWork) -> Optional[Channel]:
        """Waits until the destination's mailbox is open, and joins the channel. None: the send has
        timed out."""
        store = self._connect()
        while store.get(self._key('open', destination), wait=0.5) is None:
            self._check(destination)
            with self._lock:
                self._raise_if_closed('send')
            if work.is_completed():
                return None
        store.put(self._key('to', destination, self._context.rank), b'')
        return self._open_channel(self._context.rank, destination)

    # --- The receiver's threads: one for the mailbox, and one for each source.

    def _accept(self) -> None:
        try:
            store = self._connect()
            prefix = self._key('to', self._context.rank, '')
            watch = store.watch(prefix)
            store.put(self._key('open', self._context.rank), b'')
            for change in watch:
                source = int(change.key[len(prefix):])
                with self._lock:
                    is_new = source not in self._sources
                    self._sources.add(source)
                if is_new:
                    self._start(self._read, source)
        except Exception as caught:  # pylint: disable=broad-exception-caught
            if self._closed is None:
                for source in set(range(self._context.size)) - self._sources - {self._context.rank}:
                    self._fail(source, caught)

    def _read(self, source: int) -> None:
        try:
            channel = self._open_channel(source, self._context.rank)
            while True:
                with self._lock:
                    self._changed.wait_for(
                        lambda: self._closed is not None or any(
                            receive.source in (source, None) for receive in self._posted))
                    if self._closed is not None:
                        return
                self._take_message(channel, source, channel.receive_header())
        except Exception as caught:  # pylint: disable=broad-exception-caught
            if self._closed is None:
                self._fail(source, caught)

    def _take_message(self, channel: Channel, source: int, header: Header) -> None:
        with self._lock:
            receive = next((each for each in self._posted if each.takes(source, header.tag)), None)
            if receive is not None:
                self._posted.remove(receive)
        if receive is None or receive.refusal or header.is_refusal:
            array = torch.empty(header.size, dtype=torch.uint8)
            message = _Message(header.tag, array, header.is_refusal)
            if receive is None:
                channel.receive(array, lambda: self._keep(source, message))
            elif receive.refusal:
                channel.receive(array, lambda: None, receive.refusal)
            else:
                channel.receive(array, lambda: self._give(message, receive, source))
            return
        try:
            written = FlatOutput(receive.tensor)
            array = written.flat.view(torch.uint8)
            if array.numel() != header.size:
                channel.receive(torch.empty(header.size, dtype=torch.uint8), lambda: None)
                raise self._wrong_size(receive, source, header.size)

            def arrived() -> None:
                written.finish()
                receive.work.finish(source=source)

            channel.receive(array, arrived)
        except cohort.InvalidArgument as error:
            receive.work.finish(error)
        except Exception as error:
            receive.work.finish(self._explain(error, f'recv from rank {source}', source))
            raise

    def _keep(self, source: int, message: _Message) -> None:
        with self._lock:
            self._kept[source].append(message)
            for each in self._posted[:]:  # one that came meanwhile
                if each.takes(source, message.tag) and self._take_kept(each):
                    self._posted.remove(each)
                    break

    def _wrong_size(self, receive: _Receive, source: int, count: int) -> cohort.InvalidArgument:
        expected = receive.tensor.numel() * receive.tensor.element_size()
        return cohort.InvalidArgument(
            f'{self._context.describe(f"recv from rank {source} with tag {receive.tag}")}: rank '
            f'{source} sent {count} bytes, expected the {expected} bytes of the tensor')

    # --- Matching, with the lock.

    def _take_kept(self, receive: _Receive) -> bool:
        sources = list(self._kept) if receive.source is None else [receive.source]
        for source in sources:
            kept = self._kept.get(source, ())
            for index, message in enumerate(kept):
                if message.tag == receive.tag:
                    del kept[index]
                    self._give(message, receive, source)
                    return True
        return False

    def _give(self, message: _Message, receive: _Receive, source: int) -> None:
        """Ends a recv with a message, or with the refusal of its sender. A refused recv drops
        it."""
        if receive.refusal:
            return
        if message.is_refusal:
            receive.work.finish(self._refused(_receive_from(source, receive.tag), source,
                                              text_of(message.array)))
            return
        written = FlatOutput(receive.tensor)
        to = written.flat.view(torch.uint8)
        if to.numel() != message.array.numel():
            receive.work.finish(self._wrong_size(receive, source, message.array.numel()))
            return
        to.copy_(message.array)
        written.finish()
        receive.work.finish(source=source)

    def _match_own(self) -> None:
        """Serves receives from this rank itself."""
        rank = self._context.rank
        for receive in self._posted[:]:
            for index, own in enumerate(self._own):
                if receive.takes(rank, own.tag):
                    del self._own[index]
                    self._posted.remove(receive)
                    array = text_bytes(own.refusal) if own.tensor is None else \
                        flat_input(own.tensor).view(torch.uint8)
                    self._give(_Message(own.tag, array, own.tensor is None), receive, rank)
                    own.work.finish(self._refused(f'send to rank {rank} with tag {own.tag}', rank,
                                                  receive.refusal) if receive.refusal else None)
                    break

    # --- Errors.

    def _own_error(self, what: str, error: Exception) -> cohort.InvalidArgument:
        """The error of a wrong argument on its own rank."""
        return cohort.InvalidArgument(f'{self._context.describe(what)}: {error}',
                                      culprit=self._context.rank)

    def _refused(self, what: str, rank: int, text: str) -> cohort.InvalidArgument:
        """The error of a wrong argument of the other rank."""
        return cohort.InvalidArgument(f'{self._context.describe(what)}: rank {rank} has a wrong '
                                      f'argument: {text}', culprit=rank)

    def _explain(self, error: Exception, what: str, peer: int) -> BaseException:
        """The error of the whole group, if it is broken or the peer has left: it names the rank. The
        error of a channel knows only the two ranks of that."""
        if self._closed is not None:
            return cohort.Cancelled(f'{self._context.describe(what)}: {self._closed}')
        cause = None
        if isinstance(error, cohort.Aborted):
            cause = self._context.health.error_of(peer, patience=0.5)
        return type(error)(f'{self._context.describe(what)}: {cause or error}')

    def _fail(self, source: int, error: Exception) -> None:
        cause = self._explain(error, f'recv from rank {source}', source)
        with self._lock:
            self._errors[source] = cause
            failed = [receive for receive in self._posted if not self._may_come(receive.source)]
            self._posted = [receive for receive in self._posted if receive not in failed]
        for receive in failed:
            receive.work.finish(cause)


def _receive_from(source: Optional[int], tag: int) -> str:
    whence = 'any rank' if source is None else f'rank {source}'
    return f'recv from {whence} with tag {tag}'


def _bytes_of(flat: torch.Tensor) -> torch.Tensor:
    """The bytes of flat elements. Raises ValueError if they are not in host memory."""
    if flat.device.type != 'cpu':
        raise ValueError(f'expected a tensor in host memory, got one on the device {flat.device}')
    return flat.view(torch.uint8)
