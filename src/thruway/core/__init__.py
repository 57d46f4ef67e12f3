"""What every stage shares and what knows no stage: sizes, dtypes, settings, errors, the journal, passes, targets."""
