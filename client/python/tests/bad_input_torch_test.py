"""Wrong tensors of PyTorch: an exception that says which, no leak, and a group that works
afterwards."""

import pytest

from testing.bad_input import Wrong, assert_no_leak, refuse_on_ranks
from testing.fixtures import address_fixture, groups_fixture, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

from cohort import regions  # pylint: disable=wrong-import-position

_address = address_fixture()
_groups = groups_fixture('bad', 2)


def all_reduce(group):
    return group.all_reduce(torch.ones(3))


def reduce(group):
    return regions.reduce_from_tensor_parallel(torch.ones(3), group)


WRONG = {
    'device': Wrong(lambda g: g.all_reduce(torch.ones(3, device='meta')), 'input: ', all_reduce),
    'device of out': Wrong(lambda g: g.all_reduce(torch.ones(3), torch.ones(3, device='meta')),
                           'output: ', all_reduce),
    'sparse': Wrong(lambda g: g.all_reduce(torch.ones(3).to_sparse()), 'input: ', all_reduce),
    'requires grad': Wrong(lambda g: g.all_reduce(t := torch.ones(3, requires_grad=True), t),
                           'output: the tensor requires grad', all_reduce),
    'expanded': Wrong(lambda g: g.all_reduce(torch.ones(3), torch.zeros(1).expand(3)),
                      'overlap in memory', all_reduce),
    'conjugate': Wrong(lambda g: g.all_reduce(torch.ones(3, dtype=torch.cfloat).conj()),
                       'input: the tensor is the conjugate', all_reduce),
    'type': Wrong(lambda g: g.all_reduce(torch.ones(3), torch.ones(3).double()), 'f64', all_reduce),
    'received': Wrong(lambda g: g.receive(torch.ones(3, requires_grad=True), 1),
                      'tensor: the tensor requires grad'),
    'received on a device': Wrong(lambda g: g.receive(torch.ones(3, device='meta'), 1), 'tensor: '),
    'region': Wrong(lambda g: regions.reduce_from_tensor_parallel([1.0], g),
                    'expected a tensor of PyTorch', reduce),
    'device in a region': Wrong(
        lambda g: regions.reduce_from_tensor_parallel(torch.ones(3, device='meta'), g), 'input: ',
        reduce),
    'sizes of a region': Wrong(
        lambda g: regions.gather_from_sequence_parallel(torch.ones(2), g, sizes=[9, 9]), 'rank 0',
        lambda g: regions.gather_from_sequence_parallel(torch.ones(2), g, sizes=[2, 2])),
    'slice': Wrong(lambda g: regions.scatter_to_tensor_parallel(torch.ones(3), g), 'rank 0'),
    'map': Wrong(lambda g: g.send_map({'a': torch.ones(3, device='meta')}, 1), "tensor_dict['a']: ",
                 lambda g: g.receive_map(0)),
}


@pytest.mark.parametrize('name', WRONG)
def test_a_thousand_errors_leave_nothing(groups, name):
    assert_no_leak(lambda count: refuse_on_ranks(groups, WRONG[name], count))
    assert run(groups, lambda group, _: all_reduce(group).tolist()) == [[2, 2, 2]] * 2


def test_the_error_of_a_device_is_one_line(groups):
    def body(group, rank):
        with pytest.raises(ValueError) as caught:
            group.all_reduce(torch.ones(3, device='meta')) if rank == 0 else all_reduce(group)
        return str(caught.value)
    assert all('\n' not in message for message in run(groups, body))
