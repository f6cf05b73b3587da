"""Images for tests, made on this machine: no registry is asked."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from aiodocker import Docker, DockerError

_APPLETS = """
[ awk base64 cat chmod chown cmp cp cut dd echo env false find grep head id kill ln ls md5sum mkdir
mkfifo mv nc nohup nslookup printf readlink rm sed seq setsid sh sleep sort stat tail tar test touch
tr true wc xargs yes
"""
"""No bash, ps, pkill or timeout: sessions must do without."""
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"
_GROUP = "root:x:0:\nagent:x:1000:\n"


def busybox() -> Path | None:
    """Return the statically linked busybox of this machine, None if there is none."""
    found = shutil.which("busybox")
    return Path(found).resolve() if found else None


@cache
def busybox_archive() -> bytes:
    """Return a root file system with nothing but busybox, as a tar archive; blocks."""
    program = busybox()
    assert program is not None
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, mode in [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)]:
            _add(tar, name, mode, kind=tarfile.DIRTYPE)
        _add(tar, "home/agent", 0o755, kind=tarfile.DIRTYPE, uid=1000)
        _add(tar, "bin/busybox", 0o755, program.read_bytes())
        for applet in _APPLETS.split():
            _add(tar, f"bin/{applet}", 0o777, kind=tarfile.SYMTYPE, link="busybox")
        _add(tar, "etc/passwd", 0o644, _PASSWD.encode())
        _add(tar, "etc/group", 0o644, _GROUP.encode())
    return stream.getvalue()


def busybox_root(directory: Path) -> Path:
    """Write that root file system as an archive and return its path; blocks."""
    path = directory / "root.tar"
    path.write_bytes(busybox_archive())
    return path


def small_archive() -> bytes:
    """Return a root file system without any program."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        _add(tar, "etc/empty", 0o644)
    return stream.getvalue()


def _add(
    tar: tarfile.TarFile,
    name: str,
    mode: int,
    content: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    uid: int = 0,
) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.linkname, info.size = mode, kind, link, len(content)
    info.uid = info.gid = uid
    tar.addfile(info, io.BytesIO(content))


async def imported(
    docker: Docker, name: str, archive: bytes, changes: Mapping[str, str] | None = None
) -> str:
    """
    Import an archive as an image unless the daemon has it already, and return its name.

    Args:
        changes: Dockerfile instructions for the image's configuration, e.g. ``{"USER": "agent"}``.
    """
    lines = [f"{instruction} {value}" for instruction, value in (changes or {}).items()]
    digest = hashlib.sha256(archive + repr(lines).encode()).hexdigest()[:12]
    full = f"agentcompass-test/{name}:{digest}"
    try:
        await docker.images.inspect(full)
    except DockerError:
        params = [("fromSrc", "-"), ("repo", f"agentcompass-test/{name}"), ("tag", digest)]
        params += [("changes", line) for line in lines]
        url = f"{docker.docker_host}/{docker.api_version}/images/create"
        async with docker.session.post(url, params=params, data=io.BytesIO(archive)) as response:
            assert response.status == 200, await response.text()
            await response.read()
    return full
