"""The keys of one job in the coordinator's store, and their end.

    torch/job/NAME                    the id of the job that has the name now
    torch/client/NAME/ID/CLIENT       one key for each process that uses it
    torch/made/NAME/ID                stays until the keys below are deleted
    torch/queue/NAME/ID/QUEUE         the names of its queues
    torch/data/NAME/ID/KEY            its keys, and its queues by the same names

A job is its clients. The first one makes an id, and the others find it. Keys of the first two lines
have leases, which each client renews. A client that closes deletes its own key, and the last one
deletes the job's keys. If all clients are killed, their leases end; the next job that starts, under
any name, deletes the keys. So a name is free again at once, or a lease later.
"""

import atexit
import os
import re
import secrets
import socket
import threading
import weakref
from typing import Dict, List, Optional, Tuple

import cohort
from cohort._lifetime import living, seconds_left
from cohort.store import KeyValue

# The characters of the coordinator's names of queues; "+" begins an escape.
_PLAIN = re.compile(r'[A-Za-z0-9._:/@-]*').fullmatch
_OTHER = re.compile(rb'[^A-Za-z0-9._:/@-]')
_ESCAPE = re.compile(rb'\+([0-9A-F]{2})')
_MOST_QUEUE_CHARACTERS = 128
_PAGE = 1000
_EXIT_SECONDS = 0.5


def escape(key: str) -> str:
    """Returns the key in the characters that the coordinator takes in names of queues."""
    if _PLAIN(key):
        return key
    return _OTHER.sub(lambda match: b'+%02X' % match.group()[0], key.encode()).decode('ascii')


def unescape(name: str) -> str:
    """Returns the key of an escaped name."""
    if '+' not in name:
        return name
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 16)]), name.encode()).decode()


