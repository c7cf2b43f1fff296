"""What a broker does with the partitions it holds: roles, high watermark, and who waits for either to move."""
