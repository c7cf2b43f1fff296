"""Where Spark's queries stand and stood, read from their checkpoints without Spark or Java."""
