"""ZooKeeper mode: registration, controller election, control requests and broker changes (KIP-380, KIP-704; SPEC 3.12).

Cores only. Whoever runs them is `replog/node/zookeeper/broker.py`; what they reach ZooKeeper through is `replog.ports.ZooKeeper`.
"""
