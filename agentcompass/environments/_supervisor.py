"""
The program that stands between the engine and the commands of one local session.

It exists so that no process outlives its session: it adopts every orphan among the descendants of a
command (Linux) and kills them all when its sockets close, for whatever reason the engine went away. It
imports nothing of the package and only what loads at once: ``_signal`` and ``_socket`` are the C halves
of ``signal`` and ``socket``, whose Python halves would double the time that opening a session takes.

The engine's side is ``processes.py``. One process serves the session; per command it forks another one,
the command's supervisor, which forks the command:

- session socket, read by the first process only: ``c`` with the ``DESCRIPTORS`` of a command, or ``l``,
  answered by a socket that listens on loopback, or ``r``, answered by the root of the session's files; its
  end closes the session;
- standard input, watched by every supervisor: its end closes the session too, also when the first process
  has been killed;
- control socket, per command: the request, then from the engine ``d`` (let background children live) or
  the end (kill everything), from here one line ``exit N``, ``signal N``, ``gone N``, ``cwd N`` or
  ``fork N``, and the end when nothing of the command is left to wait for.
"""

# pathlib and contextlib take longer to load than all the rest:
# ruff: noqa: PTH118, PTH123, PTH208, SIM105

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # has no stubs
import _socket
import os
import resource
import select
import sys
import time

DESCRIPTORS = 6
"""Control socket, both ends of the pipes for standard output and error, end to read standard input from."""
CAPABILITY_VERSION_3 = 0x20080522.to_bytes(4, sys.byteorder)
KILL_SECONDS = 5.0
"""How long to go on killing processes that do not die."""


def main() -> None:
    session, root = int(sys.argv[1]), sys.argv[2]
    limits = [(int(kind), int(value)) for kind, value in (word.split("=") for word in sys.argv[3:])]
    os.set_inheritable(session, False)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    become_subreaper()
    refuse_tracing()
    serve(session, root, limits)
    os._exit(0 if kill_descendants() else 1)


def serve(session: int, root: str, limits: list[tuple[int, int]]) -> None:
    """Fork a supervisor for each command that arrives, until the session socket ends."""
    connection = _socket.socket(fileno=session)
    wake = watch_children()
    supervisors: dict[int, int] = {}  # process id to control socket
    poller = select.poll()
    poller.register(session, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == wake:
                read_some(wake)
                report_killed(supervisors)
                continue
            request, descriptors = receive(connection)
            if request == b"l":
                send_listening_socket(connection)
                continue
            if request == b"r":
                send_root(connection, root)
                continue
            if not descriptors:
                return
            child = start_supervisor(session, descriptors, root, limits)
            for descriptor in descriptors[1:] if child else descriptors:
                os.close(descriptor)
            if child:
                supervisors[child] = descriptors[0]


def report_killed(supervisors: dict[int, int]) -> None:
    """Where a command has killed or stopped its supervisor, kill what it started; report it as killed."""
    killed = collect(supervisors)
    deadline = time.monotonic() + KILL_SECONDS
    while killed and (orphans := descendants(spared=supervisors)) and time.monotonic() < deadline:
        for number in (_signal.SIGSTOP, _signal.SIGKILL):
            for process in orphans:
                send_signal(process, number)
        time.sleep(0.0005)
        killed += collect(supervisors)
    for control in killed:
        report(control, "signal", _signal.SIGKILL)
        os.close(control)


def collect(supervisors: dict[int, int]) -> list[int]:
    """
    Reap children; return the control sockets of the supervisors among them that were killed.

    One that was stopped could end nothing any more, so it is killed.
    """
    killed: list[int] = []
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return killed
        if child == 0:
            return killed
        if os.WIFSTOPPED(status):
            if child in supervisors:
                send_signal(child, _signal.SIGKILL)
            continue
        control = supervisors.pop(child, None)
        if control is not None and os.WIFSIGNALED(status):
            killed.append(control)
        elif control is not None:
            os.close(control)


def receive(connection: _socket.socket) -> tuple[bytes, list[int]]:
    """Receive a request and the descriptors for a command; neither at the end of the session."""
    size = 4 * DESCRIPTORS
    try:
        data, ancillary, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(size))
    except ConnectionError:
        return b"", []
    received = b"".join(content for _, _, content in ancillary) if data else b""
    found = [int.from_bytes(received[at : at + 4], sys.byteorder) for at in range(0, len(received), 4)]
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return data, found


def send_listening_socket(connection: _socket.socket) -> None:
    """Open a socket in the session's own network, for the engine to serve."""
    listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    send_descriptor(connection, listening.fileno())
    listening.close()


