"""Nodes on this machine and on others: started, watched, hurt, ended, and what their files say."""
