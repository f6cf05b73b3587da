"""Archives for containers."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from anyio import CapacityLimiter

from agentcompass.environments.docker.archive import PackedTree


@pytest.mark.anyio
async def test_packed_tree_is_what_tar_reads(tmp_path: Path) -> None:
    """Odd names, modes, links; no set-user-id bits, no pipes."""
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / ("n" * 200)).write_bytes(b"long name")
    (source / "odd\nname").write_bytes(b"")
    (source / "link").symlink_to("x" * 150)
    (source / "tool").write_bytes(b"#!")
    (source / "tool").chmod(stat.S_ISUID | 0o711)
    os.mkfifo(source / "pipe")
    tree = PackedTree(source=source, name="root", limiter=CapacityLimiter(1))
    data = b"".join([piece async for piece in tree])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {info.name: (info.type, oct(info.mode), info.linkname) for info in tar}
    assert found == {
        "root": (tarfile.DIRTYPE, "0o755", ""),
        "root/empty": (tarfile.DIRTYPE, "0o755", ""),
        "root/link": (tarfile.SYMTYPE, "0o777", "x" * 150),
        "root/" + "n" * 200: (tarfile.REGTYPE, "0o644", ""),
        "root/odd\nname": (tarfile.REGTYPE, "0o644", ""),
        "root/tool": (tarfile.REGTYPE, "0o711", ""),
    }
