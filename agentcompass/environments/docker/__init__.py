"""The ``docker`` environment: each session is a container of a local or remote Docker daemon."""

from .environment import DockerEnvironment as DockerEnvironment
from .params import DockerParams as DockerParams
