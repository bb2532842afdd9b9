"""The logger of the package: errors that no caller sees, because a thread of the library met them."""

import logging

logger = logging.getLogger('cohort')
logger.addHandler(logging.NullHandler())
