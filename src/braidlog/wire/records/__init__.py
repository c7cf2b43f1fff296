"""Record batches and old message sets: read, built, validated, converted, filtered; no request and no log."""
