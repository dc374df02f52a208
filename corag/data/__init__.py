"""Users' files of records and text: one reader, one table of field names, nothing lost without a word."""
