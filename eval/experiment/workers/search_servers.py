"""Search servers for workers: one for each index on every machine that has some."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from eval.experiment.workers.actors import Addresses, Place, SearchServer
from retrieval.config import RetrieverConfig


class SearchServers:
    """Servers that one pool of workers after another searches; they live until :meth:`end`.

    An index of millions of vectors takes minutes to read, which models that follow each other need not do.
    """

    def __init__(self) -> None:
        self._ray: Any = None
        self._servers: dict[tuple[str, str, str], Any] = {}

    @property
    def actors(self) -> Sequence[Any]:
        """The servers' actors, in the order in which they were started."""
        return [*self._servers.values()]

    async def start(
        self, ray: Any, indexes: Mapping[str, RetrieverConfig], places: Sequence[Place]
    ) -> Addresses:
        """Start what does not run yet for some workers, and return the addresses by index and machine.

        ``places``: where the workers are, each with a free port for every index.
        """
        self._ray = ray
        machines = {place.node: place for place in places}
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        kind = ray.remote(SearchServer)
        ready: dict[str, dict[str, Any]] = {}
        for place in machines.values():
            # Where all workers are on one machine, no other needs to reach the server.
            host = "127.0.0.1" if len(machines) == 1 else place.address
            for (key, config), port in zip(indexes.items(), place.ports, strict=True):
                name = (key, place.node, host)
                if name not in self._servers:
                    self._servers[name] = kind.options(
                        num_cpus=0,
                        max_restarts=-1,  # one that never comes up again is given up by its clients
                        max_concurrency=2,
                        scheduling_strategy=affinity(place.node, soft=False),
                    ).remote(
                        config,
                        host,
                        port,
                        os.environ.get("OMP_NUM_THREADS", ""),
                        sum(bool(each.gpus) for each in places if each.node == place.node),
                    )
                ready.setdefault(key, {})[place.node] = self._servers[name].ready.remote()
        return {key: {node: await each for node, each in by_node.items()} for key, by_node in ready.items()}

    def end(self) -> None:
        """End the servers' processes."""
        for actor in self.actors:
            with suppress(Exception):  # it may be gone, and the cluster with it
                self._ray.kill(actor)
