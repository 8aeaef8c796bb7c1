"""The edges of dependency graphs as SQL: the definition for readers, and the oracle of the columns' edges in tests.

Both queries answer (run_id, source, target, kind): transaction `source`, named by its row in `txns`, must come before
`target`; kind is ww, wr or rw. They run in Spark SQL and in DuckDB over the view `txn_steps`. What SQL does not say is which edges
close a circle: that is a search (`cycles`).
"""

from typing import Final

# Lists of which all reads are prefixes of the longest, which is then the order of versions. A read stands in `txn_steps` as
# neighbouring rows of one partition, one an element; an empty one has a single row without a value.
LISTS: Final = """
WITH stepped AS (
  SELECT *, CASE WHEN kind = 'read' AND LAG(kind) OVER line = 'read' AND LAG(topic) OVER line = topic
                  AND LAG(partition) OVER line = partition THEN 0 ELSE 1 END AS is_head
  FROM txn_steps WHERE kind IN ('append', 'read') WINDOW line AS (PARTITION BY run_id, txn ORDER BY step)
), numbered AS (
  SELECT *, SUM(is_head) OVER (PARTITION BY run_id, txn ORDER BY step
                               ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number FROM stepped
), elements AS (
  SELECT run_id, txn, number, topic, partition, value,
         ROW_NUMBER() OVER (PARTITION BY run_id, txn, number ORDER BY step) AS place
  FROM numbered WHERE kind = 'read' AND outcome = 'committed' AND value IS NOT NULL
), lists AS (
  SELECT run_id, txn, number, topic, partition, COUNT(value) AS size
  FROM numbered WHERE kind = 'read' AND outcome = 'committed' GROUP BY run_id, txn, number, topic, partition
), longest AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY run_id, topic, partition ORDER BY size DESC, txn, number) AS rank FROM lists
), appends AS (
  SELECT run_id, txn, topic, partition, value FROM txn_steps WHERE kind = 'append' AND outcome <> 'aborted'
), single AS (
  SELECT a.run_id, a.topic, a.partition, MAX(a.value) AS value FROM appends a
  ANTI JOIN (SELECT * FROM lists WHERE size > 0) l
    ON a.run_id = l.run_id AND a.topic = l.topic AND a.partition = l.partition
  GROUP BY a.run_id, a.topic, a.partition HAVING COUNT(*) = 1
), placed AS (
  SELECT e.run_id, e.topic, e.partition, e.place, e.value FROM elements e JOIN longest l
    ON e.run_id = l.run_id AND e.txn = l.txn AND e.number = l.number AND l.rank = 1
  UNION ALL
  SELECT run_id, topic, partition, CAST(1 AS BIGINT), value FROM single
), versions AS (
  SELECT p.run_id, p.topic, p.partition, p.place, a.txn FROM placed p JOIN appends a
    ON p.run_id = a.run_id AND p.topic = a.topic AND p.partition = a.partition AND p.value = a.value
), ends AS (
  SELECT run_id, topic, partition, MAX(place) AS size FROM placed GROUP BY run_id, topic, partition
), unread AS (
  SELECT a.* FROM appends a ANTI JOIN placed p
    ON a.run_id = p.run_id AND a.topic = p.topic AND a.partition = p.partition AND a.value = p.value
), edges AS (
  SELECT v.run_id, v.txn AS source, n.txn AS target, 'ww' AS kind FROM versions v JOIN versions n
    ON v.run_id = n.run_id AND v.topic = n.topic AND v.partition = n.partition AND v.place + 1 = n.place
  UNION
  SELECT v.run_id, v.txn, u.txn, 'ww' FROM versions v
  JOIN ends e ON v.run_id = e.run_id AND v.topic = e.topic AND v.partition = e.partition AND v.place = e.size
  JOIN unread u ON v.run_id = u.run_id AND v.topic = u.topic AND v.partition = u.partition
  UNION
  SELECT v.run_id, v.txn, l.txn, 'wr' FROM lists l JOIN versions v
    ON l.run_id = v.run_id AND l.topic = v.topic AND l.partition = v.partition AND l.size = v.place
  UNION
  SELECT l.run_id, l.txn, v.txn, 'rw' FROM lists l JOIN versions v
    ON l.run_id = v.run_id AND l.topic = v.topic AND l.partition = v.partition AND l.size + 1 = v.place
  UNION
  SELECT l.run_id, l.txn, u.txn, 'rw' FROM lists l
  LEFT JOIN ends e ON l.run_id = e.run_id AND l.topic = e.topic AND l.partition = e.partition
  JOIN unread u ON l.run_id = u.run_id AND l.topic = u.topic AND l.partition = u.partition
  WHERE l.size = COALESCE(e.size, 0)
)
SELECT run_id, source, target, kind FROM edges WHERE source <> target
"""

