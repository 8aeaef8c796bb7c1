"""What a decoder raises on a file that somebody else wrote, whatever is in it.

msgspec's own errors are not all: text that is not UTF-8 and lists within lists within lists end in Python's. Who reads what others
wrote catches `UNREADABLE`, and says which file it is; `tests/tidy/test_unreadable.py` finds who names only a part of it.
"""

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
