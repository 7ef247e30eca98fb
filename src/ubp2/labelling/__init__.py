"""People as teachers: clips of recorded episodes, and the page on which they are compared."""
