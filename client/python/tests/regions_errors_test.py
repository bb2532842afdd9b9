"""Wrong arguments of regions: the ranks get the error, and the group works afterwards."""

import pytest

import cohort
from testing.fixtures import address_fixture, groups_fixture, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

from cohort import regions  # pylint: disable=wrong-import-position

RANKS = 2

_address = address_fixture()
_groups = groups_fixture('layer', RANKS)


# A call of rank 0 or of both, the right call of rank 1, and a part of the text.
WRONG = {
    'remainder of the last dimension': (
        lambda g: regions.reduce_scatter_last_dim_to_tensor_parallel(torch.ones(4, 3), g),
        lambda g: regions.reduce_scatter_last_dim_to_tensor_parallel(torch.ones(4, 4), g),
        'the extent of dimension 1 of the input, 3, is not a multiple of the 2 ranks'),
    'remainder of rows': (
        lambda g: regions.reduce_scatter_to_sequence_parallel(torch.ones(7, 4), g),
        lambda g: regions.reduce_scatter_to_sequence_parallel(torch.ones(8, 4), g),
        'the extent of dimension 0 of the input, 7, is not a multiple of the 2 ranks'),
    'remainder of an exchange': (
        lambda g: regions.all_to_all(torch.ones(7, 4), g),
        lambda g: regions.all_to_all(torch.ones(8, 4), g), '7, is not a multiple of the 2 ranks'),
    'remainder of an exchange with half of the sizes': (
        lambda g: regions.all_to_all(torch.ones(7, 4), g, output_sizes=[4, 4]),
        lambda g: regions.all_to_all(torch.ones(8, 4), g, output_sizes=[4, 4]),
        '7, is not a multiple of the 2 ranks'),
    'remainder of columns': (
        lambda g: regions.sequence_to_hidden(torch.ones(8, 6, 3), g),
        lambda g: regions.sequence_to_hidden(torch.ones(8, 6, 4), g),
        'sequence_to_hidden of float32 [8, 6, 3]: its 3 columns are not a multiple of the 2 ranks'),
    'remainder of all rows': (
        lambda g: regions.hidden_to_sequence(torch.ones(3, 3, 4), g),
        lambda g: regions.hidden_to_sequence(torch.ones(8, 4), g),
        'its 9 rows are not a multiple of the 2 ranks'),
    'no dimension': (
        lambda g: regions.gather_from_tensor_parallel(torch.tensor(1.0), g),
        lambda g: regions.gather_from_tensor_parallel(torch.ones(2, 2), g), 'a single element'),
    'no dimension in an exchange': (
        lambda g: regions.all_to_all(torch.tensor(1.0), g, input_sizes=[1, 1]),
        lambda g: regions.all_to_all(torch.ones(2), g), 'a single element'),
    'no rows and no columns': (
        lambda g: regions.sequence_to_hidden(torch.tensor(1.0), g),
        lambda g: regions.sequence_to_hidden(torch.ones(2, 2), g), 'it has no dimension'),
    'number of sizes': (
        lambda g: regions.gather_from_sequence_parallel(torch.ones(2, 2), g, sizes=[2]),
        lambda g: regions.gather_from_sequence_parallel(torch.ones(2, 2), g, sizes=[2, 2]),
        'sizes'),
    'rows that are not those of sizes': (
        lambda g: regions.gather_from_sequence_parallel(torch.ones(7, 4), g, sizes=[8, 8]),
        lambda g: regions.gather_from_sequence_parallel(torch.ones(8, 4), g, sizes=[8, 8]),
        'the input is f32 [7, 4] and should be f32 [8, 4]'),
    'sizes are no sequence': (
        lambda g: regions.reduce_scatter_to_sequence_parallel(torch.ones(4), g, sizes=4),
        lambda g: regions.reduce_scatter_to_sequence_parallel(torch.ones(4), g, sizes=[2, 2]),
        'sizes: expected a sequence'),
    'a numpy array': (
        lambda g: regions.reduce_from_tensor_parallel(torch.ones(2).numpy(), g),
        lambda g: regions.reduce_from_tensor_parallel(torch.ones(2), g),
        'expected a tensor of PyTorch, got'),
    'no tensor': (
        lambda g: regions.sequence_to_hidden(None, g),
        lambda g: regions.sequence_to_hidden(torch.ones(2, 2), g),
        'expected a tensor of PyTorch, got'),
    'no tensor in an exchange': (
        lambda g: regions.all_to_all('rows', g, input_sizes=[1, 1]),
        lambda g: regions.all_to_all(torch.ones(2), g), 'expected a tensor of PyTorch, got'),
    'a type that has no sum': (
        lambda g: regions.reduce_from_tensor_parallel(torch.ones(2, dtype=torch.complex64), g),
        lambda g: regions.reduce_from_tensor_parallel(torch.ones(2), g), 'c64'),
}


@pytest.mark.parametrize('all_are_wrong', [False, True])
@pytest.mark.parametrize('name', WRONG)
def test_all_ranks_get_the_error_and_the_group_works_afterwards(groups, name, all_are_wrong):
    wrong, right, text = WRONG[name]
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument) as caught:
            (wrong if all_are_wrong or rank == 0 else right)(group)
        assert regions.reduce_from_tensor_parallel(torch.ones(1), group).item() == 2
        return str(caught.value)
    for message in run(groups, body):
        assert text in message and (all_are_wrong or 'rank 0' in message)


def test_sizes_on_one_rank_alone_fail_on_all_ranks(groups):
    def body(group, rank):
        with pytest.raises(cohort.InvalidArgument) as caught:
            regions.gather_from_sequence_parallel(torch.ones(2), group,
                                                  sizes=None if rank == 0 else [2, 2])
        return str(caught.value)
    for message in run(groups, body):
        assert 'rank 0 all_gather of' in message and 'rank 1 all_gather_v of' in message


def test_slices_name_dimension_extent_and_ranks(groups):
    for region, shape, text in (
            (regions.scatter_to_tensor_parallel, (8, 3),
             'group layer, rank 1: a slice of float32 [8, 3]: the extent of dimension 1, 3, is '
             'not a multiple of the 2 ranks'),
            (regions.scatter_to_sequence_parallel, (7, 4), 'the extent of dimension 0, 7, is not'),
            (regions.scatter_to_sequence_parallel, (), 'there is no dimension 0')):
        with pytest.raises(cohort.InvalidArgument) as caught:
            region(torch.ones(shape), groups[1])
        assert text in str(caught.value)
    for region in (regions.scatter_to_tensor_parallel, regions.copy_to_tensor_parallel):
        with pytest.raises(cohort.InvalidArgument, match='expected a tensor of PyTorch'):
            region([1.0], groups[1])


def test_backward_raises_the_error_of_its_collective(groups):
    def body(group, rank):
        leaf = torch.ones(2, requires_grad=True)
        result = regions.copy_to_tensor_parallel(leaf, group)
        with pytest.raises(cohort.InvalidArgument, match='all_gather'):
            result.sum().backward() if rank == 0 else group.all_gather(torch.ones(2))
        assert leaf.grad is None
        assert group.all_reduce(torch.ones(1)).item() == 2
    run(groups, body)
