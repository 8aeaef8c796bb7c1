"""What a run leaves: the recording, the verdict, the report."""
