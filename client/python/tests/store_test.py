"""cohort.Store against a coordinator."""

import threading

import pytest

import cohort
from testing.coordinator import LONG, coordinator


@pytest.fixture(name='store')
def _store():
    with coordinator() as address, cohort.Store(address) as store:
        yield store


def test_keys(store):
    assert store.get('a') is None
    assert store.put('a', 'text').written
    assert store.get('a') == b'text'
    refused = store.put('a', b'new', expected_value=b'other')
    assert not refused.written and refused.current.value == b'text'
    assert store.put('a', b'new', expected_revision=refused.current.revision).written
    assert not store.put('a', b'', expected_revision=0).written
    store.multi_put({'b/1': b'x', 'b/2': b'y'}, expiration=LONG)
    values, following = store.range('b/')
    assert [(value.key, value.value) for value in values] == [('b/1', b'x'), ('b/2', b'y')]
    assert 0 < values[0].expires_in <= LONG
    assert following == ''
    page, following = store.range('b/', page_size=1)
    assert [value.key for value in page] == ['b/1']
    assert [value.key for value in store.range('b/', after=following)[0]] == ['b/2']
    assert sorted(store.get_many(['a', 'b/1', 'c'])) == ['a', 'b/1']
    assert store.delete('b/', prefix=True) == 2
    assert store.delete('b/1') == 0


def test_counters_and_appends(store):
    assert store.add('n', 3) == 3
    assert store.add('n', -5) == -2
    assert store.append('log', b'ab') == 2
    assert store.append('log', 'c') == 3
    assert store.get('log') == b'abc'
    with pytest.raises(cohort.FailedPrecondition):
        store.add('log', 1)


def test_queues(store):
    assert store.queue_len('q') == 0
    assert store.queue_pop('q') is None
    store.queue_push('q', b'1')
    store.queue_push('q', '2')
    assert store.queue_len('q') == 2
    assert store.queue_pop('q') == b'1'
    assert store.queue_pop('q', wait=LONG) == b'2'


def test_get_waits_for_a_key(store):
    values = []
    thread = threading.Thread(target=lambda: values.append(store.get('later', wait=LONG)))
    thread.start()
    store.put('later', b'here')
    thread.join(LONG)
    assert values == [b'here']


def test_errors(store):
    with pytest.raises(cohort.InvalidArgument):
        store.multi_put({})
    with pytest.raises(cohort.InvalidArgument):
        cohort.Store('no address')
    with pytest.raises(TypeError, match='bytes-like'):
        store.put('a', 5)
    with pytest.raises(TypeError):
        store.get(5)
    with pytest.raises(ValueError, match='UTF-8'):
        store.put('\ud800', b'')
    with pytest.raises(ValueError):
        store.get('a', timeout=float('nan'))
    with pytest.raises(ValueError, match='out of range'):
        store.add('n', 1 << 70)
