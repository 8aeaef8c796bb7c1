"""Network and mount namespaces of one run."""
