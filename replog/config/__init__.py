"""A node's configuration: documented structs by area, under Kafka's names and with Kafka's defaults.

Code reads fields: `config.log.segment_bytes`. Names like `log.segment.bytes` belong to the edge: to files, scenarios and
requests, which `DEFINITIONS` checks. Names that begin with `tribunal.` exist for the harness.
"""

from replog.config.areas import AREAS, DEFINITIONS, definition_of
from replog.config.endpoints import ConfigError, Endpoint, Voter, endpoint
from replog.config.node_config import NodeConfig, load
from replog.config.setting import Definition

__all__ = [
    "AREAS",
    "DEFINITIONS",
    "ConfigError",
    "Definition",
    "Endpoint",
    "NodeConfig",
    "Voter",
    "definition_of",
    "endpoint",
    "load",
]
