"""What a cluster that speaks Kafka's protocol is asked for by an administrator, noted as orders with how each ended."""

from collections.abc import Sequence

from replog.types import TopicPartition
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.orders import Order, Orders, elections
from tribunal.results.admin_apis import PREFERRED, AdminApi


class Operated:
    """Gives orders to the cluster; part of each cluster of real nodes that can be given them."""

    _administration: Administration
    _orders: Orders

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas."""
        order = Order(api=AdminApi.REASSIGN, topic=partition.topic, partition=partition.partition)
        async with self._orders.given(order) as asked:
            await self._administration.reassign(partition, replicas)
            asked.left_in_doubt = self._administration.left_in_doubt

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings."""
        order = Order(api=AdminApi.SET_CONFIG, topic=topic, setting=name, value=value)
        async with self._orders.given(order) as asked:
            await self._administration.set_topic_config(topic, name, value)
            asked.left_in_doubt = self._administration.left_in_doubt

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica."""
        async with self._orders.given(*elections(partitions, PREFERRED)) as asked:
            await self._administration.elect_preferred(partitions)
            asked.left_in_doubt = self._administration.left_in_doubt
