"""Each rank prints each second which ranks it still waits for in a barrier; the ranks come late.

    for rank in 0 1 2; do python barrier.py $rank ADDRESS & done
"""

import asyncio
import sys

import cohort.aio

RANKS = 3


async def print_missing(group: cohort.aio.ProcessGroup) -> None:
    """Prints the missing ranks each second, until it is cancelled."""
    while True:
        await asyncio.sleep(1)
        for wait in await group.who_is_missing():
            print(f'{wait.operation} waits for ranks {list(wait.missing)}', flush=True)


async def main(rank: int, address: str) -> None:
    async with cohort.aio.ProcessGroup('late', rank=rank, world_size=RANKS,
                                       address=address) as group:
        await asyncio.sleep(1.5 * rank)  # here: work of different lengths
        printing = asyncio.create_task(print_missing(group))
        await group.barrier(timeout=60)
        printing.cancel()
        print('all ranks are here', flush=True)
        await group.barrier()  # no rank leaves while another one still asks


if __name__ == '__main__':
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
