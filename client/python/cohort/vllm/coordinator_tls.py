"""TLS between the ranks of a StatelessProcessGroup and the coordinator that rank 0 starts.

    tls = CoordinatorTls('group stateless-7711, rank 1', '10.0.0.1', 7711)
    tls.flags                    # of the coordinator, on rank 0
    tls.verify(deadline)         # before the rank joins

Clients take their certificates from the variables COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and
COHORT_TLS_CA, and connect again and again until they time out. So each rank looks before it joins
whether it can ever connect.
"""

import os
import socket
import ssl
import time
from typing import List, Optional

from cohort.errors import FailedPrecondition, Unavailable

_CERTIFICATE, _KEY, _CA = 'COHORT_TLS_CERTIFICATE', 'COHORT_TLS_KEY', 'COHORT_TLS_CA'
_VARIABLES = (_CERTIFICATE, _KEY, _CA)
_REMEDY = ('Set all three of COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_CA on all ranks, or '
           'none of them, or pass address= of a coordinator that you run yourself')

# The beginning of an HTTP/2 connection, with empty settings. The coordinator answers with its own.
_GREETING = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0'
_RETRY_SECONDS = 0.05
# How long one attempt waits for an answer. A coordinator that begins to serve late may take longer.
_ATTEMPT_SECONDS = 5


class CoordinatorTls:
    """The TLS of one rank.

    Attributes:
      flags: the coordinator's flags about TLS.
    """

    def __init__(self, who: str, host: str, port: int):
        """Reads the variables and their files. `who` begins the errors.

        Raises FailedPrecondition if some of the variables are set but not all, or if a file cannot be
        read.
        """
        self._who, self._host, self._port = who, host, port
        self._context: Optional[ssl.SSLContext] = None
        files = {name: os.environ.get(name, '') for name in _VARIABLES}
        missing = [name for name, path in files.items() if not path]
        if len(missing) == len(files):
            self.flags: List[str] = ['--insecure']
            return
        if missing:
            present = [name for name in files if name not in missing]
            raise FailedPrecondition(
                f'{who}: {" and ".join(present)} asks for TLS, but rank 0 starts a coordinator, which '
                f'cannot serve TLS without {" and ".join(missing)}. {_REMEDY}')
        self._context = self._load(files)
        self.flags = ['--tls-certificate', files[_CERTIFICATE], '--tls-key', files[_KEY],
                      '--tls-client-ca', files[_CA]]

    def _load(self, files: dict) -> ssl.SSLContext:
        # No stricter than the clients: a certificate that they accept must pass here.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.hostname_checks_common_name = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(['h2'])
        try:
            read = f'{_CA}={files[_CA]}'
            context.load_verify_locations(files[_CA])
            read = f'{_CERTIFICATE}={files[_CERTIFICATE]} with {_KEY}={files[_KEY]}'
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(files[_CERTIFICATE], files[_KEY], password='')
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise FailedPrecondition(f'{self._who}: cannot read {read}: {error}') from error
        return context

    def verify(self, deadline: float) -> None:
        """Waits until the coordinator has answered this rank, at most until `deadline` by
        time.monotonic().

        Raises:
          FailedPrecondition: the coordinator and this rank do not agree on TLS.
          Unavailable: the coordinator has not answered in time.
        """
        begin = time.monotonic()
        while True:
            left = deadline - time.monotonic()
            try:
                self._greet(self._context, min(max(left, 0.001), _ATTEMPT_SECONDS))
                return
            except OSError as error:
                self._raise_if_final(error)
                if left <= 0:
                    raise Unavailable(f'{self._who}: {self._server()} did not answer within '
                                      f'{deadline - begin:.1f} s: {error}') from error
            time.sleep(_RETRY_SECONDS)

    def _greet(self, context: Optional[ssl.SSLContext], seconds: float) -> None:
        """Connects once. Raises ssl.SSLError or OSError without an answer."""
        with socket.create_connection((self._host, self._port), seconds) as plain:
            if context is None:
                _exchange(plain)
            else:
                with context.wrap_socket(plain, server_hostname=self._host) as encrypted:
                    _exchange(encrypted)

    def _raise_if_final(self, error: OSError) -> None:
        """Raises FailedPrecondition if a later attempt would end in the same way. A closed connection
        says nothing: a proxy closes it while the coordinator is not there."""
        if self._context is None:
            if isinstance(error, ConnectionResetError) and self._serves_tls():
                raise FailedPrecondition(
                    f'{self._who}: {self._server()} serves this host by TLS only, and this rank has no '
                    f'certificate. {_REMEDY}') from error
        elif isinstance(error, ssl.SSLCertVerificationError):
            raise FailedPrecondition(
                f'{self._who}: {self._server()} shows a certificate that this rank does not accept: '
                f'{error.verify_message} The file {_CERTIFICATE} of rank 0 must be for the name '
                f'{self._host}, and {_CA} of this rank must have its CA. {_REMEDY}') from error
        elif isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            raise FailedPrecondition(
                f'{self._who}: {self._server()} and this rank do not agree on TLS: {error}. '
                f'{_REMEDY}') from error

    def _serves_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it sends nothing
        try:
            self._greet(context, _ATTEMPT_SECONDS)
            return True
        except ssl.SSLError as error:
            return 'ALERT_CERTIFICATE_REQUIRED' in str(error.reason)
        except OSError:
            return False

    def _server(self) -> str:
        return f'the coordinator of rank 0 at {self._host} port {self._port}'


def _exchange(connection: socket.socket) -> None:
    connection.sendall(_GREETING)
    if not connection.recv(1):
        raise ConnectionResetError('it closed the connection')
