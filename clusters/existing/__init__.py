"""A cluster that its user has already: nothing is started or ended there but by the commands that its file names."""
