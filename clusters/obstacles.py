"""Why a kind of cluster does not work on this machine, and what helps."""

import msgspec


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One reason with its remedy; some only take a comfort away."""

    reason: str
    remedy: str
    blocks: bool = True
