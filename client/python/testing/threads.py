"""How many threads of this process are Cohort's or the program's."""

import os

_OF_GRPC = ('event_engine', 'default-execu', 'resolver-exec', 'grpc_', 'nexting_thread',
            'timer_manager')


def threads_without_grpc():
    """gRPC starts and ends threads of its pools when it likes: they are not counted, once they have
    their names."""
    return sum(not name.startswith(_OF_GRPC) for name in _names())


def _names():
    for thread in os.listdir('/proc/self/task'):
        try:
            with open(f'/proc/self/task/{thread}/comm', encoding='ascii') as file:
                yield file.read()
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
