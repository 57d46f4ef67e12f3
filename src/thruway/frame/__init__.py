"""A call arrives: where values are found (source), what must hold (guard), how it is checked, which entry runs."""
