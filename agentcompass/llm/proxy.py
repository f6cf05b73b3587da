"""Which proxy the environment (``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY`` ...) wants for a URL."""

from __future__ import annotations

import ipaddress
from urllib.request import getproxies, proxy_bypass

import httpx

from ..errors import ConfigError


def proxy_for(url: httpx.URL) -> httpx.URL | None:
    """
    Return the proxy for a URL, credentials included; none for this machine, which no proxy can reach.

    Raises:
        ConfigError: The environment names a proxy that cannot be used.
    """
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or _is_loopback(url.host) or proxy_bypass(url.netloc.decode()):
        return None
    try:
        proxy = httpx.URL(address if "://" in address else f"http://{address}")
    except httpx.InvalidURL:
        raise ConfigError(f"the proxy that the environment names for {url.scheme} is no valid URL") from None
    if proxy.scheme not in {"http", "https"}:
        raise ConfigError(f"{proxy.scheme} proxies are not supported; add {url.host} to NO_PROXY")
    return proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
