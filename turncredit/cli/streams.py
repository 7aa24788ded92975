"""Output in an encoding that lacks characters: drawn lines and signs become plain ones, all others escapes."""

from __future__ import annotations

import codecs
import io
import sys

#: What of the drawing and punctuation that commands print stands for it elsewhere.
PLAIN = {
    **dict.fromkeys("─━–—−‐", "-"),
    **dict.fromkeys("│┃╎", "|"),
    **dict.fromkeys("┌└├┐┘┤┬┴┼", "+"),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("‘’", "'"),
    "█": "#",
    "±": "+-",
    "·": ".",
    "•": "*",
    "★": "*",
    "…": "...",
    "→": "->",
    "×": "x",
    "≤": "<=",
    "≥": ">=",
}


def degrade() -> None:
    """Let both output streams of this process replace what their encoding lacks, where they would raise an error.

    A stream that was closed before the process began (`>&-`) is None in Python; what is printed there is dropped.
    """
    sys.stdout, sys.stderr = sys.stdout or io.StringIO(), sys.stderr or io.StringIO()
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not codecs.lookup(stream.encoding).name.startswith("utf"):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    shown = "".join(PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode("ascii") for sign in lacking)
    return shown, error.end
