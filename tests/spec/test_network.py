"""Network policies as people write them, and what they mean."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.errors import ConfigError
from agentcompass.spec.network import PUBLIC, NetworkPolicy, normal_host, parse_host
from agentcompass.spec.options import NetworkParams
from agentcompass.spec.validation import validate


@pytest.mark.parametrize(
    ("pattern", "host", "port", "address", "expected"),
    [
        ("example.org", "example.org", 80, "192.0.2.7", True),
        ("Example.ORG.", "example.org", 443, "192.0.2.7", True),
        ("example.org", "www.example.org", 80, "192.0.2.7", False),
        ("example.org", "badexample.org", 80, "192.0.2.7", False),
        ("example.org:443", "example.org", 443, "192.0.2.7", True),
        ("example.org:443", "example.org", 80, "192.0.2.7", False),
        ("*.example.org", "www.example.org", 80, "192.0.2.7", True),
        ("*.example.org", "a.b.example.org", 80, "192.0.2.7", True),
        ("*.example.org", "example.org", 80, "192.0.2.7", False),
        ("*.example.org", "xexample.org", 80, "192.0.2.7", False),
        ("192.0.2.7", "any.name", 80, "192.0.2.7", True),
        ("192.0.2.0/24:80", "any.name", 80, "192.0.2.99", True),
        ("192.0.2.0/24:80", "any.name", 81, "192.0.2.99", False),
        ("192.0.2.0/24", "any.name", 80, "192.0.3.1", False),
        ("2001:db8::/32", "any.name", 80, "2001:db8::5", True),
        ("[2001:db8::5]:80", "2001:db8::5", 80, "2001:db8::5", True),
        ("[2001:db8::5]:80", "2001:db8::5", 81, "2001:db8::5", False),
        ("192.0.2.0/24", "any.name", 80, "2001:db8::5", False),
        ("::ffff:192.0.2.0/120", "any.name", 80, "192.0.2.99", True),
        ("bücher.example", "xn--bcher-kva.example", 80, "192.0.2.7", True),
    ],
)
def test_entries_mean(pattern: str, host: str, port: int, address: str, expected: bool) -> None:
    """Names exactly, ``*.`` for all below, ranges by address, ports only where they stand."""
    assert parse_host(pattern).matches(host, port, ip_address(address)) is expected


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "a b", "exa/mple", "-x.org", "host:0", "host:70000", "host:http", "10.0.0.0/33",
     "10.0.0.1/8", "1.2.3.4.5:x", "http://example.org", "a..b", "user@host",
     "127.1", "0x7f.1", "１０。0.0.1", "fe80::1%eth0", "a." * 150 + "test"],
)  # fmt: skip
def test_entries_that_mean_nothing_are_refused(text: str) -> None:
    """A typo must not become an entry that never matches."""
    with pytest.raises(ValueError, match=r"."):
        parse_host(text)


@given(st.text(max_size=30))
def test_any_text_is_an_entry_or_a_value_error(text: str) -> None:
    """Nothing else is ever raised, and a normal host stays what it is."""
    for read in (parse_host, normal_host):
        try:
            found = read(text)
        except ValueError:
            continue
        assert not isinstance(found, str) or normal_host(found) == found


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("Example.ORG.", "example.org"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("[2001:DB8:0::5]", "2001:db8::5"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
    ],
)
def test_spellings_of_one_host_are_compared_as_one(host: str, normal: str) -> None:
    """Case, final dot, script, brackets and mapping do not make another host."""
    assert normal_host(host) == normal


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0",
        "1.2.3.4.",
        "fd00::1%1",
        "",
        "a b",
        "a.test" + "." * 250 + "b.test",
    ],
)
def test_what_is_no_host(host: str) -> None:
    """Above all what a resolver would take for an address that nobody has checked."""
    with pytest.raises(ValueError, match=r"."):
        normal_host(host)


def test_allowlist_and_denylist_are_opposites() -> None:
    """And the two without hosts are absolute."""
    address = ip_address("192.0.2.7")
    for host in ("a.test", "b.test"):
        allowed = NetworkPolicy(mode="allowlist", hosts=("a.test",)).permits(host, 80, address)
        denied = NetworkPolicy(mode="denylist", hosts=("a.test",)).permits(host, 80, address)
        assert allowed is (host == "a.test")
        assert denied is not allowed
        assert PUBLIC.permits(host, 80, address)
        assert not NetworkPolicy(mode="no-network").permits(host, 80, address)


def test_further_hosts() -> None:
    """They make a list of no network, and do not widen what is open already."""
    only = NetworkPolicy(mode="allowlist", hosts=("m.test:80",))
    assert NetworkPolicy(mode="no-network").plus("m.test:80") == only
    assert only.plus("n.test").hosts == ("m.test:80", "n.test")
    assert PUBLIC.plus("m.test:80") == PUBLIC


def test_further_hosts_of_a_denylist_are_exempt() -> None:
    """Also where the list has them, by name or by range; a name alone opens no address of this machine."""
    denied = NetworkPolicy(mode="denylist", hosts=("m.test", "127.0.0.0/8")).plus("127.0.0.1:80", "m.test:80")
    here, there = ip_address("127.0.0.1"), ip_address("192.0.2.7")
    assert denied.permits("127.0.0.1", 80, here)
    assert denied.names_address("127.0.0.1", 80, here)
    assert not denied.permits("127.0.0.1", 81, here)
    assert denied.permits("m.test", 80, there)
    assert not denied.permits("m.test", 81, there)
    assert not denied.names_address("m.test", 81, here)


def test_written_forms() -> None:
    """A name or a mapping; run.json has the short form again."""
    given_values = {
        "network_policy": "no-network",
        "run_network_policy": {"mode": "denylist", "hosts": ["a.test"]},
    }
    params = validate(NetworkParams, given_values)
    assert params.run == NetworkPolicy(mode="denylist", hosts=("a.test",))
    assert params.verifier == NetworkPolicy(mode="no-network")
    assert params.model_dump(mode="json", exclude_defaults=True) == given_values
    assert NetworkParams().model_dump(mode="json", exclude_defaults=True) == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none", "network_policy"),
        ({"mode": "allowlist"}, "has no hosts"),
        ({"mode": "no-network", "hosts": ["x.test"]}, "hosts belong to"),
        ({"mode": "allowlist", "hosts": ["x y"]}, "'x y' is no host name"),
        ({"mode": "allowlist", "hosts": "x.test"}, "network_policy"),
        ({"mode": "allowlist", "host": ["x.test"]}, "network_policy"),
        ({"mode": "denylist", "hosts": ["x.test"], "exempt": ["y.test"]}, "only mode and hosts, not exempt"),
        (7, "network_policy"),
    ],
)
def test_wrong_forms_are_named(value: object, message: str) -> None:
    """The error names the parameter."""
    with pytest.raises(ConfigError, match=message):
        validate(NetworkParams, {"network_policy": value}, what="environment_params")
