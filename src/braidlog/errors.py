"""Every error that a client raises: the library's own, and one for each code that a broker can answer with.

BraidlogError
  ClientError            something a program may meet and handle; `retriable` says whether to try again
  UserError              a setting or an argument is wrong: the program has to change
ProtocolError            a broker refused: `code`, `name` and `retriable` are Kafka's
"""

from braidlog.client.errors import *  # noqa: F403
from braidlog.core.errors import BraidlogError as BraidlogError
from braidlog.core.errors import UserError as UserError
from braidlog.core.protocol_errors import *  # noqa: F403

__all__ = sorted(name for name, each in globals().items() if isinstance(each, type) and issubclass(each, Exception))
