"""Clusters whose listeners ask who connects: certificates, logins and ACLs of one run."""
