"""Decide which addresses a request may be sent to: the name is resolved once, and what is checked is used."""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

import anyio

from ...spec.network import Address, NetworkPolicy, literal_address, normal_host, unmapped

Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]

_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_TRANSLATED = tuple(IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96"))
"""Whose last four bytes may become an IPv4 address on the way (RFC 6052, 8215, 2765)."""
_METADATA = frozenset(
    ip_address(text) for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")
)
"""Metadata services of clouds that are not at a link-local address."""
_RESOLVE_SECONDS = 20.0


class RefusedError(Exception):
    """The policy does not allow it."""


class UnresolvableError(Exception):
    """The name has no address."""


async def resolve_host(host: str, port: int) -> Sequence[Address]:
    """Look a name up as any program of this machine would."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(entry[4][0].partition("%")[0]) for entry in found))


class Guard:
    """Applies a policy to single requests."""

    def __init__(self, policy: NetworkPolicy, resolve: Resolver) -> None:
        self._policy = policy
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """
        Return the addresses that may be connected to for a host, in the order to try them.

        A name that no entry of an allowlist can permit is not even looked up: a lookup can carry data out.
        With ranges of addresses in the list every name must be.

        Raises:
            ValueError: It is no host.
            RefusedError: There is none.
            UnresolvableError: The name has no address at all.
        """
        name = normal_host(host)
        if self._refused_by_name(name, port):
            raise RefusedError
        permitted = [
            address for address in await self._found(name, port) if self._permits(name, port, address)
        ]
        if not permitted:
            raise RefusedError
        return permitted

    def _refused_by_name(self, name: str, port: int) -> bool:
        policy = self._policy
        permitting = [pattern for pattern in policy.permitted_patterns if pattern.port in (None, port)]
        if any(pattern.matches_name(name) for pattern in permitting):
            return False
        if policy.mode == "allowlist":
            return not any(pattern.network for pattern in permitting)
        denying = [pattern for pattern in policy.patterns if pattern.port in (None, port)]
        return any(pattern.matches_name(name) for pattern in denying)

    async def _found(self, name: str, port: int) -> Sequence[Address]:
        if address := literal_address(name):
            return [address]
        try:
            with anyio.fail_after(_RESOLVE_SECONDS):
                return [unmapped(address) for address in await self._resolve(name, port)]
        except (OSError, UnicodeError) as error:  # a time-out is an OSError
            raise UnresolvableError(str(error)) from error

    def _permits(self, name: str, port: int, address: Address) -> bool:
        if not all(self._policy.permits(name, port, form) for form in _forms(address)):
            return False
        local = any(_is_local(form) for form in _forms(address))
        return not local or self._policy.names_address(name, port, address)


def _forms(address: Address) -> Sequence[Address]:
    """Return an address and the IPv4 address that a translator on the way would make of it."""
    if isinstance(address, IPv4Address):
        return [address]
    if any(address in network for network in _TRANSLATED):
        return [address, IPv4Address(address.packed[-4:])]
    embedded = address.sixtofour or (address.teredo and address.teredo[1])
    return [address, embedded] if embedded else [address]


def _is_local(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
        or address in _THIS_NETWORK
        or _is_ours(address)
    )


def _is_ours(address: Address) -> bool:
    """
    Tell whether an address is one of this machine's: only then can a socket be bound to it.

    Raises:
        OSError: It cannot be found out, e.g. for want of file descriptors; nobody may guess "no" then.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        raise
    return True
