"""Judging on Spark: the session, its workers, the properties as SQL, a night's tables."""
