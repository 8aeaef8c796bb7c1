"""Kinds of cluster, one file each."""

from tribunal.results.plugins import extend

extend(__path__, "clusters")
