"""What a cluster has finalized (KIP-584): its metadata.version, as an administrator reads and raises it."""

from typing import Final

from replog.errors import Error
from replog.metadata.record_versions import METADATA_VERSION
from replog.wire.messages import api_versions as av
from replog.wire.messages import update_features as uf
from tribunal.clusters.clients.membership import Administrator

ASK_VERSION: Final = 3  # KIP-584: the first that shows finalized features
UPDATE_VERSION: Final = 1  # the newest that releases before 4.0 know
UPGRADE: Final = 1
TIMEOUT_MS: Final = 5_000
ASKER: Final = ("tribunal-admin", "1")  # a name and a version, without which version 3 is refused


class FinalizedFeatures:
    """Asks until there is an answer that stands."""

    def __init__(self, administration: Administrator) -> None:
        self._administration = administration

    async def metadata_version(self) -> int:
        """Return the finalized level, as the first broker that answers knows it; 0: none."""
        body = av.ApiVersionsRequest(client_software_name=ASKER[0], client_software_version=ASKER[1])
        answer = await self._administration.insist(av.EXCHANGE, ASK_VERSION, body, lambda given: [given.error_code])
        return next((one.max_version_level for one in answer.finalized_features if one.name == METADATA_VERSION), 0)

    async def raise_metadata_version(self, level: int) -> None:
        """Finalize a higher level; `Declined` when the cluster says no, `ClusterError` when nobody answers."""
        update = uf.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=UPGRADE)
        body = uf.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
        await self._administration.insist(uf.EXCHANGE, UPDATE_VERSION, body, _errors)


def _errors(answer: uf.UpdateFeaturesResponse) -> list[Error]:
    """Return what was said: of the whole first, which names what single features do not."""
    return [answer.error_code, *(each.error_code for each in answer.results)]
