"""What happened: records, the journal, and what can be read from them."""
