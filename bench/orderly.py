"""A client in good order: one record at a time with acks=all, while something else is done to its cluster."""

import threading
import time
from typing import Any

from confluent_kafka import Producer


class OrderlyClient:
    """Sends one record after the other to one partition and notes how long each took.

    pause_s:  between two records.
    """

    def __init__(self, bootstrap: str, topic: str, partition: int, *, pause_s: float = 0.0) -> None:
        self.times_ms: list[float] = []
        self._bootstrap = bootstrap
        self._place = topic, partition
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "OrderlyClient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        topic, partition = self._place
        while not self._ended.is_set():
            outcomes: list[Any] = []
            began = time.perf_counter()
            producer.produce(
                topic, b"orderly", partition=partition, on_delivery=lambda error, _, to=outcomes: to.append(error)
            )
            while not outcomes:
                producer.poll(0.01)
            assert outcomes == [None], outcomes
            self.times_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(self._pause_s)

    def percentile(self, share: float) -> float:
        """Return this percentile of the times, ms; the first few records found the leader."""
        times = sorted(self.times_ms[5:]) or [float("inf")]
        return times[int(len(times) * share)]
