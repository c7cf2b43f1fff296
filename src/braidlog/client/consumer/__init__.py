"""The Consumer and what its parts share; fetching, groups, offsets and parallel work have packages of their own."""