class JobKeys:
    """One process's part in a job. Its methods may be called from any thread.

    Attributes:
      client: the store of the coordinator.
      prefix: begins all keys of the job.
      loss: why the keys are lost; None: they are not.
    """

    def __init__(self, client: cohort.Store, name: str, address: str, lease: float,
                 timeout: float = 30):
        """Joins the job `name`, or makes it. Errors: those of cohort.Store.put."""
        self.client, self.name, self.address = client, name, address
        self.loss: Optional[str] = None
        self._lease = lease
        self._name = escape(name).replace('/', '+2F')
        self._job = f'torch/job/{self._name}'
        self._queues: Dict[str, bool] = {}
        self._users = 1
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._id, made = self._join(timeout)
        self.prefix = self._folder('data', self._name, self._id)
        if made:
            self._delete_ended_jobs()
        _open.add(self)
        self._renewing = threading.Thread(target=self._renew_until_closed, daemon=True,
                                          name='cohort-store-lease')
        self._renewing.start()

    @staticmethod
    def _folder(kind: str, name: str, job: str) -> str:
        return f'torch/{kind}/{name}/{job}/'

    def _join(self, timeout: float) -> Tuple[str, bool]:
        """Returns the id of the job, and whether it was made here."""
        ours = secrets.token_hex(4)
        while True:
            # An absent key counts as empty, and an empty one says that the job has ended.
            made = self._put_job(ours, expected='', timeout=timeout)
            job = ours if made.written else made.current.value.decode()
            self._mine = self._folder('client', self._name, job) + secrets.token_hex(8)
            self._renew_client(timeout)
            if made.written:
                self.client.put(self._made(job), '')
            # Others may have joined and closed the job before they saw the key of this client.
            if self._put_job(job, expected=job).written:
                return job, made.written
            self.client.delete(self._mine)
            if made.written:
                self.client.delete(self._made(job))

    def _made(self, job: str) -> str:
        return f'torch/made/{self._name}/{job}'

    def _put_job(self, job: str, expected: str, timeout: float = 30) -> cohort.PutResult:
        return self.client.put(self._job, job, expiration=self._lease, expected_value=expected,
                               timeout=timeout)

    # --- The lease.

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(self._lease / 4):
            try:
                self._renew()
            except cohort.Error:
                pass  # the coordinator is away; its leases begin again when it is back

    def _renew_client(self, timeout: float) -> None:
        self.client.put(self._mine, f'{socket.gethostname()}:{os.getpid()}',
                        expiration=self._lease, timeout=timeout)

    def _renew(self) -> None:
        self._renew_client(self._lease)
        renewed = self._put_job(self._id, expected=self._id)
        if renewed.written or self._closing.is_set():
            return
        if renewed.current is not None and renewed.current.value:
            self.loss = (f'another job has taken the name, because all clients of this one were '
                         f'silent for {self._lease:g} s')
        else:
            self.look()
            if self.loss is None:
                self._put_job(self._id, expected='')

    def look(self, timeout: float = 30) -> None:
        """Sets `loss` if the coordinator does not have the keys any more."""
        if self.client.get(self._made(self._id), timeout=timeout) is None and \
                not self._closing.is_set():
            self.loss = ('the coordinator has no keys of this job any more: it has restarted '
                         f'without a journal, or all clients were silent for {self._lease:g} s')

    # --- The end.

    def share(self) -> 'JobKeys':
        """Returns this object for one more user, who calls `release` as well."""
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        """Ends this process's part if no other user is left."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
        self.close()

    def close(self, timeout: float = 30) -> None:
        """Ends this process's part. The last client of the job deletes its keys. Errors are
        ignored: leases end by themselves."""
        self._closing.set()
        _open.discard(self)
        try:
            self.client.delete(self._mine, timeout=timeout)
            self._end_job_if_last(timeout)
        except cohort.Error:
            pass
        self.client.close()

    def _end_job_if_last(self, timeout: float) -> None:
        job = self.client.get_many([self._job], timeout=timeout).get(self._job)
        clients = self.client.range(self._folder('client', self._name, self._id), page_size=1,
                                    keys_only=True, timeout=timeout)
        if clients.count > 0 or job is None or job.value != self._id.encode():
            return
        # A client that joins now writes the job's key, so this put does not take place.
        if self.client.put(self._job, '', expiration=1, expected_revision=job.revision,
                           timeout=timeout).written:
            self._delete(self._name, self._id, timeout)

    def _delete(self, name: str, job: str, timeout: float = 30) -> None:
        queues = self._folder('queue', name, job)
        data = self._folder('data', name, job)
        for entry in self._all(queues):
            while self.client.queue_pop(data + entry.key[len(queues):]) is not None:
                pass
        for folder in (queues, data, self._folder('client', name, job)):
            self.client.delete(folder, prefix=True, timeout=timeout)
        self.client.delete(f'torch/made/{name}/{job}', timeout=timeout)

    def _delete_ended_jobs(self) -> None:
        begin = 'torch/made/'
        jobs = [entry.key[len(begin):].rsplit('/', 1) for entry in self._all(begin)]
        for first in range(0, len(jobs), _PAGE):
            part = jobs[first:first + _PAGE]
            living = self.client.get_many(list({f'torch/job/{name}' for name, _ in part}))
            for name, job in part:
                entry = living.get(f'torch/job/{name}')
                if entry is None or entry.value != job.encode():
                    self._delete(name, job)

    # --- Names.

    def _all(self, prefix: str) -> List[KeyValue]:
        """Returns all keys with a prefix, without their values."""
        found: List[KeyValue] = []
        after = ''
        while True:
            page, after = self.client.range(prefix, after=after, page_size=_PAGE, keys_only=True)
            found.extend(page)
            if not after:
                return found

    def keys(self) -> List[str]:
        """Returns all keys of the job."""
        return [unescape(entry.key[len(self.prefix):]) for entry in self._all(self.prefix)]

    def queue_name(self, key: str, *, pushes: bool = False) -> str:
        """Returns the coordinator's name of a queue, and with `pushes` notes that it has values.
        Raises ValueError if the name is too long."""
        name = escape(key)
        full = self.prefix + name
        if len(full) > _MOST_QUEUE_CHARACTERS:
            raise ValueError(
                f'store "{self.name}": the queue {key!r} takes {len(name)} characters, and the '
                f'most for this job is {_MOST_QUEUE_CHARACTERS - len(self.prefix)}')
        if pushes and name not in self._queues:
            self.client.put(self._folder('queue', self._name, self._id) + name, '')
            self._queues[name] = True
        return full


_open: 'weakref.WeakSet[JobKeys]' = weakref.WeakSet()


def _close_all() -> None:
    for keys in living(_open):
        keys.close(min(_EXIT_SECONDS, seconds_left()))


# It runs before cohort closes its stores, because it was registered later.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_open.clear)
