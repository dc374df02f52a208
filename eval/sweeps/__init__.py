"""Many settings of one experiment: cells, findings, pictures."""