def send_root(connection: _socket.socket, root: str) -> None:
    """Open the root of the session's files, for the engine to read and write them."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    send_descriptor(connection, directory)
    os.close(directory)


def send_descriptor(connection: _socket.socket, descriptor: int) -> None:
    rights = descriptor.to_bytes(4, sys.byteorder)
    connection.sendmsg([b"d"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def start_supervisor(session: int, descriptors: list[int], root: str, limits: list[tuple[int, int]]) -> int:
    """Fork the supervisor of a command; return its process id, 0 if that was not possible."""
    try:
        child = os.fork()
    except OSError as error:
        report(descriptors[0], "fork", error.errno)
        return 0
    if child == 0:
        try:
            os.close(session)
            supervise(descriptors, root, limits)
        finally:
            os._exit(0)
    return child


def supervise(descriptors: list[int], root: str, limits: list[tuple[int, int]]) -> None:
    """Run one command: report how it ends, and look after what it leaves behind."""
    control, out_read, out_write, err_read, err_write, stdin = descriptors
    request = read_request(control)
    become_subreaper()
    wake = watch_children()
    try:
        stage = "gone"
        if root:
            os.chroot(root)
        os.chdir(request[0])
        stage = "cwd"
        os.chdir(request[1])
        stage = "fork"
        command = os.fork()
    except OSError as error:
        report(control, stage, error.errno)
        return
    if command == 0:
        run_command(request[2:], (stdin, out_write, err_write), limits, confined=bool(root))
    os.chdir("/")
    for descriptor in (stdin, out_write, err_write):
        os.close(descriptor)
    attend(command, control=control, wake=wake, outputs=(out_read, err_read))


def attend(command: int, *, control: int, wake: int, outputs: tuple[int, ...]) -> None:
    """Wait until nothing of the command is left, or until the engine wants all of it killed."""
    poller = select.poll()
    poller.register(0, 0)  # no events: reports only that the other end was closed
    poller.register(control, select.POLLIN)
    poller.register(wake, select.POLLIN)
    detached, children = False, True
    while children or not detached:
        for fd, _ in poller.poll():
            if fd == wake:
                read_some(wake)
                status, children = reap(command)
                if status is not None:
                    report_status(control, status)
            elif fd == control and read_some(control):
                detached = True
                poller.unregister(control)
                for output in outputs:  # a background child must not die of a closed pipe
                    poller.register(output, select.POLLIN)
            elif fd in outputs:
                if not read_some(fd):
                    poller.unregister(fd)
            else:
                kill_descendants(group=command)
                return


def read_request(control: int) -> list[bytes]:
    """Read the request: working directory, cwd, number of arguments, arguments, environment."""
    size = int.from_bytes(read_exactly(control, 8), "big")
    return read_exactly(control, size).split(b"\0")


def read_exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        if not chunk:
            os._exit(0)  # the engine gave up before the command began
        data += chunk
    return bytes(data)


def read_some(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b"-"  # another reader of the same pipe was faster
    except OSError:
        return b""


def report_status(control: int, status: int) -> None:
    if os.WIFSIGNALED(status):
        report(control, "signal", os.WTERMSIG(status))
    else:
        report(control, "exit", os.WEXITSTATUS(status))


def report(control: int, kind: str, number: int | None) -> None:
    try:
        os.write(control, b"%s %d\n" % (kind.encode(), number or 0))
    except OSError:
        pass  # the engine is gone; the end of the sockets says the rest


def run_command(
    fields: list[bytes], streams: tuple[int, ...], limits: list[tuple[int, int]], *, confined: bool
) -> None:
    """Become the command; never returns."""
    count = int(fields[0])
    arguments = fields[1 : count + 1]
    environment = {name: value for name, _, value in (item.partition(b"=") for item in fields[count + 1 :])}
    try:
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        reset_process(limits)
        if confined:
            drop_capabilities()
        execute(arguments, environment)
    except OSError as error:
        message = b"%s: %s\n" % (arguments[0], (error.strerror or "cannot be run").encode())
        os.write(2, message)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(126)


def reset_process(limits: list[tuple[int, int]]) -> None:
    """Give the command default signals, a usual umask and its resource limits."""
    _signal.set_wakeup_fd(-1)
    for number in range(1, 32):
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    os.umask(0o022)
    for kind, wanted in limits:
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))


def drop_capabilities() -> None:
    """Give up what the supervisor may do and a command must not: it could leave its root by it."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
    if libc.capset(CAPABILITY_VERSION_3 + bytes(4), bytes(24)) != 0:
        raise PermissionError(1, "capabilities cannot be given up")


def execute(arguments: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Replace this process by the program, searched for in the PATH of the command's own environment."""
    name = arguments[0]
    if b"/" in name:
        os.execve(name, arguments, environment)  # noqa: S606  # running commands is what this is for
    failure: OSError = FileNotFoundError(2, "not found")
    for directory in environment.get(b"PATH", b"").split(b":"):
        try:
            os.execve(os.path.join(directory or b".", name), arguments, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure


def watch_children() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def reap(command: int = 0) -> tuple[int | None, bool]:
    """Collect ended children; return the command's status if it is among them, and whether any is left."""
    status = None
    while True:
        try:
            child, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if child == 0:
            return status, True
        if child == command:
            status = code


def become_subreaper() -> None:
    """Make orphans among the descendants children of this process instead of init's (Linux)."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def refuse_tracing() -> None:
    """Let no command stop or rewrite a supervisor as its debugger, nor take its descriptors (Linux)."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE; inherited by a fork, reset by an exec


def kill_descendants(group: int = 0) -> bool:
    """
    Kill and reap until no descendant is left.

    Args:
        group: The command's process group: all that can be found of its descendants where there is no /proc.

    Returns:
        Whether all are gone; False when some did not die in time.
    """
    deadline = time.monotonic() + KILL_SECONDS
    pause = 0.0005
    while reap()[1]:
        if time.monotonic() > deadline:
            return False
        for number in (_signal.SIGSTOP, _signal.SIGKILL):  # stopped first, so that none forks meanwhile
            for process in descendants() if sys.platform == "linux" else [-group] if group else []:
                send_signal(process, number)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def send_signal(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended meanwhile, or became another user's


def descendants(spared: dict[int, int] | None = None) -> list[int]:
    """List the ids of all processes below this one, parents first, without those in ``spared`` and below."""
    children = children_by_parent() if sys.platform == "linux" else {}
    found = [child for child in children.get(os.getpid(), ()) if not spared or child not in spared]
    for process in found:  # grows while we go
        found += children.get(process, ())
    return found


def children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(entry))
    return children


if __name__ == "__main__":
    main()
