"""Files written whole or not at all, artifact folders, hashes."""
