"""Images for tests, made on this machine: no registry is asked."""

from __future__ import annotations

import hashlib
import io
import shutil
import struct
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from aiodocker import Docker, DockerError

from .. import sandbox

_APPLETS = """
[ awk base64 cat chmod chown cmp cp cut dd echo env false find grep head id kill ln ls md5sum mkdir
mkfifo mv nc nohup nslookup printf readlink rm sed seq setsid sh sleep sort stat tail tar test touch
tr true wc xargs yes
"""
_HIDDEN = ("killall", "pgrep", "pkill", "ps", "timeout")
"""With bash, what sessions must do without; busybox runs it without a link as well."""
_NAMES_LOADER = 3
"""The kind of a program header, PT_INTERP in elf(5)."""
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"
_GROUP = "root:x:0:\nagent:x:1000:\n"


def _busybox() -> bytes:
    """Return this machine's busybox; skip the test if there is none that runs without libraries."""
    found = shutil.which("busybox")
    program = Path(found).read_bytes() if found else b""
    if not is_static(program):
        sandbox.skip("no static busybox to make an image of (apt-get install busybox-static)")
    return program


def is_static(program: bytes) -> bool:
    """Whether a program is in the 64-bit ELF format and names no dynamic loader."""
    if program[:5] != b"\x7fELF\x02":
        return False
    [start] = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, start + number * size)[0] for number in range(count)]
    return _NAMES_LOADER not in kinds


def _without(applets: Iterable[str], program: bytes) -> bytes:
    """Rename applets in busybox's sorted table of names, each by its last letter, so that none is found."""
    start = program.find(b"\0[\0[[\0")
    before, names, after = program[:start], program[start : start + 8192], program[start + 8192 :]
    for applet in applets:
        name = applet.encode()
        names = names.replace(b"\0%s\0" % name, b"\0%s%c\0" % (name[:-1], name[-1] + 1))
    return before + names + after


@cache
def busybox_archive() -> bytes:
    """Return a root file system with nothing but busybox, as a tar archive; blocks."""
    program = _without(_HIDDEN, _busybox())
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, mode in [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)]:
            _add(tar, name, mode, kind=tarfile.DIRTYPE)
        _add(tar, "home/agent", 0o755, kind=tarfile.DIRTYPE, uid=1000)
        _add(tar, "bin/busybox", 0o755, program)
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
