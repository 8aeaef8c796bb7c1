"""Anomalies put into recordings, one changed fact each: what the judge would see is measured, not believed."""
