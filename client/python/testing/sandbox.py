"""A seccomp filter that refuses memfd_create, as sandboxes do.

Run as a program, it sets the filter and then runs a command under it:

    python -m testing.sandbox refused|noexec COMMAND...
"""

import ctypes
import errno
import os
import platform
import struct
import sys

_MEMFD_CREATE = {'x86_64': 319, 'aarch64': 279}
_NOEXEC_SEAL = 0x8
_SET_NO_NEW_PRIVS = 38
_SET_SECCOMP = 22
_FILTER_MODE = 2
_ALLOW = 0x7fff0000
_REFUSE = 0x00050000 | errno.EPERM
_LOAD, _JUMP_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
# Offsets in struct seccomp_data.
_NUMBER, _SECOND_ARGUMENT = 0, 24


def enter(unless_noexec):
    """Lets memfd_create fail with EPERM in this process and its children: always, or unless the flag
    MFD_NOEXEC_SEAL is set."""
    steps = [(_LOAD, 0, 0, _NUMBER),
             (_JUMP_EQUAL, 0, 3 if unless_noexec else 1, _MEMFD_CREATE[platform.machine()])]
    if unless_noexec:
        steps += [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_JUMP_BITS, 1, 0, _NOEXEC_SEAL)]
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *step) for step in steps))
    # struct sock_fprog
    program = ctypes.create_string_buffer(struct.pack('@HP', len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                      (_SET_SECCOMP, _FILTER_MODE, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), 'prctl')


if __name__ == '__main__':
    enter(sys.argv[1] == 'noexec')
    os.execvp(sys.argv[2], sys.argv[2:])