# Messages have offsets: the order of versions is given. A transaction of unknown outcome that somebody read from has committed; a
# message that stands at two offsets orders nothing.
MESSAGES: Final = """
WITH sent AS (
  SELECT run_id, txn, outcome, topic, partition, log_offset, value FROM txn_steps WHERE kind = 'send'
), polled AS (
  SELECT run_id, txn, outcome, topic, partition, log_offset, value FROM txn_steps WHERE kind = 'poll'
), writers AS (
  SELECT run_id, topic, partition, value, MAX(txn) AS txn FROM sent GROUP BY run_id, topic, partition, value
), proven AS (
  SELECT DISTINCT w.run_id, w.txn FROM writers w SEMI JOIN (SELECT * FROM polled WHERE outcome = 'committed') p
    ON w.run_id = p.run_id AND w.topic = p.topic AND w.partition = p.partition AND w.value = p.value
), committed_sends AS (
  SELECT s.* FROM sent s LEFT JOIN proven p ON s.run_id = p.run_id AND s.txn = p.txn
  WHERE s.outcome = 'committed' OR (s.outcome = 'info' AND p.txn IS NOT NULL)
), seen AS (
  SELECT run_id, topic, partition, log_offset, value FROM committed_sends WHERE log_offset IS NOT NULL
  UNION
  SELECT run_id, topic, partition, log_offset, value FROM polled WHERE log_offset IS NOT NULL
), standing AS (
  SELECT run_id, topic, partition, log_offset, MIN(value) AS value FROM seen GROUP BY run_id, topic, partition, log_offset
), once AS (
  SELECT run_id, topic, partition, value FROM seen GROUP BY run_id, topic, partition, value HAVING COUNT(*) = 1
), line AS (
  SELECT s.run_id, s.topic, s.partition, s.log_offset, s.value, o.value IS NOT NULL AS is_once, w.txn,
         ROW_NUMBER() OVER (PARTITION BY s.run_id, s.topic, s.partition ORDER BY s.log_offset) AS place
  FROM standing s
  LEFT JOIN once o ON s.run_id = o.run_id AND s.topic = o.topic AND s.partition = o.partition AND s.value = o.value
  LEFT JOIN writers w ON s.run_id = w.run_id AND s.topic = w.topic AND s.partition = w.partition AND s.value = w.value
), neighbours AS (
  SELECT a.run_id, a.topic, a.partition, a.value, a.txn AS before_txn, b.txn AS after_txn FROM line a JOIN line b
    ON a.run_id = b.run_id AND a.topic = b.topic AND a.partition = b.partition AND a.place + 1 = b.place
  WHERE a.is_once AND b.is_once
), reached AS (
  SELECT p.run_id, p.txn, p.topic, p.partition, MAX(l.place) AS place FROM polled p JOIN line l
    ON p.run_id = l.run_id AND p.topic = l.topic AND p.partition = l.partition AND p.value = l.value
  GROUP BY p.run_id, p.txn, p.topic, p.partition
), edges AS (
  SELECT run_id, before_txn AS source, after_txn AS target, 'ww' AS kind FROM neighbours
  WHERE before_txn IS NOT NULL AND after_txn IS NOT NULL
  UNION
  SELECT w.run_id, w.txn, p.txn, 'wr' FROM polled p JOIN writers w
    ON p.run_id = w.run_id AND p.topic = w.topic AND p.partition = w.partition AND p.value = w.value
  UNION
  SELECT r.run_id, r.txn, n.after_txn, 'rw' FROM reached r
  JOIN line l ON r.run_id = l.run_id AND r.topic = l.topic AND r.partition = l.partition AND r.place = l.place
  JOIN neighbours n ON l.run_id = n.run_id AND l.topic = n.topic AND l.partition = n.partition AND l.value = n.value
  WHERE n.after_txn IS NOT NULL
)
SELECT run_id, source, target, kind FROM edges WHERE source <> target
"""
