"""The way out of restricted sessions: a forward proxy of the engine's own that checks every request."""

from .proxy import EgressProxy as EgressProxy
from .serving import egress as egress
