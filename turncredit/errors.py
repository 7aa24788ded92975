"""Errors that a user can cause, each one clear line: what was wrong, where, what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from ssl import SSLCertVerificationError


class UserError(Exception):
    """A mistake that the user can fix. The command line prints only the message and exits with 2."""


class OutOfTime(UserError):
    """A job stopped before its time limit, and has kept what it has done: another attempt goes on from there."""


class OutsideFault(UserError):
    """Something outside failed, such as a connection or a server: another attempt may not meet it."""


class NoSideTable(UserError):
    """A method reads the side table `name`, which it was not given."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


class WrongResult(UserError):
    """What a method returned is not a credit, whatever the turns: a wrong length, a missing name."""


#: What to do about an error of the operating system; any other one is a mistake of ours, and has a traceback.
UNUSABLE = {
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some space, or write to another disk",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EROFS: "give a path on a disk that can be written",
    errno.EACCES: "give a path that you may use, or change its permissions",
    errno.EPERM: "give a path that you may use, or change its permissions",
}


def unusable(error: BaseException) -> tuple[int, str] | None:
    """The number and the words of an error that says a disk is full or a path may not be used; None for another.

    Libraries in Rust (safetensors) only quote the operating system: `No space left on device (os error 28)`.
    """
    if isinstance(error, OSError):
        number, words = error.errno, error.strerror
    else:
        quoted = re.search(r"([^:(]+) \(os error (\d+)\)", str(error))
        number, words = (int(quoted[2]), quoted[1].strip()) if quoted else (None, None)
    if number is None or number not in UNUSABLE:
        return None
    return number, str(words or error)


#: What the operating system says of a network that fails, beside Python's ConnectionError and TimeoutError.
UNREACHABLE = {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH}
#: Exceptions of libraries, by package, that say the same. They are known by name: a process may lack the library.
CONNECTION_FAILED = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "http": {"IncompleteRead"},
    "httpx": {"NetworkError", "TimeoutException", "RemoteProtocolError"},
    "requests": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "socket": {"gaierror"},
    "ssl": {"SSLEOFError", "SSLZeroReturnError"},
    "urllib3": {"MaxRetryError", "NewConnectionError", "ProtocolError", "TimeoutError"},
    "websockets": {"ConnectionClosed"},
}
#: Libraries whose errors may have an HTTP status, and the statuses of a server that is busy or down.
STATUS_LIBRARIES, BUSY_OR_DOWN = {"aiohttp", "httpx", "requests", "urllib"}, {429, 502, 503, 504}
#: gRPC's names of the same.
GRPC_FAILED = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


def is_from_outside(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from or while handling, says that something outside failed.

    That is a connection, a call that took too long, or a server that is busy or down. A refused certificate is not.
    """
    chain = [error]
    for one in chain:  # grows
        others = list(one.exceptions) if isinstance(one, BaseExceptionGroup) else []
        if one.__cause__ is not None or not one.__suppress_context__:
            others += [other for other in (one.__cause__, one.__context__) if other is not None]
        chain += [other for other in others if not any(other is known for known in chain)]
    return any(map(_failed_outside, chain)) and not any(isinstance(one, SSLCertVerificationError) for one in chain)


def kind_of(error: BaseException) -> type[UserError]:
    """The error as which an exception of third-party code is raised: OutsideFault if it is from outside."""
    return OutsideFault if is_from_outside(error) else UserError


def _failed_outside(error: BaseException) -> bool:
    """Whether this error itself says so."""
    if isinstance(error, OutsideFault | ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in UNREACHABLE:
        return True
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    if any(name in CONNECTION_FAILED.get(package, ()) for package, name in kinds):
        return True
    packages = {package for package, _ in kinds}
    if packages & STATUS_LIBRARIES:
        where = (error, "status"), (error, "code"), (getattr(error, "response", None), "status_code")
        return any(getattr(owner, name, None) in BUSY_OR_DOWN for owner, name in where)
    code = getattr(error, "code", None) if "grpc" in packages else None
    return callable(code) and getattr(code(), "name", None) in GRPC_FAILED


#: Each extra of this package, and the modules that it brings and a plain installation lacks.
EXTRAS = {
    "train": ("torch", "transformers", "peft", "tokenizers", "safetensors", "huggingface_hub"),
    "pipeline": ("snakemake", "mlflow", "sqlalchemy", "pandas", "matplotlib"),
}


def extra_of(module: str) -> str | None:
    """The extra of this package that brings a module; None for one that a plain installation has."""
    return next((extra for extra, modules in EXTRAS.items() if module in modules), None)


def require(*modules: str) -> None:
    """Raise ModuleNotFoundError, as importing it would, for the first of these modules that is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)


def in_one_line(error: Exception) -> str | None:
    """A line on a full disk, a path that may not be used, or an extra that is not installed: where, what, what to do.

    None for any other error.
    """
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        extra = extra_of(module)
        return None if extra is None else f"this command needs {module}: pip install 'turncredit[{extra}]'"
    if not isinstance(error, OSError) or (cause := unusable(error)) is None:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{cause[1]}; {UNUSABLE[cause[0]]}"


def nearest(word: str, choices: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the choice closest to `word`, or an empty string if none is close."""
    matches = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f" (did you mean '{' '.join(matches[0].split())}'?)" if matches else ""  # in one line
