"""
Which hosts a session may reach.

The values of the session contract, so without pydantic, which takes longer to import than all else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

Address = IPv4Address | IPv6Address
NetworkMode = Literal["public", "no-network", "allowlist", "denylist"]

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""What no domain ends in: resolvers would read such a name as an address (``127.1``, ``0x7f000001``)."""
_MAX_NAME_CHARACTERS = 253
_MAPPED = IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class HostPattern:
    """
    One entry of a list: a host name, all names below a domain, or a range of addresses.

    Args:
        name: In lower case and IDNA form; empty for a range of addresses.
        below: Whether the entry stands for all names below ``name``, but not for itself (``*.name``).
        network: The range; a single address is a range of one.
        port: The only port that is meant; None for all.
    """

    name: str = ""
    below: bool = False
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def matches(self, host: str, port: int, address: Address) -> bool:
        """
        Tell whether a connection is meant.

        Args:
            host: What was asked for, as ``normal_host`` returns it.
            address: What that was resolved to, and what will be connected to.
        """
        if self.port is not None and port != self.port:
            return False
        return address in self.network if self.network is not None else self.matches_name(host)

    def matches_name(self, host: str) -> bool:
        """Tell whether the name alone is meant, whatever its address and port."""
        if self.network is not None:
            return False
        return host.endswith(f".{self.name}") if self.below else host == self.name


def parse_host(text: str) -> HostPattern:
    """
    Parse ``name``, ``*.domain``, an address or a CIDR range, each with ``:port`` if only that is meant.

    An IPv6 address needs brackets when a port follows: ``[::1]:443``.

    Raises:
        ValueError: It is none of these.
    """
    bare, port = _split_port(text.strip())
    if network := _network(bare.strip("[]")):
        return HostPattern(network=network, port=port)
    below = bare.startswith("*.")
    return HostPattern(name=_name(bare.removeprefix("*."), text), below=below, port=port)


def normal_host(host: str) -> str:
    """
    Return a host as policies compare it: a name in lower case and IDNA form, no final dot; or an address.

    Raises:
        ValueError: It is neither. An address with a scope (``fe80::1%eth0``) is none either.
    """
    bare = host.strip("[]")
    address = literal_address(bare)
    if address is None:
        return _name(bare, host)
    if "%" in bare:
        raise ValueError(f"{host!r} has a scope, which could hide what address it is")
    return str(unmapped(address))


def literal_address(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """Return an IPv4 address that is written as an IPv6 one (``::ffff:1.2.3.4``) as what it is."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _split_port(text: str) -> tuple[str, int | None]:
    bare, colon, digits = text.rpartition(":")
    if not colon or (":" in bare and not bare.endswith("]")):  # an IPv6 address without a port
        return text, None
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 65536:
        raise ValueError(f"{text!r} has no valid port; a port is a number from 1 to 65535")
    return bare, int(digits)


def _network(text: str) -> IPv4Network | IPv6Network | None:
    if "/" not in text and not text.replace(".", "").isdigit() and ":" not in text:
        return None
    try:
        if "%" in text:
            raise ValueError("an address of a policy has no scope")
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no address or CIDR range: {error}") from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((network.network_address.packed[-4:], network.prefixlen - 96))
    return network


def _name(text: str, shown: str) -> str:
    bare = text.rstrip(".") if len(text) <= _MAX_NAME_CHARACTERS + 1 else ""
    try:
        name = bare.encode("idna").decode().lower()
    except UnicodeError:
        name = ""
    labels = name.split(".")
    is_name = all(_LABEL.fullmatch(label) for label in labels) and not _NUMBER.fullmatch(labels[-1])
    if not is_name or len(name) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"{shown!r} is no host name, *.domain, IP address or CIDR range")
    return name


@dataclass(frozen=True, kw_only=True)
class NetworkPolicy:
    """
    What a session may reach.

    Args:
        mode: ``public`` for everything, ``no-network`` for nothing, or what ``hosts`` is a list of.
        hosts: Host names, ``*.domain``, IP addresses and CIDR ranges, each with ``:port`` if only that is
            meant.
        exempt: What is permitted although a denylist may have it; only ``plus`` sets it.

    Raises:
        ValueError: A host cannot be read, or mode and hosts do not fit each other.
    """

    mode: NetworkMode
    hosts: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hosts and not self.is_list:
            raise ValueError(f"hosts belong to an allowlist or a denylist, not to {self.mode}")
        if self.is_list and not self.hosts:
            way_out = "no-network" if self.mode == "allowlist" else "public"
            raise ValueError(f"the {self.mode} has no hosts; name some, or write {way_out}")
        for text in (*self.hosts, *self.exempt):
            parse_host(text)

    @property
    def is_list(self) -> bool:
        """Whether hosts are told apart."""
        return self.mode in ("allowlist", "denylist")

    @cached_property
    def patterns(self) -> tuple[HostPattern, ...]:
        """The hosts, parsed."""
        return tuple(parse_host(text) for text in self.hosts)

    @cached_property
    def permitted_patterns(self) -> tuple[HostPattern, ...]:
        """Those that permit by naming: all of an allowlist, the exemptions of a denylist."""
        return self.patterns if self.mode == "allowlist" else tuple(parse_host(text) for text in self.exempt)

    def permits(self, host: str, port: int, address: Address) -> bool:
        """Tell whether a connection to ``address``, asked for as ``host``, is in order."""
        named = any(pattern.matches(host, port, address) for pattern in self.permitted_patterns)
        if self.mode != "denylist":
            return self.mode == "public" or named
        return named or not any(pattern.matches(host, port, address) for pattern in self.patterns)

    def names_address(self, host: str, port: int, address: Address) -> bool:
        """
        Tell whether this very address, or the literal name that was asked for, is permitted by naming.

        Addresses of the machine that we run on need this: a name that somebody else controls may
        resolve to them.
        """
        exact = (pattern for pattern in self.permitted_patterns if not pattern.below)
        literal = host == "localhost" or host == str(address)
        return any(pattern.matches(host, port, address) for pattern in exact if pattern.network or literal)

    def plus(self, *hosts: str) -> NetworkPolicy:
        """Return the policy that permits these hosts as well (an address, a name; with ``:port``)."""
        if self.mode == "no-network":
            return NetworkPolicy(mode="allowlist", hosts=hosts)
        if self.mode == "allowlist":
            return NetworkPolicy(mode="allowlist", hosts=(*self.hosts, *hosts))
        if self.mode == "denylist":
            return replace(self, exempt=(*self.exempt, *hosts))
        return self

    def __str__(self) -> str:
        return f"{self.mode} of {', '.join(self.hosts)}" if self.is_list else self.mode


PUBLIC = NetworkPolicy(mode="public")
