"""One module a family of anomaly classes; a module here is found by having `CLASSES`."""
