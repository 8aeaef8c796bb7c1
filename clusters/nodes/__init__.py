"""Nodes on this machine and on others: started, watched, killed, ended, and what their files say."""
