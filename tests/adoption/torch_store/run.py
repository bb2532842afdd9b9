#!/usr/bin/python3
"""Runs PyTorch's own tests of stores and of rendezvous backends.

    tests/adoption/torch_store/run.py test_store.py [rendezvous_backend_test.py]
    tests/adoption/torch_store/run.py --tcpstore test_store.py

The first line tests those of `cohort.torch`, and the second line the coordinator, with PyTorch's
own TCPStore as its client. The files are those of PyTorch's test/distributed, which are not in this
tree. They need the package expecttest. The coordinator must be on the PATH. It prints the counts,
and each test that did not pass. ONLY_TCP_STORE lists the tests of TCPStore alone, with the reason.
"""

import argparse
import contextlib
import datetime
import importlib.util
import itertools
import os
import sys
import unittest

import torch.distributed as dist

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'client', 'python'))

import cohort.torch  # pylint: disable=wrong-import-position
from cohort.torch import elastic  # pylint: disable=wrong-import-position
from testing.coordinator import coordinator, tcp_coordinator  # pylint: disable=wrong-import-position

SERVER = 'a TCPStore listens on a port; the coordinator is another process'
ONLY_TCP_STORE = {
    'test_address_already_in_use': SERVER,
    'test_agent_store': SERVER,
    'test_dns_timeout': 'a host name of no host; the coordinator has another address',
    'test_repr': 'the text of a TCPStore',
    'test_store_timeout_on_missing_clients': 'a TCPStore waits for its clients; here the URL '
                                             'cohort:// does',
    'test_world_size_0_raises': 'an argument of TCPStore',
}
# The same for the coordinator: the server is in another process.
ONLY_TCP_SERVER = {
    'test_address_already_in_use': 'the text of the error of a server in this process',
    'test_agent_store': 'a second server in this process, which becomes a client',
    'test_repr': 'the text of a server in this process',
    'test_store_timeout_on_missing_clients': 'the server waits for the clients of its job; the '
                                             'coordinator does not know their number',
    'test_take_over_listen_socket': 'a listening socket of this process',
}


def stand_in(address):
    """Returns a class with the constructor of TCPStore: a port is a job."""
    ports = itertools.count(1)

    class TCPStore(cohort.torch.Store):
        """A store of cohort, for the arguments of TCPStore."""

        def __init__(self, host_name, port=0, world_size=None, is_master=False, timeout=None,
                     use_libuv=True, **_):
            port = port or next(ports)
            options = {} if timeout is None else {'timeout': timeout}
            super().__init__(f'port{port}', address, **options)
            self.host, self.port, self.libuvBackend = host_name, port, use_libuv  # pylint: disable=invalid-name
            self.set('init/', '')  # TCPStore counts a key of its own

        def __repr__(self):
            return f'{type(self).__name__}({self.port})'

    return TCPStore


def client_of_coordinators(stack):
    """Returns a class with the constructor of TCPStore. The first process of a job starts a
    coordinator in place of PyTorch's server."""
    ports = set()

    class TCPStore(dist.TCPStore):
        """PyTorch's own client."""

        def __init__(self, host_name, port=0, world_size=None, is_master=False, timeout=None,
                     wait_for_workers=True, multi_tenant=False, use_libuv=True, **_):
            if is_master and not (multi_tenant and port in ports):
                address, = stack.enter_context(tcp_coordinator(f'127.0.0.1:{port}'))
                port = int(address.rsplit(':', 1)[1])
                ports.add(port)
            super().__init__(host_name, port, world_size, False,
                             timeout or datetime.timedelta(minutes=5), wait_for_workers,
                             use_libuv=use_libuv)

    return TCPStore


def load(path):
    """Imports the file."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def store_cases(path, tcp_store, create_store):
    """The cases of test_store.py, with another class for TCPStore, and the tests of every store."""
    from torch.testing._internal import common_distributed  # pylint: disable=import-outside-toplevel
    common_distributed.create_tcp_store = (
        lambda addr='localhost', world_size=1, is_master=True, timeout=None,
        wait_for_workers=True, jit_class=False, use_libuv=True:
        tcp_store(addr, 0, world_size, is_master, timeout, use_libuv=use_libuv,
                  wait_for_workers=wait_for_workers))
    dist.TCPStore = tcp_store
    sys.modules['torch.distributed.rendezvous'].TCPStore = tcp_store
    module = load(path)

    class CohortStoreTest(module.TestCase, module.StoreTestBase):
        """The tests of every store."""

        def _create_store(self):
            return create_store()

    return [CohortStoreTest] + [getattr(module, name) for name in (
        'TCPStoreTest', 'PrefixTCPStoreTest', 'RendezvousTCPTest', 'TestMultiThreadedWait',
        'TimeoutTest')]


def backend_cases(path, address):
    """The cases of rendezvous_backend_test.py, on cohort's backend."""
    module = load(path)

    class CohortBackendTest(unittest.TestCase, module.RendezvousBackendTestMixin):
        """Each test has an empty key."""

        def setUp(self):
            self._client = cohort.Store(address)
            self._client.delete('state')
            self._backend = elastic.Backend(self._client, 'state')

        def _corrupt_state(self):
            self._client.put('state', 'no state')

    return [CohortBackendTest]


def report(cases, reasons):
    """Runs the cases, prints the result, and returns whether all is as expected."""
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case)
                               for case in cases)
    total = suite.countTestCases()
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite)
    failed = {test.id().split('.', 1)[-1]: text.strip().splitlines()[-1]
              for test, text in result.failures + result.errors}
    skipped = {test.id().split('.', 1)[-1]: reason for test, reason in result.skipped}
    print(f'{total - len(failed) - len(skipped)} passed, {len(failed)} failed, '
          f'{len(skipped)} skipped')
    unexpected = False
    for name, text in sorted(failed.items()):
        reason = reasons.get(name.rsplit('.', 1)[-1])
        unexpected |= reason is None
        print(f'  failed {name}: {reason or text}')
    for name, reason in sorted(skipped.items()):
        print(f'  skipped {name}: {reason}')
    return not unexpected


def main():
    """Runs the files of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--tcpstore', action='store_true')
    parser.add_argument('stores', help='test_store.py')
    parser.add_argument('backends', nargs='?', help='rendezvous_backend_test.py')
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.tcpstore:
            store = client_of_coordinators(stack)
            expected = report(store_cases(options.stores, store,
                                          lambda: store('localhost', is_master=True)),
                              ONLY_TCP_SERVER)
        else:
            address = stack.enter_context(coordinator())
            jobs = itertools.count()
            expected = report(store_cases(options.stores, stand_in(address), lambda: (
                cohort.torch.Store(f'base{next(jobs)}', address))), ONLY_TCP_STORE)
            if options.backends:
                expected &= report(backend_cases(options.backends, address), ONLY_TCP_STORE)
    sys.stdout.flush()
    os._exit(0 if expected else 1)  # threads of PyTorch's tests may still run


if __name__ == '__main__':
    main()
