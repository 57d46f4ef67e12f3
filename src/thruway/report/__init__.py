"""What happened, read from the journal: explain, metrics, log topics, dumps; and shadow mode, which runs eager beside."""
