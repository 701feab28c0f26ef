"""The laboratory: drawn faces, other methods, studies, and what looks at the truth; the core imports none of it."""
