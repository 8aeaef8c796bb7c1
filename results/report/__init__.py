"""A run told as one HTML page."""
