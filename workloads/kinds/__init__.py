"""Workloads, one file each: what lies here can be named in a scenario."""

from tribunal.results.plugins import extend

extend(__path__, "workloads")
