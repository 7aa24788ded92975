"""`python -m turncredit` is the command `turncredit`."""

from __future__ import annotations

from turncredit.cli.main import main

if __name__ == "__main__":
    main()
