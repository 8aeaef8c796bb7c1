"""What listeners know of each API, by where it stands."""

from replog.controller import controller
from replog.controller.served_api import AnyServedApi
from replog.node import controller as controller_node
from replog.node.api import cluster, fetch, groups, log_directories, offsets, produce, transactions
from replog.node.coordinators import internal_topics, markers
from replog.node.quorum import member
from replog.node.zookeeper import broker as zookeeper_broker
from replog.wire.apis import Api
from replog.zookeeper.controller import CONTROLLED_SHUTDOWN

BROKERS = (cluster, fetch, groups, log_directories, offsets, produce, transactions, internal_topics, markers)


def by_api(*modules: object) -> dict[Api, AnyServedApi]:
    return {one.any_served.api: one.any_served for module in modules for one in module.APIS}


ON_CONTROLLERS: dict[Api, AnyServedApi] = {
    **{one.any_served.api: one.any_served for one in controller.APIS.values()},
    **by_api(member, controller_node),
}
ON_BROKERS: dict[Api, AnyServedApi] = by_api(*BROKERS)
IN_ZOOKEEPER_MODE: dict[Api, AnyServedApi] = {**by_api(zookeeper_broker), Api.CONTROLLED_SHUTDOWN: CONTROLLED_SHUTDOWN}
# Fetch is of the metadata log: a broker's is asked about where it is answered.
SERVED = {**ON_BROKERS, **ON_CONTROLLERS, **IN_ZOOKEEPER_MODE}
