"""The whole paper as stages: what is there is kept, what is killed goes on, what changed is made again."""
