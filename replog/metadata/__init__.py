"""The cluster's committed metadata: the image, its values, its records, the features."""
