"""What a run of a described system was made of, besides its plan: the system's own version, and the files that lay beside its system.toml.

Small files of text are kept with the run, under `system/`; of the others their size and sha256 are known, and of those that seem to hold a
secret, or to name somebody's machines, their name alone.
"""

from typing import Annotated, Final

import msgspec

SYSTEM_FOLDER: Final = "system"  # the folder of a run that has them


class DescribedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the system's folder.

    name:    in that folder.
    sha256:  None: of a file that is left out for what it may tell, or that is too large.
    is_kept:  it is with the run.
    why:     why it is not.
    """

    name: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str | None = None
    is_kept: bool = False
    why: str | None = None


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A described system, as it was run.

    file:     the system.toml, by its name in its folder.
    version:  what the system said of its version before it was started; None: its file has no command that asks for it.
    files:    of its folder, those that commands name first.
    more:     how many files more were seen there.
    settings:  what its nodes were started with, by its own names: what the plan says, and of the others what its file does.
    """

    file: str
    version: str | None = None
    files: tuple[DescribedFile, ...] = ()
    more: Annotated[int, msgspec.Meta(ge=0)] = 0
    settings: dict[str, bool | int | float | str] = {}

    @property
    def left_out(self) -> list[DescribedFile]:
        """Return the files that a reader has to have from elsewhere."""
        return [one for one in self.files if not one.is_kept]
